"""What is said when a job is over."""

from __future__ import annotations

from flowrun.cli.checkpoint_text import recovery_text
from flowrun.cli.console import say
from flowrun.cli.figures import count_text, duration_text
from flowrun.runtime.messages import JobResult

# counters that a user must hear of when they are not zero
_NOTEWORTHY = {
    "numLateRecordsDropped": "late rows dropped",
    "numLateRecordsSideOutput": "late rows sent to the late output",
    "numRecordsSkipped": "unreadable records skipped",
    "numNullKeyRecordsDropped": "rows with NULL keys dropped",
    "numNullRecordsDropped": "rows with NULL in a NOT NULL column dropped",
}


def show_summary(result: JobResult, source_ids: frozenset[str]) -> None:
    """Rows read, duration, rate, checkpoints, restarts, and what was dropped on the way.

    `source_ids` are the vertices that read from outside.
    """
    read = sum(v.records_in for v in result.vertices if v.vertex_id in source_ids)
    seconds = max(result.duration_ms, 1) / 1000
    say(
        f"{result.name}: {result.state.value.lower()} in {duration_text(result.duration_ms)}, "
        f"{count_text(read)} rows read ({count_text(read / seconds)}/s)"
    )
    if recovery := recovery_text(result.checkpoints, result.restarts):
        say(f"  {recovery}")
    for operator, counters in result.accumulators.items():
        for name, text in _NOTEWORTHY.items():
            if counters.get(name):
                say(f"  {operator}: {counters[name]} {text}")
    for problem in result.problems:
        say(f"  problem while stopping: {problem}")
