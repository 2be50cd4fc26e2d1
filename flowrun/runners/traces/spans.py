"""Which spans a job has had, worked out of what it tells of itself; knows nothing of OpenTelemetry.

Names are Apache Flink's (FLIP-384): `Checkpoint`, `JobInitialization`; `Restart` is from a failure to when all subtasks run again.
Each is a trace of its own. Its children are of vertices (`Checkpoint_Task`, `JobInitialization_Task`). The job does not tell when a
vertex took its part of a checkpoint, but for how long: such a span begins with the checkpoint, and has that length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.runtime.checkpoint.records import FAILED, IN_PROGRESS, CheckpointedVertex, CheckpointRecord
from flowrun.runtime.job_details import FailureRecord, JobDetails, VertexDetails
from flowrun.runtime.jobmaster.failure_log import RESTARTED
from flowrun.runtime.lifecycle import ExecutionState, JobState

Attribute = str | int | float | bool
_UP = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


@record
class JobSpan:
    """One span.

    Attributes:
        name: of it.
        start_ms: epoch ms.
        end_ms: epoch ms, not before `start_ms`.
        attributes: by name.
        error: what went wrong; None: nothing.
        children: spans within it.
    """

    name: str
    start_ms: float
    end_ms: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str | None = None
    children: tuple[JobSpan, ...] = ()


class EndedSpans:
    """Finds the spans that ended between one look at a job and the next. One thread at a time."""

    def __init__(self) -> None:
        self._checkpoints: set[tuple[int, int]] = set()
        self._failures: list[FailureRecord] = []
        self._initialized = -1

    def since_last(self, details: JobDetails) -> list[JobSpan]:
        """Those that this look shows and no look before did, in the order of their ends."""
        found = [*self._new_checkpoints(details), *self._new_starts(details)]
        return sorted(found, key=lambda span: span.end_ms)

    def _new_checkpoints(self, details: JobDetails) -> Iterator[JobSpan]:
        names = {v.status.vertex_id: v.status.name for v in details.vertices}
        ended = [c for c in details.checkpoints if c.status != IN_PROGRESS]
        keys = {(c.checkpoint_id, c.triggered_ms) for c in ended}
        for checkpoint in ended:
            if (checkpoint.checkpoint_id, checkpoint.triggered_ms) not in self._checkpoints:
                yield _checkpoint(checkpoint, names)
        self._checkpoints = keys  # those that the job has forgotten do not come back

    def _new_starts(self, details: JobDetails) -> Iterator[JobSpan]:
        """What led to the present attempts, once all of them run; and restarts that failed again before they did."""
        restarts = [f for f in details.failures if f.outcome == RESTARTED]
        new = [f for f in restarts if f not in self._failures]
        up_ms = _up_since(details)
        if up_ms is None:
            return
        self._failures = restarts
        for failure, after in zip(new, [*new[1:], None], strict=False):
            end_ms = up_ms if after is None else after.at_ms
            yield _restart(details, failure, end_ms, is_last=after is None)
        if not new and self._initialized != details.status.restarts:
            began_ms = details.now_ms - details.status.running_ms
            yield _initialization(details, began_ms, up_ms)
        self._initialized = details.status.restarts


def _up_since(details: JobDetails) -> int | None:
    """When the last subtask that runs began to; None: not all of them run, or have finished."""
    if details.status.state not in (JobState.RUNNING, JobState.FINISHED):
        return None
    subtasks = [s for v in details.vertices for s in v.subtasks]
    if not _UP.issuperset(s.state for s in subtasks):
        return None
    return max((s.since_ms for s in subtasks if s.state is ExecutionState.RUNNING), default=details.now_ms)


def _initialization(details: JobDetails, start_ms: float, end_ms: float) -> JobSpan:
    end_ms = max(start_ms, end_ms)
    last = next((c for c in reversed(details.checkpoints) if c.path is not None), None)
    attributes: dict[str, Attribute] = {
        "initializationStatus": "COMPLETED",
        "parallelism": details.parallelism,
        "restarts": details.status.restarts,
    }
    if last is not None and details.status.restarts:
        attributes |= {"checkpointId": last.checkpoint_id, "fullSize": last.state_bytes}
    children = tuple(_task_start(vertex, start_ms, end_ms) for vertex in details.vertices)
    return JobSpan("JobInitialization", start_ms, end_ms, attributes, children=children)


def _task_start(vertex: VertexDetails, start_ms: float, end_ms: float) -> JobSpan:
    running = [s.since_ms for s in vertex.subtasks if s.state is ExecutionState.RUNNING]
    end_ms = min(max(running, default=start_ms), end_ms)
    return JobSpan("JobInitialization_Task", start_ms, max(start_ms, end_ms), _of_vertex(vertex))


def _of_vertex(vertex: VertexDetails) -> dict[str, Attribute]:
    return {
        "vertexId": vertex.status.vertex_id,
        "vertex": vertex.status.name,
        "parallelism": vertex.status.parallelism,
    }


def _restart(details: JobDetails, failure: FailureRecord, end_ms: float, *, is_last: bool) -> JobSpan:
    start_ms = failure.at_ms
    end_ms = max(start_ms, end_ms)
    attributes: dict[str, Attribute] = {
        "failure": failure.place,
        "restartedTasks": sum(len(r.subtasks) for r in failure.restarted),
        "restartDelayMs": failure.restart_delay_ms,
        "succeeded": is_last,
    }
    known = (("operator", failure.operator), ("vertexId", failure.vertex_id), ("worker", failure.worker))
    attributes |= {name: value for name, value in known if value is not None}
    begin_ms = min(start_ms + failure.restart_delay_ms, end_ms)
    children = (_initialization(details, begin_ms, end_ms),) if is_last else ()
    return JobSpan("Restart", start_ms, end_ms, attributes, failure.error.links[0].message, children)


def _checkpoint(checkpoint: CheckpointRecord, names: Mapping[str, str]) -> JobSpan:
    start_ms, end_ms = checkpoint.triggered_ms, checkpoint.triggered_ms + max(checkpoint.duration_ms, 0)
    attributes: dict[str, Attribute] = {
        "checkpointId": checkpoint.checkpoint_id,
        "checkpointType": checkpoint.kind,
        "checkpointStatus": checkpoint.status.upper(),
        "fullSize": checkpoint.state_bytes,
        "checkpointedSize": sum(v.written_bytes for v in checkpoint.vertices),
        "acknowledgedTasks": checkpoint.acknowledged,
        "tasks": checkpoint.subtasks,
    }
    if checkpoint.path is not None:
        attributes["path"] = checkpoint.path
    error = checkpoint.failure or "it failed" if checkpoint.status == FAILED else None
    if error is None and checkpoint.failure is not None:
        attributes["reason"] = checkpoint.failure
    children = tuple(_task(vertex, names, start_ms, end_ms) for vertex in checkpoint.vertices)
    return JobSpan("Checkpoint", start_ms, end_ms, attributes, error, children)


def _task(vertex: CheckpointedVertex, names: Mapping[str, str], start_ms: float, end_ms: float) -> JobSpan:
    taken_ms = vertex.alignment_ms + vertex.synchronous_ms + vertex.asynchronous_ms
    attributes: dict[str, Attribute] = {
        "vertexId": vertex.vertex_id,
        "vertex": names.get(vertex.vertex_id, vertex.vertex_id),
        "acknowledgedTasks": vertex.acknowledged,
        "maxAlignmentDurationMs": vertex.alignment_ms,
        "maxSyncDurationMs": vertex.synchronous_ms,
        "maxAsyncDurationMs": vertex.asynchronous_ms,
        "fullSize": vertex.state_bytes,
        "checkpointedSize": vertex.written_bytes,
        "inFlightSize": vertex.in_flight_bytes,
    }
    return JobSpan("Checkpoint_Task", start_ms, min(start_ms + taken_ms, end_ms), attributes)
