"""The summary that is printed when a job is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowrun.cli.console import say
from flowrun.cli.views.checkpoint_text import recovery_text
from flowrun.cli.views.figures import count_text, counted_text, duration_text, state_text
from flowrun.runtime.job_status import JobResult

_NOTEWORTHY = {
    "numLateRecordsDropped": ("late row", "dropped"),
    "numLateRecordsSideOutput": ("late row", "sent to the late output"),
    "numNullKeyRecordsDropped": ("row", "with NULL keys dropped"),
    "numNullRecordsDropped": ("row", "with NULL in a NOT NULL column dropped"),
}
"""Counter → (what it counts, what happened to it), for counters that the user must hear of when they are not zero."""
_LEFT_OUT = {"numRecordsSkipped": "skipped", "numRecordsDeadLettered": "put aside as dead letters"}
_FAULTS = "numRecordsFailed."


def left_out_lines(operator: str, counters: Mapping[str, int], example: str | None) -> Iterator[str]:
    """Lines about rows that an operator could not process: how many, what became of them, why, and the first of them.

    >>> list(left_out_lines("counted", {"numRecordsSkipped": 3, "numRecordsFailed.key": 3}, "column 'k' is NULL"))
    ['  counted: 3 rows skipped (key 3)', "    the first: column 'k' is NULL"]
    """
    why = ", ".join(f"{n.removeprefix(_FAULTS)} {count}" for n, count in counters.items() if n.startswith(_FAULTS))
    for name, fate in _LEFT_OUT.items():
        if count := counters.get(name):
            yield f"  {operator}: {count} {'row' if count == 1 else 'rows'} {fate}" + (f" ({why})" if why else "")
            if example is not None:
                yield f"    the first: {example}"


def show_dropped_rows(result: JobResult) -> None:
    """Print how many rows were dropped on the way, by operator, and why."""
    for operator, counters in result.accumulators.items():
        for name, (what, happened) in _NOTEWORTHY.items():
            if number := counters.get(name):
                say(f"  {operator}: {number} {what}{'s'[: number != 1]} {happened}")
        for line in left_out_lines(operator, counters, result.notes.get(operator)):
            say(line)


def show_summary(result: JobResult, source_ids: frozenset[str]) -> None:
    """Print rows read, duration, rate, checkpoints, restarts, and how many rows were dropped on the way.

    Args:
        result: the job that is over.
        source_ids: ids of the vertices that hold sources.
    """
    read = sum(v.records_in for v in result.vertices if v.vertex_id in source_ids)
    seconds = max(result.duration_ms, 1) / 1000
    say(
        f"{result.name}: {state_text(result.state)} in {duration_text(result.duration_ms)}, "
        f"{counted_text(read, 'row')} read ({count_text(read / seconds)}/s)"
    )
    if recovery := recovery_text(result.checkpoints, result.restarts):
        say(f"  {recovery}")
    show_dropped_rows(result)
    for problem in result.problems:
        say(f"  problem while stopping: {problem}")
