"""What is said when a job is over."""

from __future__ import annotations

from flowrun.cli.checkpoint_text import recovery_text
from flowrun.cli.console import say
from flowrun.cli.figures import count_text, counted_text, duration_text, state_text
from flowrun.runtime.messages import JobResult

# counters that a user must hear of when they are not zero
_NOTEWORTHY = {
    "numLateRecordsDropped": ("late row", "dropped"),
    "numLateRecordsSideOutput": ("late row", "sent to the late output"),
    "numRecordsSkipped": ("unreadable record", "skipped"),
    "numNullKeyRecordsDropped": ("row", "with NULL keys dropped"),
    "numNullRecordsDropped": ("row", "with NULL in a NOT NULL column dropped"),
}


def show_summary(result: JobResult, source_ids: frozenset[str]) -> None:
    """Rows read, duration, rate, checkpoints, restarts, and what was dropped on the way.

    `source_ids` are the vertices that read from outside.
    """
    read = sum(v.records_in for v in result.vertices if v.vertex_id in source_ids)
    seconds = max(result.duration_ms, 1) / 1000
    say(
        f"{result.name}: {state_text(result.state)} in {duration_text(result.duration_ms)}, "
        f"{counted_text(read, 'row')} read ({count_text(read / seconds)}/s)"
    )
    if recovery := recovery_text(result.checkpoints, result.restarts):
        say(f"  {recovery}")
    for operator, counters in result.accumulators.items():
        for name, (what, happened) in _NOTEWORTHY.items():
            if number := counters.get(name):
                say(f"  {operator}: {number} {what}{'s'[: number != 1]} {happened}")
    for problem in result.problems:
        say(f"  problem while stopping: {problem}")
