"""The network environment of a process: creates the partitions and gates of its subtasks and connects them.

The worker side of the shuffle service (see `ShuffleEnvironment`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.errors import ClusterError, InternalError
from flowrun.graph.execution_graph import Channel, ExecutionVertex, IntermediateResultPartition, PartitionId
from flowrun.graph.execution_graph import InputGate as GateDescription
from flowrun.graph.job_graph import ResultType
from flowrun.runtime.messages import PartitionLocation, ResultPartitionId
from flowrun.runtime.network.blocking import BlockingSubpartition
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.channel import InputChannel, LocalInputChannel, OpenView
from flowrun.runtime.network.credit import ChannelCredit, GateCredit
from flowrun.runtime.network.gate import InputGate, SingleInputGate, UnionInputGate
from flowrun.runtime.network.host_folder import owned_folder, remove_owned
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.partition_files import SubpartitionPath, check_all, remove_partition
from flowrun.runtime.network.pipelined import PipelinedSubpartition
from flowrun.runtime.network.saturation import Saturation
from flowrun.runtime.network.shuffle import Locations
from flowrun.runtime.network.subpartition import Subpartition
from flowrun.runtime.timers import TimerThread

RESERVED_SLOTS_PER_SUBPARTITION = 2
"""Slots that a partition never has to share (Flink's exclusive buffers)."""

PARTITION_SLOTS = 256
"""Slots that a partition may hold: 8 MiB in flight, about five batches of 64k rows × 3 BIGINTs."""

PARTITION_SLOTS_PER_SUBPARTITION = 32

OVERDRAFT_SLOTS = 16
"""Slots beyond these for a step of a task that has begun and has more to write than was free: it would hold up its timers."""


class _Written:
    """A partition and the attempt of its producer."""

    __slots__ = ("attempt_id", "partition")

    def __init__(self, partition: ResultPartition, attempt_id: str) -> None:
        self.partition = partition
        self.attempt_id = attempt_id


class NetworkEnvironment:
    """All partitions of one job in this process. Thread-safe.

    Args:
        pool: of the process: slots for rows.
        timers: of the process.
        clock: of the process.
        spill_dir: where what is spilled goes; None: where the system says.
        saturation: tells whether the process has processor time to spare; None: nobody asks.
    """

    def __init__(
        self,
        pool: GlobalBufferPool,
        timers: TimerThread,
        clock: Clock,
        spill_dir: Path | None = None,
        saturation: Saturation | None = None,
    ) -> None:
        self._pool = pool
        self._timers = timers
        self._clock = clock
        self._saturated = (lambda _: False) if saturation is None else saturation.is_reached
        self._lock = threading.Lock()
        self._partitions: dict[PartitionId, _Written] = {}
        self._credits: list[GateCredit] = []
        self._spill_parent = spill_dir
        self._spill_dir: Path | None = None

    def create_partition(self, description: IntermediateResultPartition, attempt_id: str) -> ResultPartition:
        """See `ShuffleEnvironment.create_partition`."""
        count = description.subpartitions
        limit = max(PARTITION_SLOTS, PARTITION_SLOTS_PER_SUBPARTITION * count)
        self._release_earlier(description.id)
        pool = self._pool.create_local(RESERVED_SLOTS_PER_SUBPARTITION * count, limit, OVERDRAFT_SLOTS)
        names = [f"{description.id}.{index}" for index in range(count)]
        subpartitions: list[Subpartition] = []
        for index, name in enumerate(names):
            if description.type is ResultType.BLOCKING:
                place = SubpartitionPath(self.spill_folder(), description.id, attempt_id, index)
                subpartitions.append(BlockingSubpartition(place))
            else:
                subpartitions.append(PipelinedSubpartition(name, pool.recycle))
        partition = ResultPartition(
            str(description.id),
            subpartitions,
            pool,
            clock=self._clock,
            timers=self._timers,
            buffer_timeout_ms=description.output.buffer_timeout_ms,
            watermarks_may_wait=description.watermarks_may_wait,
            saturated=self._saturated,
        )
        with self._lock:
            self._partitions[description.id] = _Written(partition, attempt_id)
        return partition

    def create_gates(self, vertex: ExecutionVertex, batch_rows: int, locations: Locations) -> list[InputGate]:
        """See `ShuffleEnvironment.create_gates`."""
        by_input: dict[int, list[InputGate]] = {}
        for gate in vertex.gates:
            by_input.setdefault(gate.input_index, []).append(self._create_gate(gate, batch_rows, locations))
        if sorted(by_input) != list(range(len(by_input))):
            raise InternalError(f"inputs of {vertex.name} are not numbered from 0: {sorted(by_input)}")
        return [_union(by_input[index]) for index in range(len(by_input))]

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """See `ShuffleEnvironment.release_partitions`."""
        folder = self._existing_folder()
        for gone in partitions:
            with self._lock:
                written = self._partitions.get(gone.partition)
                is_here = written is not None and written.attempt_id == gone.attempt_id
                if is_here:
                    del self._partitions[gone.partition]
            if written is not None and is_here:
                written.partition.release()
            if folder is not None:
                remove_partition(folder, gone.partition, gone.attempt_id)

    def release(self, *, keep_files: bool = False) -> None:
        """See `ShuffleEnvironment.release`."""
        with self._lock:
            partitions = list(self._partitions.values())
            self._partitions.clear()
            credits_of_gates, self._credits = self._credits, []
            self._spill_dir, folder = None, self._spill_dir
        for written in partitions:
            written.partition.release(keep_files=keep_files)
        for credit in credits_of_gates:
            credit.release()
        self._remove_folder(folder, keep_files=keep_files)

    def _release_earlier(self, partition: PartitionId) -> None:
        """Drop what an earlier attempt wrote, whose readers have ended with it."""
        with self._lock:
            earlier = self._partitions.pop(partition, None)
        if earlier is not None:
            earlier.partition.release()

    def _create_gate(self, gate: GateDescription, batch_rows: int, locations: Locations) -> SingleInputGate:
        if gate.type is ResultType.BLOCKING:
            stored = (self._stored(channel, locations.get(channel.partition)) for channel in gate.channels)
            check_all([place for place in stored if place is not None])
        credit = GateCredit(self._pool, len(gate.channels))
        with self._lock:
            self._credits.append(credit)
        channels = [
            self._create_channel(described, locations.get(described.partition), own)
            for described, own in zip(gate.channels, credit.channels, strict=True)
        ]
        return SingleInputGate(
            channels,
            batch_rows,
            credit.release,
            watermarks_may_wait=gate.watermarks_may_wait,
            releases_ended=gate.type is ResultType.PIPELINED,
        )

    def _create_channel(
        self, channel: Channel, location: PartitionLocation | None, credit: ChannelCredit
    ) -> InputChannel:
        """A channel from a producer in this process; the service that reaches others does more.

        Raises:
            ClusterError: the producer is in another process.
        """
        return LocalInputChannel(str(channel.partition), self._opener(channel, location), credit)

    def _stored(self, channel: Channel, location: PartitionLocation | None) -> SubpartitionPath | None:
        """The file that a channel is about to read, if it must be there and finished."""
        with self._lock:
            written = self._partitions.get(channel.partition)
        if written is None or (location is not None and location.attempt_id != written.attempt_id):
            return None
        subpartition = written.partition.subpartitions[channel.subpartition]
        return subpartition.finished_file if isinstance(subpartition, BlockingSubpartition) else None

    def _opener(self, channel: Channel, location: PartitionLocation | None) -> OpenView:
        if location is not None and location.address:
            raise ClusterError(
                f"partition {channel.partition} is in process {location.worker} ({location.address}), to which this one has no connection"
            )
        with self._lock:
            written = self._partitions.get(channel.partition)
        if written is None:
            raise InternalError(
                f"partition {channel.partition} is read before its producer {channel.producer} is deployed"
            )
        if location is not None and location.attempt_id != written.attempt_id:
            raise InternalError(
                f"partition {channel.partition} was written by attempt {written.attempt_id}, not by {location.attempt_id}"
            )
        partition = written.partition
        return lambda listener, urgent: partition.create_view(channel.subpartition, listener, urgent)

    def spill_folder(self) -> Path:
        """See `ShuffleEnvironment.spill_folder`."""
        with self._lock:
            if self._spill_dir is None:
                self._spill_dir = self._make_folder()
            return self._spill_dir

    def _make_folder(self) -> Path:
        return owned_folder(self._spill_parent)

    def _existing_folder(self) -> Path | None:
        """Where files of the job are, if there are any."""
        return self._spill_dir

    def _remove_folder(self, folder: Path | None, *, keep_files: bool) -> None:
        if folder is not None:
            remove_owned(folder)


def _union(gates: Sequence[InputGate]) -> InputGate:
    return gates[0] if len(gates) == 1 else UnionInputGate(gates)
