"""All kinds of findings about a running job, and the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowrun.runners.why import event_time, joins, lost_rows, progress, sink_rows, spread
from flowrun.runners.why.finding import SEVERITIES, Finding, Thresholds
from flowrun.runners.why.job_view import JobView
from flowrun.runtime.job_details import JobDetails

Rule = Callable[[JobView], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    progress.waits_for_slots,
    progress.failures,
    progress.checkpoints,
    progress.unseen_rows,
    event_time.silent_sources,
    event_time.held_back_watermarks,
    event_time.held_back_subtasks,
    event_time.missing_watermarks,
    event_time.sources_behind,
    lost_rows.filters,
    lost_rows.null_keys,
    joins.empty_sides,
    joins.unmatched_rows,
    lost_rows.late_rows,
    lost_rows.bad_rows,
    lost_rows.disordered_rows,
    lost_rows.unwritten_rows,
    lost_rows.expired_state,
    sink_rows.conflicting_keys,
    sink_rows.superseded_rows,
    event_time.waiting_for_time,
    progress.bottleneck,
    progress.lagging_sources,
    spread.skewed_keys,
    spread.growing_state,
)
"""Each gives what it finds; what is a cause of others comes before them."""


def findings(details: JobDetails, thresholds: Thresholds | None = None) -> tuple[Finding, ...]:
    """What is found about a job, the worst first; of what is equally bad what comes first on the way of the rows.

    Pure: the same details give the same findings.

    Args:
        details: of the job at one moment.
        thresholds: from when on something is worth telling; None: the usual ones.
    """
    view = JobView(details, thresholds or Thresholds())
    order = {o.operator_id: o.order for o in view.operators}
    found = [(rank, finding) for rank, rule in enumerate(RULES) for finding in rule(view)]
    found.sort(
        key=lambda f: (SEVERITIES.index(f[1].severity), -1 if f[1].operator is None else order[f[1].operator], f[0])
    )
    return tuple(finding for _, finding in found)
