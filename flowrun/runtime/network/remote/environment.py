"""The exchanges of one job in a process that others read from, and that reads from others."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import ClusterError, FlowrunError, PartitionLostError
from flowrun.graph.execution_graph import Channel, IntermediateResultPartition, PartitionId
from flowrun.runtime.messages import PartitionLocation, ResultPartitionId
from flowrun.runtime.network.blocking import StoredPartition
from flowrun.runtime.network.buffer_pool import GlobalBufferPool
from flowrun.runtime.network.channel import InputChannel, LocalInputChannel
from flowrun.runtime.network.credit import ChannelCredit
from flowrun.runtime.network.environment import NetworkEnvironment
from flowrun.runtime.network.host_folder import HostFolder
from flowrun.runtime.network.partition import ResultPartition
from flowrun.runtime.network.partition_files import SubpartitionPath, read_items
from flowrun.runtime.network.remote.receiver import ChannelOrigin, DataConnection, RemoteInputChannel
from flowrun.runtime.network.remote.registry import PartitionKey, PartitionRegistry
from flowrun.runtime.network.remote.wire import PartitionRequest
from flowrun.runtime.network.saturation import Saturation
from flowrun.runtime.timers import TimerThread


@record
class JobPlace:
    """A job in a process.

    Attributes:
        job_id: the run of the job.
        worker: name of the process.
        host_folder: where files of blocking partitions outlive the process; None: they do not.
    """

    job_id: str
    worker: str
    host_folder: HostFolder | None = None


class ConnectedEnvironment(NetworkEnvironment):
    """A `ShuffleEnvironment`. Thread-safe.

    Channels are local where the producer runs in this process, or has left files on this host, and remote elsewhere.

    Args:
        place: which job, and where.
        registry: partitions of this process that others may read.
        connect: address of a data server → connection to it.
        pool: buffers of the process.
        timers: of the process.
        clock: of the process.
        spill_dir: parent folder of what is spilled, if nothing outlives the process.
    """

    def __init__(
        self,
        place: JobPlace,
        registry: PartitionRegistry,
        connect: Callable[[str], DataConnection],
        pool: GlobalBufferPool,
        timers: TimerThread,
        clock: Clock,
        spill_dir: Path | None = None,
    ) -> None:
        super().__init__(pool, timers, clock, spill_dir, Saturation())
        self._job_id = place.job_id
        self._worker = place.worker
        self._host_folder = place.host_folder
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

    def release_partitions(self, partitions: Sequence[ResultPartitionId]) -> None:
        """See `ShuffleEnvironment.release_partitions`."""
        for gone in partitions:
            with self._key_lock:
                known = self._keys.get(gone.partition)
                if known is not None and known.attempt_id == gone.attempt_id:
                    del self._keys[gone.partition]
                    self._registry.remove(known)
        super().release_partitions(partitions)

    def release(self, *, keep_files: bool = False) -> None:
        """See `ShuffleEnvironment.release`."""
        with self._key_lock:
            gone, self._keys = list(self._keys.values()), {}
        for key in gone:
            self._registry.remove(key)
        super().release(keep_files=keep_files)

    def _release_earlier(self, partition: PartitionId) -> None:
        with self._key_lock:
            key = self._keys.pop(partition, None)
        if key is not None:
            self._registry.remove(key)
        super()._release_earlier(partition)

    def _create_channel(
        self, channel: Channel, location: PartitionLocation | None, credit: ChannelCredit
    ) -> InputChannel:
        if location is None or (location.worker == self._worker and not location.only_files):
            known = None if location is None else replace(location, address="")
            return super()._create_channel(channel, known, credit)
        if self._reads_files(channel, location):
            stored = StoredPartition(self.spill_folder(), channel.partition, location.attempt_id)
            return LocalInputChannel(stored.name, partial(stored.create_view, channel.subpartition), credit)
        if not location.address:
            raise _out_of_reach(location)
        request = PartitionRequest(
            self._job_id, channel.partition, location.attempt_id, channel.subpartition, 0, location.only_files
        )
        origin = ChannelOrigin(f"{channel.producer} in worker {location.worker}", request)
        return RemoteInputChannel(origin, partial(self._connect, location.address), credit, self._timers, self._clock)

    def _stored(self, channel: Channel, location: PartitionLocation | None) -> SubpartitionPath | None:
        if location is not None and location.only_files and self._is_here(location):
            return self._file(channel, location)
        return super()._stored(channel, location)

    def _reads_files(self, channel: Channel, location: PartitionLocation) -> bool:
        """Whether another process of this host has finished what a channel reads."""
        if not self._is_here(location):
            return False
        try:
            read_items(self._file(channel, location))
        except PartitionLostError:  # its writer may be at work: that one knows
            return location.only_files
        return True

    def _is_here(self, location: PartitionLocation) -> bool:
        return self._host_folder is not None and location.host_folder == self._host_folder.id

    def _file(self, channel: Channel, location: PartitionLocation) -> SubpartitionPath:
        return SubpartitionPath(self.spill_folder(), channel.partition, location.attempt_id, channel.subpartition)

    def _make_folder(self) -> Path:
        if self._host_folder is None:
            return super()._make_folder()
        folder = self._host_folder.of_job(self._job_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _existing_folder(self) -> Path | None:
        return super()._existing_folder() if self._host_folder is None else self._host_folder.of_job(self._job_id)

    def _remove_folder(self, folder: Path | None, *, keep_files: bool) -> None:
        if self._host_folder is None:
            super()._remove_folder(folder, keep_files=keep_files)
        elif not keep_files:
            shutil.rmtree(self._host_folder.of_job(self._job_id), ignore_errors=True)


def _out_of_reach(location: PartitionLocation) -> FlowrunError:
    """The error for a partition that no process can give."""
    if location.only_files:
        return PartitionLostError(
            f"rows that worker {location.worker} had spilled are lost: no process is left that can read them",
            data_set_id=location.partition.data_set_id,
            subtask=location.partition.subtask,
        )
    return ClusterError(f"worker {location.worker}, which partition {location.partition} is in, is not there any more")
