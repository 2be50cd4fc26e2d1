"""The checkpoints of one subtask: from a barrier to the acknowledgement, and what the job master then says about it.

The synchronous part runs on the subtask's thread and only collects references: operators flush what must not be remembered, the
barrier is sent, operators say what they remember. Files are written on upload threads. The acknowledgement follows when the state is
written and everything in flight is known: the rows of channels whose barrier comes later, and what the barrier overtakes in the
subtask's own outputs, now or when the time for its alignment is up. After Apache Flink's `SubtaskCheckpointCoordinatorImpl`.

An exception in the synchronous part declines the checkpoint; how many of those a job tolerates is the coordinator's business. The
operator that raised must be able to go on, whatever it had flushed by then. If it had emitted rows, the task fails instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import Clock
from flowrun.core.elements import Alignment
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionVertex
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.messages import CheckpointAcknowledgement, JobMasterGateway
from flowrun.runtime.network.barriers import TakeSnapshot, barrier_to_send, overtaking_time_ms
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.subpartition import InFlightElement
from flowrun.runtime.network.valve import ChannelState
from flowrun.runtime.task.chain import OperatorChain, SnapshotDeclined
from flowrun.runtime.task.in_flight import channel_places, compact, in_flight_bytes
from flowrun.runtime.task.snapshot_in_progress import SnapshotInProgress
from flowrun.runtime.task.uploads import TaskUploads
from flowrun.runtime.timers import TimerThread
from flowrun.state.checkpoints import (
    ChannelProgress,
    InFlight,
    OperatorSubtaskState,
    SnapshotFigures,
    StateFile,
    SubtaskSnapshot,
    rows_of,
)
from flowrun.state.key_groups import key_group_range
from flowrun.state.storage.contract import SnapshotStorage, SnapshotWriter


@record
class SnapshotEnvironment:
    """What the snapshots of a subtask need.

    `wake` makes the subtask's thread run what is due, `fail` makes it raise an error. Both may be called from any thread.
    """

    vertex: ExecutionVertex
    attempt_id: str
    chain: OperatorChain
    partitions: Sequence[ResultPartition]
    storage: SnapshotStorage | None
    uploads: Executor | None
    job_master: JobMasterGateway
    clock: Clock
    timers: TimerThread
    wake: Callable[[], None]
    fail: Callable[[Exception], None]


class SubtaskSnapshots:
    """Takes, writes and acknowledges snapshots. Methods are for the subtask's thread."""

    def __init__(self, environment: SnapshotEnvironment) -> None:
        self._environment = environment
        self._vertex = environment.vertex
        self._clock = environment.clock
        self._channels = channel_places(environment.vertex)
        self._uploads = TaskUploads(environment.uploads, environment.wake, environment.fail)
        self._in_progress: dict[int, SnapshotInProgress] = {}
        self._writers: dict[int, SnapshotWriter] = {}
        self._known_files: set[str] = set()
        """Paths that the last snapshot named."""
        self._last = -1

    @property
    def is_idle(self) -> bool:
        """Whether every snapshot that was begun is acknowledged, declined or void, and nothing is being written."""
        return not self._in_progress and self._uploads.is_idle

    def take(self, action: TakeSnapshot, channels: Sequence[ChannelState], *, finished: bool) -> bool:
        """Do the synchronous part; False if the snapshot was declined or is an old one.

        Args:
            action: what the barrier handler says.
            channels: what the valves know of each channel.
            finished: operators are at their end already (a stop that drains): they have flushed everything.
        """
        chain, checkpoint_id = self._environment.chain, action.barrier.checkpoint_id
        if checkpoint_id <= self._last:
            return False
        self._last = checkpoint_id
        aligned_ns = self._clock.monotonic_ns()
        try:
            if not finished:
                chain.prepare_snapshot(checkpoint_id)
            started_ns = self._clock.monotonic_ns()
            captured = chain.snapshot_state(checkpoint_id)
            captured_ns = self._clock.monotonic_ns()
        except SnapshotDeclined as declined:
            self._abandon(checkpoint_id)
            self._decline(checkpoint_id, str(declined))
            return False
        begun = self._begin(action)
        begun.operators, begun.captured_ns = captured, captured_ns
        if begun.barrier.options.alignment is Alignment.UNALIGNED:
            begun.progress = self._progress(channels)
        begun.alignment_ms = (aligned_ns - action.since_ns) / 1e6
        begun.synchronous_ms = (captured_ns - started_ns) / 1e6
        self._overtake_later(begun)
        self._uploads.submit(partial(self._upload, begun))
        return True

    def record(self, checkpoint_id: int, channel: int, element: InFlightElement) -> None:
        """An element that was in flight to this subtask."""
        begun = self._in_progress.get(checkpoint_id)
        if begun is not None:
            begun.record(channel, element)

    def stop_recording(self, checkpoint_id: int, channel: int) -> None:
        """Everything in flight on a channel is known."""
        begun = self._in_progress.get(checkpoint_id)
        if begun is not None:
            begun.stop_recording(channel, self._clock.monotonic_ns())

    def give_up(self, checkpoint_id: int, reason: str | None) -> None:
        """There will be no snapshot of a checkpoint; decline it for `reason`, if there is one."""
        self._last = max(self._last, checkpoint_id)
        self._abandon(checkpoint_id)
        if reason is not None:
            self._decline(checkpoint_id, reason)

    def complete(self, checkpoint_id: int) -> None:
        """A checkpoint exists: its files may be referenced, operators may commit."""
        self._uploads.submit(partial(self._completed, checkpoint_id))
        self._environment.chain.notify_checkpoint(checkpoint_id, complete=True)

    def abort(self, checkpoint_id: int) -> None:
        """A checkpoint will never exist."""
        self._abandon(checkpoint_id)
        self._environment.chain.notify_checkpoint(checkpoint_id, complete=False)

    def close(self) -> None:
        """Give up what is under way; nothing is written or acknowledged after the return. Idempotent."""
        self._uploads.close()
        for checkpoint_id in list(self._in_progress):
            self._abandon(checkpoint_id)

    # ---- the synchronous part

    def _begin(self, action: TakeSnapshot) -> SnapshotInProgress:
        """Send the barrier, and collect what it overtakes."""
        barrier = barrier_to_send(action.barrier, self._clock)
        partitions = self._environment.partitions
        outputs = sum(len(p.subpartitions) for p in partitions)
        begun = SnapshotInProgress(barrier, action.recorded, outputs, action.since_ns, self._when_complete)
        self._in_progress[barrier.checkpoint_id] = begun
        for position, partition in enumerate(partitions):
            partition.broadcast_barrier(barrier, partial(begun.settle, position))
        return begun

    def _overtake_later(self, begun: SnapshotInProgress) -> None:
        """An aligned barrier that is still queued when its time is up overtakes then, whatever this subtask is doing."""
        due_ms = overtaking_time_ms(begun.barrier)
        if due_ms is None or not self._environment.partitions:
            return

        def overtake() -> None:
            if not begun.void:
                for partition in self._environment.partitions:
                    partition.overtake(begun.checkpoint_id)

        begun.timer = self._environment.timers.at(due_ms, overtake)

    def _progress(self, channels: Sequence[ChannelState]) -> tuple[ChannelProgress, ...]:
        return tuple(
            ChannelProgress(
                place.data_set_id, place.producer, self._vertex.subtask, state.watermark, state.idle, state.aligned
            )
            for place, state in zip(self._channels, channels, strict=True)
        )

    def _abandon(self, checkpoint_id: int) -> None:
        begun = self._in_progress.pop(checkpoint_id, None)
        if begun is not None:
            begun.void = True
            if begun.timer is not None:
                begun.timer.cancel()
            # The coordinator discards what was written for nothing, whenever it hears of it.
            self._uploads.submit(lambda: self._acknowledge(begun) if begun.states else None)

    def _decline(self, checkpoint_id: int, reason: str) -> None:
        self._environment.job_master.acknowledge_checkpoint(
            CheckpointAcknowledgement(self._vertex.id, self._environment.attempt_id, checkpoint_id, None, reason)
        )

    # ---- the asynchronous part, on upload threads

    def _upload(self, begun: SnapshotInProgress) -> None:
        try:
            for position, snapshot in enumerate(begun.operators):
                if begun.void or self._uploads.is_closed:
                    return
                if not snapshot.is_empty:
                    begun.states.append(self._write(position, begun, snapshot))
        except Exception as error:
            if not begun.void:
                self._decline(begun.checkpoint_id, describe_error(error))
            begun.void = True
            self._in_progress.pop(begun.checkpoint_id, None)
        else:
            begun.part_done()
        finally:
            begun.operators = ()

    def _write(self, position: int, begun: SnapshotInProgress, snapshot: OperatorSnapshot) -> OperatorSubtaskState:
        vertex = self._vertex.job_vertex
        operator = vertex.operators[position]
        if self._environment.storage is None:
            raise StateError(
                f"'{operator.name}' has state, but the job has nowhere to keep it", hint="set checkpoint.dir"
            )
        if position not in self._writers:
            groups = key_group_range(self._vertex.subtask, vertex.parallelism, vertex.max_parallelism)
            self._writers[position] = self._environment.storage.writer(
                operator.operator_id, operator.name, self._vertex.subtask, groups
            )
        options = begun.barrier.options
        return self._writers[position].write(begun.checkpoint_id, options.target, options.kind, snapshot)

    def _completed(self, checkpoint_id: int) -> None:
        for writer in self._writers.values():
            writer.completed(checkpoint_id)

    def _when_complete(self, begun: SnapshotInProgress) -> None:
        self._uploads.submit(partial(self._acknowledge, begun))

    def _acknowledge(self, begun: SnapshotInProgress) -> None:
        if begun.is_acknowledged:
            return
        begun.is_acknowledged = True
        if begun.timer is not None:
            begun.timer.cancel()
        in_flight = () if begun.void else self._in_flight(begun)
        in_flight_size = sum(in_flight_bytes(i.elements) for i in in_flight)
        try:
            in_flight = self._write_in_flight(begun, in_flight)
        except Exception as error:
            self._decline(begun.checkpoint_id, describe_error(error))
            begun.void = True
            in_flight = ()  # what was written of the state is named all the same: it is to be discarded
        snapshot = SubtaskSnapshot(tuple(begun.states), in_flight, begun.progress)
        files = {f.path: f for f in snapshot.files}
        snapshot = replace(snapshot, figures=self._figures(begun, files, in_flight_size))
        self._known_files = set(files)
        self._environment.job_master.acknowledge_checkpoint(
            CheckpointAcknowledgement(self._vertex.id, self._environment.attempt_id, begun.checkpoint_id, snapshot)
        )
        self._in_progress.pop(begun.checkpoint_id, None)

    def _in_flight(self, begun: SnapshotInProgress) -> tuple[InFlight, ...]:
        subtask = self._vertex.subtask
        received = [
            InFlight(self._channels[c].data_set_id, self._channels[c].producer, subtask, True, compact(elements))
            for c, elements in sorted(begun.recorded.items())
            if elements
        ]
        sent = [
            InFlight(
                planned.id.data_set_id, subtask, planned.consumers[channel].vertex.subtask, False, compact(elements)
            )
            for (position, channel), elements in sorted(begun.overtaken.items())
            for planned in (self._vertex.partitions[position],)
        ]
        return (*received, *sent)

    def _write_in_flight(self, begun: SnapshotInProgress, in_flight: tuple[InFlight, ...]) -> tuple[InFlight, ...]:
        """Put the rows into files: the job master gets only their places."""
        if not any(rows_of(i.elements) for i in in_flight):
            return in_flight
        if self._environment.storage is None:
            raise StateError(
                f"rows were in flight to or from {self._vertex.name}, but the job has nowhere to keep them",
                hint="set checkpoint.dir",
            )
        return self._environment.storage.write_in_flight(begun.barrier.options.target, in_flight)

    def _figures(self, begun: SnapshotInProgress, files: dict[str, StateFile], in_flight: int) -> SnapshotFigures:
        return SnapshotFigures(
            alignment_ms=begun.alignment_ms,
            synchronous_ms=begun.synchronous_ms,
            asynchronous_ms=(self._clock.monotonic_ns() - begun.captured_ns) / 1e6,
            written_bytes=sum(f.size for path, f in files.items() if path not in self._known_files),
            state_bytes=sum(f.size for f in files.values()),
            in_flight_bytes=in_flight,
        )
