"""Subtasks that do nothing but count: they read, count, pass on, snapshot and end as the real ones tell a job master that they do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from flowrun.api.state import OperatorState
from flowrun.core.elements import CheckpointBarrier
from flowrun.graph.execution_graph import ExecutionVertex, PartitionId
from flowrun.runtime.lifecycle import ExecutionState
from flowrun.runtime.messages import CheckpointAcknowledgement, TaskDeployment, TaskFailure
from flowrun.state.checkpoints import OperatorSubtaskState, SubtaskSnapshot
from tests.runtime.simulation.virtual_time import Process

S = ExecutionState
Item = int | CheckpointBarrier | None
"""So many rows, a barrier, or the end."""


@dataclass(frozen=True)
class ChannelId:
    """Between two attempts: what the producer writes into one subpartition."""

    producer_attempt: str
    partition: PartitionId
    subpartition: int


@dataclass
class Counted:
    """The state of a subtask: what it has counted by now; of a source what it has emitted. `sent` decides where the next rows go."""

    rows: int = 0
    sent: int = 0


@dataclass
class Records:
    """What really happened in one job, whatever the job master believes."""

    source_rows: int | None
    """Of each source subtask; None: it waits for rows until it is stopped."""
    acknowledged: dict[tuple[int, str], Counted] = field(default_factory=dict)
    """Checkpoint and attempt → its state there."""
    finished: dict[str, Counted] = field(default_factory=dict)
    """Of attempts that came to their end."""
    stopped: bool = False


class Surroundings(Protocol):
    """What a subtask needs of its worker."""

    process: Process

    def send(self, channel: ChannelId, item: Item) -> None: ...

    def update(self, task: Task, state: ExecutionState, failure: TaskFailure | None = None) -> None: ...

    def acknowledge(self, acknowledgement: CheckpointAcknowledgement) -> None: ...


class Task:
    """One attempt of a subtask."""

    def __init__(
        self,
        worker: Surroundings,
        deployment: TaskDeployment,
        vertex: ExecutionVertex,
        counted: Counted,
        records: Records,
        pace_ms: float,
    ) -> None:
        self.worker = worker
        self.attempt = deployment.attempt_id
        self.vertex = vertex
        self.state = S.DEPLOYING
        self.is_stuck = False
        self._records = records
        self._pace_ms = pace_ms
        self._process = worker.process
        self._cancelled = False
        self._stopping = False
        self._aborted: set[int] = set()
        self._uploads = 0
        self._at_end = False
        self._held_by: int | None = None
        """The savepoint that it stopped at: it ends when that is complete."""
        self._queues: dict[ChannelId, deque[Item]] = {}
        self._blocked: set[ChannelId] = set()
        self._ended: set[ChannelId] = set()
        self._barrier: CheckpointBarrier | None = None
        attempts = {location.partition: location.attempt_id for location in deployment.inputs}
        for gate in vertex.gates:
            for c in gate.channels:
                self._queues[ChannelId(attempts[c.partition], c.partition, c.subpartition)] = deque()
        self.counted = counted
        self._is_due = False

    @property
    def channels(self) -> list[ChannelId]:
        """That it reads."""
        return list(self._queues)

    @property
    def is_alive(self) -> bool:
        return not self.state.is_terminal

    def start(self) -> None:
        self._process.soon(lambda: self._reach(S.INITIALIZING), 5)

    def cancel(self) -> None:
        self._cancelled = True
        if not self.is_stuck:
            self._process.soon(self._end_cancelled, 5)

    def stop(self) -> None:
        self._records.stopped = True
        self._stopping = True

    def fail(self, error: Exception) -> None:
        if self.is_alive and not self._cancelled:
            self._tell(S.FAILED, TaskFailure(error))

    def trigger(self, barrier: CheckpointBarrier) -> None:
        if self.state is S.RUNNING and not self._cancelled:
            self._snapshot(barrier)

    def abort(self, checkpoint_id: int) -> None:
        self._aborted.add(checkpoint_id)
        if self._held_by == checkpoint_id:
            self._held_by = None
            self._go_on()
        if self._barrier is not None and self._barrier.checkpoint_id == checkpoint_id:
            self._release()

    def complete(self, checkpoint_id: int) -> None:
        if self._held_by == checkpoint_id:
            self._held_by = None
            self._end()

    def receive(self, channel: ChannelId, item: Item) -> None:
        if self.is_alive:
            self._queues[channel].append(item)
            self._go_on()

    def _reach(self, state: ExecutionState) -> None:
        if not self.is_alive or self._cancelled:
            return
        self._tell(state)
        if state is S.INITIALIZING:
            self._process.soon(lambda: self._reach(S.RUNNING), 5)
        else:
            self._go_on()

    def _end_cancelled(self) -> None:
        if self.is_alive:
            self._tell(S.CANCELED)

    def _tell(self, state: ExecutionState, failure: TaskFailure | None = None) -> None:
        self.state = state
        self.worker.update(self, state, failure)

    # Rows.

    def _go_on(self) -> None:
        if not self._is_due and self.state is S.RUNNING and self._held_by is None and not self._at_end:
            self._is_due = True
            self._process.soon(self._work, self._pace_ms)

    def _work(self) -> None:
        self._is_due = False
        if self.state is not S.RUNNING or self._cancelled or self._held_by is not None or self._at_end:
            return
        if self._queues:
            self._read()
        else:
            self._emit()

    def _emit(self) -> None:
        if self._records.source_rows is None and not self._stopping:
            return
        left = 0 if self._stopping else (self._records.source_rows or 0) - self.counted.rows
        if left <= 0:
            self._end()
            return
        self.counted.rows += 1
        self._send_rows()
        self._go_on()

    def _read(self) -> None:
        for channel, queue in self._queues.items():
            while queue and channel not in self._blocked:
                item = queue.popleft()
                if item is None:
                    self._ended.add(channel)
                elif isinstance(item, int):
                    for _ in range(item):
                        self.counted.rows += 1
                        self._send_rows()
                else:
                    self._align(channel, item)
        self._check_aligned()
        if len(self._ended) == len(self._queues) and self._held_by is None:
            self._end()

    def _align(self, channel: ChannelId, barrier: CheckpointBarrier) -> None:
        if barrier.checkpoint_id in self._aborted:
            return
        if self._barrier is not None and self._barrier.checkpoint_id != barrier.checkpoint_id:
            if barrier.checkpoint_id < self._barrier.checkpoint_id:
                return
            self._decline(self._barrier.checkpoint_id)
            self._release()
        self._barrier = barrier
        self._blocked.add(channel)

    def _check_aligned(self) -> None:
        if self._barrier is not None and len(self._blocked | self._ended) == len(self._queues):
            barrier = self._barrier
            self._release()
            self._snapshot(barrier)

    def _release(self) -> None:
        """Read on from channels that waited for a barrier."""
        self._barrier = None
        self._blocked.clear()
        self._go_on()

    def _snapshot(self, barrier: CheckpointBarrier) -> None:
        number, state = barrier.checkpoint_id, Counted(self.counted.rows, self.counted.sent)
        for partition in self.vertex.partitions:
            for subpartition in range(partition.subpartitions):
                self.worker.send(ChannelId(self.attempt, partition.id, subpartition), barrier)
        if barrier.options.stop:
            self._held_by = number
        self._uploads += 1
        operator = self.vertex.job_vertex.operators[0].operator_id

        def acknowledge() -> None:
            self._uploads -= 1
            if not self.is_alive:
                return
            self._records.acknowledged[number, self.attempt] = state
            whose = OperatorState(pa.table({"attempt": [self.attempt]}))
            snapshot = SubtaskSnapshot((OperatorSubtaskState(operator, operator={"whose": whose}),))
            self.worker.acknowledge(CheckpointAcknowledgement(self.vertex.id, self.attempt, number, snapshot))
            self._finish()

        self._process.soon(acknowledge, 20)  # an upload

    def _decline(self, number: int) -> None:
        self.worker.acknowledge(
            CheckpointAcknowledgement(
                self.vertex.id, self.attempt, number, None, "a newer one came before it was aligned"
            )
        )

    def _send_rows(self) -> None:
        for partition in self.vertex.partitions:
            chosen = self.counted.sent % partition.subpartitions
            self.worker.send(ChannelId(self.attempt, partition.id, chosen), 1)
        self.counted.sent += 1

    def _end(self) -> None:
        """It has come to the end of its input: it finishes when its snapshots are written."""
        self._at_end = True
        self._finish()

    def _finish(self) -> None:
        if not self._at_end or self._uploads or self._cancelled or self.state is not S.RUNNING:
            return
        for partition in self.vertex.partitions:
            for subpartition in range(partition.subpartitions):
                self.worker.send(ChannelId(self.attempt, partition.id, subpartition), None)
        self._records.finished[self.attempt] = Counted(self.counted.rows, self.counted.sent)
        self._tell(S.FINISHED)
