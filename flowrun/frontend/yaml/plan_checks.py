"""The whole plan of a document: general nodes as the special ones that they stand for, and whether all can be done as asked."""

from __future__ import annotations

from flowrun.errors import PipelineError, UnsupportedPlanError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.names import sections
from flowrun.frontend.yaml.queries.wording import in_yaml
from flowrun.plan.changelog import check_changelogs
from flowrun.plan.co_process import CoProcess
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Plan, PlanNode, walk_plan
from flowrun.plan.recognition import recognise
from flowrun.plan.recognition.context import Context

_KINDS: dict[type[PlanNode], str] = {
    Join: "regular",
    WindowJoin: "window",
    IntervalJoin: "interval",
    TemporalJoin: "temporal",
    LookupJoin: "lookup",
}
_NEEDS = {
    "window": "both sides need columns window_start and window_end of equal windows, compared in 'on'",
    "interval": "'on' needs bounds between the time attributes of both sides: a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts",
    "regular": "the windows or time bounds of 'on' let it keep less state: leave 'kind' out",
    "temporal": "the right side needs a primary key and a watermark, or is deduplicated, and 'as_of' names an event time",
    "lookup": "the right side is a source whose connector can be asked by key, read in processing time: no 'as_of', or PROCTIME()",
}


def checked_plan(plan: Plan, document: Section, diagnostics: Diagnostics) -> Plan | None:
    """The recognised plan; None if it cannot run, which is reported.

    Args:
        plan: as the document's parts make it.
        document: for what it says of joins.
        diagnostics: receives every problem.
    """
    try:
        recognised = recognise(plan)
    except PipelineError as error:
        for one in error.diagnostics:
            diagnostics.error(one.message, one.location, hint=in_yaml(one.hint))
        return None
    except UnsupportedPlanError as error:
        diagnostics.error(error.message, None, hint=error.hint)
        return None
    _check_joins(recognised, document, diagnostics)
    for problem in check_changelogs(recognised):
        diagnostics.error(problem.message, problem.location, hint=in_yaml(problem.hint))
    if diagnostics.has_errors:
        return None
    _warn_of_still_time(recognised, diagnostics)
    return recognised


def _warn_of_still_time(plan: Plan, diagnostics: Diagnostics) -> None:
    """Warn of functions of two streams whose event time never comes, as one of the streams says nothing of it and does not end."""
    settings = plan.settings
    context = Context(settings.is_batch, settings.time_zone, settings.state_ttl_ms)
    for node in () if settings.is_batch else walk_plan(plan):
        if not isinstance(node, CoProcess) or not node.event_time:
            continue
        silent = next(filter(None, map(context.endless_without_watermark, node.inputs)), None)
        if silent is not None:
            name = (node.hints.name or "").partition(".")[0]
            diagnostics.warning(
                f"event time stands still in '{name}' and behind it: source '{silent.table.name}' has neither a watermark nor an end",
                node.hints.location,
                hint="give it a watermark, with idle_timeout if it is quiet at times; without, timers of event time do not fire",
            )


def _check_joins(plan: Plan, document: Section, diagnostics: Diagnostics) -> None:
    """Report joins that are not of the kind that the document says."""
    asked = {}
    for name, section in sections(document.named("steps")).items():
        join = section.section("join")
        if join is not None and join.text("kind") is not None:
            asked[name] = join
    for node in walk_plan(plan):
        kind, place = _KINDS.get(type(node)), node.hints.place or ""
        name = place.removeprefix("steps.").partition(":")[0].partition("#")[0]
        if kind is None or name not in asked or place == name:
            continue
        join = asked[name]
        wanted = join.text("kind") or ""
        if kind != wanted:
            diagnostics.error(
                f"the join is of the kind '{kind}', not '{wanted}'", join.value_at("kind"), hint=_NEEDS[wanted]
            )
