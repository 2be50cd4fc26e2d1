"""The exchanges of one job in a process that others read from, and that reads from others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.errors import ClusterError
from flowrun.graph.execution_graph import Channel, IntermediateResultPartition, PartitionId
from flowrun.runtime.messages import PartitionLocation
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.channel import InputChannel
from flowrun.runtime.network.credit import ChannelCredit
from flowrun.runtime.network.environment import NetworkEnvironment
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.remote.receiver import ChannelOrigin, DataConnection, RemoteInputChannel
from flowrun.runtime.network.remote.registry import PartitionKey, PartitionRegistry
from flowrun.runtime.network.remote.wire import PartitionRequest
from flowrun.runtime.timers import TimerThread


class ConnectedEnvironment(NetworkEnvironment):
    """A `ShuffleEnvironment`: channels are local where the producer runs in this process, and remote elsewhere. Thread-safe.

    Args:
        job_id: the run of the job.
        worker: name of this process.
        registry: partitions of this process that others may read.
        connect: address of a data server → connection to it.
        pool: buffers of the process.
        timers: of the process.
        clock: of the process.
        spill_dir: parent folder of blocking partitions.
    """

    def __init__(
        self,
        job_id: str,
        worker: str,
        registry: PartitionRegistry,
        connect: Callable[[str], DataConnection],
        pool: GlobalBufferPool,
        timers: TimerThread,
        clock: Clock,
        spill_dir: Path | None = None,
    ) -> None:
        super().__init__(pool, timers, clock, spill_dir)
        self._job_id = job_id
        self._worker = worker
        self._registry = registry
        self._connect = connect
        self._keys: dict[PartitionId, PartitionKey] = {}
        self._key_lock = threading.Lock()

    def create_partition(self, description: IntermediateResultPartition, attempt_id: str) -> ResultPartition:
        """See `ShuffleEnvironment.create_partition`."""
        partition = super().create_partition(description, attempt_id)
        key = PartitionKey(self._job_id, description.id, attempt_id)
        with self._key_lock:
            self._keys[description.id] = key
        self._registry.add(key, partition)
        return partition

    def release_partitions(self, partitions: Sequence[PartitionId]) -> None:
        """See `ShuffleEnvironment.release_partitions`."""
        with self._key_lock:
            gone = [key for p in partitions if (key := self._keys.pop(p, None)) is not None]
        for key in gone:
            self._registry.remove(key)
        super().release_partitions(partitions)

    def release(self) -> None:
        """See `ShuffleEnvironment.release`."""
        with self._key_lock:
            gone, self._keys = list(self._keys.values()), {}
        for key in gone:
            self._registry.remove(key)
        super().release()

    def _create_channel(
        self, channel: Channel, location: PartitionLocation | None, credit: ChannelCredit
    ) -> InputChannel:
        if location is None or location.worker == self._worker:
            known = None if location is None else replace(location, address="")
            return super()._create_channel(channel, known, credit)
        if not location.address:
            raise ClusterError(
                f"worker {location.worker}, which partition {channel.partition} is in, is not there any more"
            )
        request = PartitionRequest(self._job_id, channel.partition, location.attempt_id, channel.subpartition, 0)
        origin = ChannelOrigin(f"{channel.producer} in worker {location.worker}", request)
        return RemoteInputChannel(origin, partial(self._connect, location.address), credit, self._timers, self._clock)
