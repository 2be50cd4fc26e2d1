"""What the checkpoint coordinator is told (events) and what it asks for (commands). Values only; times in epoch ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from flowrun.core.elements import CheckpointKind, CheckpointOptions
from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.state.checkpoints import SubtaskSnapshot

# ---- events


@record
class JobIsRunning:
    """Every subtask runs or has finished: checkpoints may begin.

    Attributes:
        finished: subtasks that have finished by now, beside those told by `SubtaskFinished` since the last `JobIsInterrupted`.
        attempts: subtask → the attempt that runs; acknowledgements of other attempts are foreign. Subtasks that are missing here
            are believed.
    """

    finished: frozenset[ExecutionVertexId] = frozenset()
    attempts: Mapping[ExecutionVertexId, str] = field(default_factory=dict)


@record
class JobIsInterrupted:
    """The job restarts or ends: every checkpoint under way is given up. `reason` goes to those who asked for one.

    Who has finished is forgotten: `JobIsRunning` tells it anew. Until then requests are refused. May come repeatedly.
    """

    reason: str


@record
class TimePassed:
    """The time that `WakeAt` asked for has come; late and spurious ones are harmless."""


@record
class SnapshotRequested:
    """The user wants a savepoint, or a checkpoint now (`directory` is for savepoints). Answered by `AnswerRequest`.

    With `options.stop` no checkpoint follows, and the job ends when this one is complete.
    """

    request_id: str
    options: CheckpointOptions
    directory: str | None = None


@record
class SubtaskAcknowledged:
    """A subtask has written its snapshot."""

    checkpoint_id: int
    vertex: ExecutionVertexId
    attempt_id: str
    snapshot: SubtaskSnapshot


@record
class SubtaskDeclined:
    """A subtask cannot take its snapshot, or could not write it."""

    checkpoint_id: int
    vertex: ExecutionVertexId
    attempt_id: str
    reason: str


@record
class SubtaskFinished:
    """A subtask came to its end. What it had not acknowledged needs nothing of it: its end of input counts as its barrier.

    So a subtask must not finish before all snapshots that it took are acknowledged or declined.
    """

    vertex: ExecutionVertexId


@record
class CheckpointStarted:
    """`StartCheckpoint` is carried out: hooks ran, enumerators were asked, barriers are on their way."""

    checkpoint_id: int


@record
class StartFailed:
    """`StartCheckpoint` could not be carried out."""

    checkpoint_id: int
    reason: str


@record
class CheckpointStored:
    """`StoreCheckpoint` is done: the checkpoint exists from now on. `path` is what to resume from."""

    checkpoint_id: int
    path: str


@record
class StoreFailed:
    """`StoreCheckpoint` failed: the checkpoint does not exist."""

    checkpoint_id: int
    reason: str


CheckpointEvent = (
    JobIsRunning
    | JobIsInterrupted
    | TimePassed
    | SnapshotRequested
    | SubtaskAcknowledged
    | SubtaskDeclined
    | SubtaskFinished
    | CheckpointStarted
    | StartFailed
    | CheckpointStored
    | StoreFailed
)

# ---- commands


@record
class WakeAt:
    """Send `TimePassed` at `time_ms`; replaces an earlier wish."""

    time_ms: int


@record
class StartCheckpoint:
    """Make its folder, run hooks, snapshot the enumerators, then have the running source subtasks (those without inputs) take their
    snapshots and send barriers. Answer with `CheckpointStarted` or `StartFailed`.

    Attributes:
        finished: subtasks that had finished by now.
    """

    checkpoint_id: int
    trigger_ms: int
    options: CheckpointOptions
    directory: str | None
    finished: frozenset[ExecutionVertexId]


@record
class StoreCheckpoint:
    """All subtasks have acknowledged or finished: write the metadata. Answer with `CheckpointStored` or `StoreFailed`."""

    checkpoint_id: int
    snapshots: dict[ExecutionVertexId, SubtaskSnapshot]
    finished: frozenset[ExecutionVertexId]


@record
class CompleteCheckpoint:
    """It exists: tell all subtasks and hooks, commit. `retained` are the checkpoints to keep, this one included (savepoints are not)."""

    checkpoint_id: int
    options: CheckpointOptions
    retained: tuple[int, ...]

    @property
    def is_restored_from(self) -> bool:
        """Whether a restart in this process goes back to it, so that what sinks handed over before it may be committed.

        Not so after a savepoint beside which the job goes on: it is the user's. A restart goes back to the checkpoint before it and
        writes those rows again (Flink's FLIP-203). So tell nobody of such a savepoint.
        """
        return self.options.kind is CheckpointKind.CHECKPOINT or self.options.stop


@record
class AbortCheckpoint:
    """It will never exist: tell all subtasks (also those that have not acknowledged), discard its folder and what was acknowledged.

    If its `StoreCheckpoint` is still being carried out, discard after that, and before anything is restored: one queue of I/O does.
    The `CheckpointStored` that may still come is ignored.
    """

    checkpoint_id: int
    reason: str
    snapshots: tuple[SubtaskSnapshot, ...] = ()


@record
class DiscardSnapshot:
    """A late or foreign acknowledgement: delete what it wrote into the folder of that checkpoint; nothing names those files."""

    checkpoint_id: int
    snapshot: SubtaskSnapshot


@record
class AnswerRequest:
    """Answer a request for a snapshot: with the path of the finished snapshot, or with the reason why there is none."""

    request_id: str
    path: str | None
    failure: str | None = None


@record
class FailJob:
    """More checkpoints failed in a row than are tolerated."""

    reason: str


CheckpointCommand = (
    WakeAt
    | StartCheckpoint
    | StoreCheckpoint
    | CompleteCheckpoint
    | AbortCheckpoint
    | DiscardSnapshot
    | AnswerRequest
    | FailJob
)


@record
class CheckpointFigures:
    """One completed checkpoint, for status and the user. Durations in ms."""

    checkpoint_id: int
    kind: CheckpointKind
    path: str
    triggered_ms: int
    duration_ms: float
    state_bytes: int
    written_bytes: int
    max_synchronous_ms: float
    max_alignment_ms: float


@record
class CheckpointsStatus:
    """Checkpoints of a job at one moment."""

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    last: CheckpointFigures | None = None
    last_failure: str | None = None
    history: tuple[CheckpointFigures, ...] = field(default_factory=tuple)
    """The last 10 completed ones, oldest first."""
