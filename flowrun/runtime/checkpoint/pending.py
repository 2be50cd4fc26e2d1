"""One checkpoint under way, and what is remembered of those that have ended."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from enum import Enum

from flowrun.core.elements import CheckpointKind, CheckpointOptions
from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.runtime.checkpoint.events import CheckpointFigures, CheckpointsStatus
from flowrun.runtime.checkpoint.records import (
    ABANDONED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    CheckpointRecord,
    vertex_records,
)
from flowrun.state.checkpoints import SubtaskSnapshot

HISTORY = 10
"""How many completed checkpoints a status shows."""

RECORDED = 100
"""Of how many ended checkpoints it is known what they took."""

REMEMBERED = 100
"""How many ended checkpoints are known, for late acknowledgements; of older ones they are ignored."""


class Phase(Enum):
    """How far a checkpoint is."""

    STARTING = "starting"
    COLLECTING = "collecting"
    STORING = "storing"


@record(frozen=False)
class PendingCheckpoint:
    """A checkpoint or savepoint between its `StartCheckpoint` and its end.

    Attributes:
        started: elapsed time of the trigger, ms.
        deadline: elapsed time at which it is given up, ms.
        request_id: who asked for it; None: periodic.
        missing: subtasks that have neither acknowledged nor finished.
        snapshots: of those that have acknowledged.
        attempts: which attempts those were.
        finished: subtasks that finished without a snapshot.
    """

    checkpoint_id: int
    trigger_ms: int
    started: int
    deadline: int
    options: CheckpointOptions
    request_id: str | None
    missing: set[ExecutionVertexId]
    finished: set[ExecutionVertexId]
    phase: Phase = Phase.STARTING
    snapshots: dict[ExecutionVertexId, SubtaskSnapshot] = field(default_factory=dict)
    attempts: dict[ExecutionVertexId, str] = field(default_factory=dict)

    @property
    def is_savepoint(self) -> bool:
        """Whether the user owns it."""
        return self.options.kind is CheckpointKind.SAVEPOINT

    @property
    def is_subsumable(self) -> bool:
        """Whether a newer completed checkpoint makes it superfluous."""
        return not self.is_savepoint and not self.options.stop

    @property
    def is_ready(self) -> bool:
        """Whether all that is needed is there, and only storing is left."""
        return self.phase is Phase.COLLECTING and not self.missing

    def acknowledge(self, vertex: ExecutionVertexId, attempt_id: str, snapshot: SubtaskSnapshot) -> bool:
        """Take a snapshot; False: it is not needed. A snapshot counts more than having finished: it was taken before."""
        if vertex in self.snapshots or self.phase is Phase.STORING:
            return False
        self.missing.discard(vertex)
        self.finished.discard(vertex)
        self.snapshots[vertex] = snapshot
        self.attempts[vertex] = attempt_id
        return True

    def finish(self, vertex: ExecutionVertexId) -> None:
        """A subtask has finished."""
        if vertex in self.missing:
            self.missing.discard(vertex)
            self.finished.add(vertex)

    def figures(self, path: str, elapsed_ms: int) -> CheckpointFigures:
        """What it took."""
        each = [s.figures for s in self.snapshots.values()]
        return CheckpointFigures(
            self.checkpoint_id,
            self.options.kind,
            path,
            self.trigger_ms,
            float(elapsed_ms - self.started),
            state_bytes=sum(f.state_bytes for f in each),
            written_bytes=sum(f.written_bytes for f in each),
            max_synchronous_ms=max((f.synchronous_ms for f in each), default=0.0),
            max_alignment_ms=max((f.alignment_ms for f in each), default=0.0),
        )

    def record(
        self, elapsed_ms: int, status: str = IN_PROGRESS, *, path: str | None = None, failure: str | None = None
    ) -> CheckpointRecord:
        """How it stands, or ended, for people. Any thread: what the job master changes meanwhile is copied first."""
        snapshots, subtasks = self.snapshots.copy(), len(self.missing) + len(self.snapshots) + len(self.finished)
        return CheckpointRecord(
            self.checkpoint_id,
            self.options.kind.value,
            status,
            self.trigger_ms,
            float(elapsed_ms - self.started),
            subtasks,
            len(snapshots) + len(self.finished),
            path,
            failure,
            vertex_records(snapshots),
        )


@record
class CompletedCheckpoint:
    """What a restart goes back to."""

    checkpoint_id: int
    path: str


class CheckpointHistory:
    """Checkpoints that have ended.

    Args:
        retain: how many completed checkpoints are kept.
        retained: those that are kept at the beginning.
    """

    def __init__(self, retain: int, retained: tuple[int, ...]) -> None:
        self._retain = retain
        self.retained = tuple(sorted(retained))
        self.latest: CompletedCheckpoint | None = None
        self.completed = 0
        self.failed = 0
        self.last_failure: str | None = None
        self._figures: deque[CheckpointFigures] = deque(maxlen=HISTORY)
        self.records: tuple[CheckpointRecord, ...] = ()
        """The last `RECORDED` ones, in the order in which they ended."""
        self._accepted: dict[int, dict[ExecutionVertexId, str]] = {}
        """Ended checkpoint → whose snapshots it names; none if it was aborted."""

    def complete(self, pending: PendingCheckpoint, path: str, elapsed_ms: int) -> None:
        """It exists."""
        self.completed += 1
        self._figures.append(pending.figures(path, elapsed_ms))
        self._keep(pending.record(elapsed_ms, COMPLETED, path=path))
        if not pending.is_savepoint:
            self.retained = tuple(sorted({*self.retained, pending.checkpoint_id})[-self._retain :])
        if not pending.is_savepoint or pending.options.stop:
            self.latest = CompletedCheckpoint(pending.checkpoint_id, path)
        self._remember(pending.checkpoint_id, pending.attempts)

    def abort(self, pending: PendingCheckpoint, reason: str, elapsed_ms: int, *, failed: bool) -> None:
        """It will never exist. `failed`: whether that is worth telling."""
        self._keep(pending.record(elapsed_ms, FAILED if failed else ABANDONED, failure=reason))
        if failed:
            self.failed += 1
            self.last_failure = reason
        self._remember(pending.checkpoint_id, {})

    def is_stray(self, checkpoint_id: int, vertex: ExecutionVertexId, attempt_id: str) -> bool:
        """Whether this attempt's snapshot of an ended checkpoint is known not to be named by it."""
        accepted = self._accepted.get(checkpoint_id)
        return accepted is not None and accepted.get(vertex) != attempt_id

    def status(self, in_progress: int) -> CheckpointsStatus:
        """For people."""
        last = self._figures[-1] if self._figures else None
        return CheckpointsStatus(
            self.completed, self.failed, in_progress, last, self.last_failure, tuple(self._figures)
        )

    def _keep(self, ended: CheckpointRecord) -> None:
        self.records = (*self.records, ended)[-RECORDED:]

    def _remember(self, checkpoint_id: int, accepted: dict[ExecutionVertexId, str]) -> None:
        self._accepted[checkpoint_id] = accepted
        if len(self._accepted) > REMEMBERED:
            del self._accepted[min(self._accepted)]
