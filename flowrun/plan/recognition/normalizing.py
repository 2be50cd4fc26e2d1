"""What sources of changes need before anybody reads them: upserts become whole changes, changes that come twice are left out."""

from __future__ import annotations

from dataclasses import replace

from flowrun.api.changelog import ChangelogMode
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from flowrun.plan.changelog import node_mode
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.nodes import Plan, PlanNode, Scan, walk_plan
from flowrun.plan.recognition.context import RecognitionError
from flowrun.plan.recognition.nodes_made import stateful_part
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks

_SETTING = "table.exec.source.cdc-events-duplicate"
_HINT = "declare PRIMARY KEY (…) NOT ENFORCED on the source"


def normalize_sources(plan: Plan) -> tuple[Plan, list[RecognitionError]]:
    """The plan with a `ChangelogNormalize` behind each source of upserts, and behind each source of changes if they may come twice.

    By Flink's rules (`DynamicSourceUtils`): always of upserts, whoever reads them; of other changes if the setting says so; of inserts
    never. Gives the problems, too: sources without the primary key that this needs. A source that cannot be made from its
    options stays as it is, as others say what is wrong with it.
    """
    done: dict[int, PlanNode] = {}
    normalized: dict[int, PlanNode] = {}
    problems: list[RecognitionError] = []
    for node in walk_plan(plan):
        given = done if isinstance(node, ChangelogNormalize) else normalized
        made = with_inputs(node, tuple(given[id(i)] for i in node.inputs))
        done[id(node)] = normalized[id(node)] = made
        if isinstance(node, Scan):
            try:
                normalized[id(node)] = _normalized(node, duplicates=plan.settings.cdc_events_duplicate)
            except RecognitionError as problem:
                problems.append(problem)
    return with_sinks(plan, tuple(normalized[id(s)] for s in plan.sinks)), problems


def _normalized(scan: Scan, *, duplicates: bool) -> PlanNode:
    try:
        mode = node_mode(scan, ())
    except OptionError:
        return scan
    upserts = mode is ChangelogMode.UPSERT
    if mode is ChangelogMode.APPEND or not (upserts or duplicates):
        return scan
    keys = scan.table.primary_key
    if not keys:
        name = scan.table.name
        if upserts:
            message = f"source '{name}' gives upserts, updates without the row before, which needs a primary key"
            raise RecognitionError(scan, message, _HINT)
        message = (
            f"'{_SETTING}' is on, which needs sources of changes to have a primary key, but source '{name}' has none"
        )
        raise RecognitionError(scan, message, f"{_HINT}, or switch the setting off if no change comes twice")
    positions = tuple(scan.schema.index(k) for k in keys)
    read = replace(scan, schema=_known_by_key(scan.schema, positions)) if upserts else scan
    return ChangelogNormalize(scan.schema, stateful_part(scan.hints, "normalize"), read, positions)


def _known_by_key(schema: Schema, keys: tuple[int, ...]) -> Schema:
    """Columns as a deletion has them, which needs to know the key only."""
    return Schema(tuple(f if i in keys else replace(f, nullable=True) for i, f in enumerate(schema)))
