"""What a job tells its users: how it stands at one moment, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.runtime.checkpoint.events import CheckpointsStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState


@record
class VertexStatus:
    """One job vertex at one moment; sums over its subtasks unless said otherwise.

    Attributes:
        vertex_id: as in the job graph.
        name: the chain's name.
        parallelism: number of subtasks.
        states: execution state → number of subtasks.
        records_in: rows that entered; for a source the rows that its head emitted.
        records_out: rows that left to other vertices; for a vertex without outputs the rows that entered its last operator.
        bytes_in: bytes received from other vertices.
        bytes_out: bytes sent to other vertices.
        watermark: event time of the slowest subtask, ms; None before the first watermark.
        watermark_lag_ms: processing time − watermark; None without a watermark, and at the end of input.
        busy_ms_per_s: mean over the subtasks in about the last second.
        idle_ms_per_s: the same for waiting on input.
        back_pressured_ms_per_s: the same for waiting on room downstream; `max_back_pressured_ms_per_s` is of the worst subtask.
        latency_ms: source → (median, 99th percentile) of the latency markers that ended here, ms.
        counters: operator name → counter → value, such as dropped late rows.
    """

    vertex_id: str
    name: str
    parallelism: int
    states: Mapping[ExecutionState, int]
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    watermark: int | None = None
    watermark_lag_ms: int | None = None
    busy_ms_per_s: float = 0.0
    idle_ms_per_s: float = 0.0
    back_pressured_ms_per_s: float = 0.0
    max_back_pressured_ms_per_s: float = 0.0
    latency_ms: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@record
class JobStatus:
    """A job at one moment. `at_ns` is monotonic: two statuses give rates."""

    job_id: str
    name: str
    state: JobState
    at_ns: int
    running_ms: int
    vertices: tuple[VertexStatus, ...]
    checkpoints: CheckpointsStatus | None = None
    """None if the job takes none."""
    restarts: int = 0
    last_failure: str | None = None
    """What the last restart is due to."""
    slots: int = 0
    """How many slots it has."""
    waits_for: str | None = None
    """What the job, or a stage of it, waits for before it can run, such as `slots: needs 2 slots, 1 of 2 are free …`."""


@record
class JobResult:
    """How a job ended: finished or cancelled (a failed one raises).

    Attributes:
        job_id: the run.
        name: of the job.
        state: FINISHED or CANCELED.
        duration_ms: from deployment to the end.
        vertices: the last status of every vertex.
        accumulators: operator name → counter → sum over all subtasks.
        problems: what went wrong while a cancelled job was taken down.
        notes: operator name → what users are to hear of it, such as the first row that was left out.
    """

    job_id: str
    name: str
    state: JobState
    duration_ms: float
    vertices: tuple[VertexStatus, ...]
    accumulators: Mapping[str, Mapping[str, int]]
    problems: tuple[str, ...] = ()
    checkpoints: CheckpointsStatus | None = None
    restarts: int = 0
    stopped_at: str | None = None
    """Path of the checkpoint or savepoint with which the job was stopped."""
    notes: Mapping[str, str] = field(default_factory=dict)
