"""From the failures of a job to the one error that users see: the root cause with its place, the rest as notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowrun.errors import FlowrunError, JobFailedError
from flowrun.graph.execution_graph import ExecutionGraph
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.jobmaster.commits import CommitError
from flowrun.runtime.jobmaster.scheduler_events import JobBroke, LocatedFailure
from flowrun.runtime.jobmaster.sources import SourceError

_PHASES = {
    "create": "was created",
    "setup": "was set up",
    "initialize_state": "took back its state",
    "open": "opened",
    "process": "ran",
    "end_input": "was told that its input ended",
    "finish": "finished",
    "snapshot": "took a snapshot",
    "close": "closed",
    "deployment": "was deployed",
}


def job_failure(
    graph: ExecutionGraph,
    failures: Sequence[LocatedFailure],
    problems: Sequence[str],
    *,
    past: Iterable[LocatedFailure] = (),
    restart_note: str | None = None,
) -> JobFailedError:
    """The error of a failed job.

    Args:
        graph: names the places.
        failures: at least one; the first is the root cause.
        problems: what else went wrong while the job was taken down.
        past: root causes of the last restarts, oldest first.
        restart_note: why the last failure was not followed by a restart; None if there is nothing to say.
    """
    root = failures[0]
    cause = root.failure.error
    error = JobFailedError(
        f"{place_of_failure(graph, root)}: {describe_error(cause)}",
        operator=root.failure.operator,
        subtask=None if root.vertex is None else root.vertex.subtask,
        hint=cause.hint if isinstance(cause, FlowrunError) else None,
    )
    for note in (*root.failure.secondary, *secondary_notes(graph, failures[1:], problems)):
        error.add_note(note)
    if restart_note is not None:
        error.add_note(restart_note)
    for located in past:
        error.add_note(
            f"restarted before, when {place_of_failure(graph, located)}: {describe_error(located.failure.error)}"
        )
    return error


def secondary_notes(graph: ExecutionGraph, failures: Sequence[LocatedFailure], problems: Sequence[str]) -> list[str]:
    """One line for each thing that went wrong while a job was taken down."""
    notes = []
    for located in failures:
        notes.append(f"then {place_of_failure(graph, located)}: {describe_error(located.failure.error)}")
        notes += located.failure.secondary
    return [*notes, *problems]


def place_of_failure(graph: ExecutionGraph, located: LocatedFailure) -> str:
    """Where something failed, as a clause: `operator 'x', subtask 1 of 2, failed while it ran`."""
    failure = located.failure
    if located.vertex is None:
        return f"'{failure.operator}' failed" if failure.operator else f"job '{graph.job_graph.name}' failed"
    vertex = graph.vertex(located.vertex)
    subtask = f"subtask {vertex.subtask + 1} of {vertex.job_vertex.parallelism}"
    when = f" while it {_PHASES[failure.phase]}" if failure.phase in _PHASES else ""
    if failure.operator is None:
        return f"task '{vertex.job_vertex.name}', {subtask}, failed{when}"
    return f"operator '{failure.operator}', {subtask}, failed{when}"


def job_broke(error: Exception) -> JobBroke:
    """The scheduler's event for something that failed beside the subtasks, with the source or sink that is to blame."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    match error:
        case CommitError(sink=name) | SourceError(source=name):
            return JobBroke(cause, name)
    return JobBroke(error)
