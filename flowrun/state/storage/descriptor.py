"""Where a job's snapshots are, as plain data: for processes that write and read them without owning the folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from flowrun.api.state import KeyGroupRange
from flowrun.core.elements import Event, RecordBatch
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.checkpoints import InFlight, KeptElement, KeyedTableState
from flowrun.state.storage.contract import SnapshotStorage, SnapshotWriter
from flowrun.state.storage.names import STAGED_FOLDER


@record
class StorageDescriptor:
    """The folder of a job.

    Attributes:
        job_folder: as `CheckpointStorage.job_folder` gives it: an absolute path or a URI.
        shared: folders and files that are made get the permissions that the process gives; else they are their owner's alone.
    """

    job_folder: str
    shared: bool = False

    def check_is_there(self) -> None:
        """Pass if the folder can be seen from this process, as it can where the job was started.

        Raises:
            StateError: it cannot: what is written here would be missing from checkpoints.
        """
        if "://" not in self.job_folder and not os.path.isdir(self.job_folder):
            raise StateError(
                f"the folder of the job's checkpoints, '{self.job_folder}', is not there on {socket.gethostname()}",
                hint="give all machines the same folder, or keep checkpoints in an object store",
            )

    def open(self) -> SnapshotStorage:
        """What tasks write and read through. Takes no lock, and makes nothing."""
        return _FolderOfAnother(self)


class _FolderOfAnother:
    """A job's folder that another process owns. Parquet is imported when the first snapshot is written or read: many jobs have none."""

    def __init__(self, descriptor: StorageDescriptor) -> None:
        self._descriptor = descriptor

    @cached_property
    def _storage(self) -> SnapshotStorage:
        from flowrun.state.storage.parquet_storage import ParquetStorage
        from flowrun.state.storage.state_path import resolve

        return ParquetStorage(resolve(self._descriptor.job_folder, shared=self._descriptor.shared))

    @property
    def staging(self) -> str:
        """See `SnapshotStorage`."""
        return f"{self._descriptor.job_folder.rstrip('/')}/{STAGED_FOLDER}"

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> SnapshotWriter:
        """See `SnapshotStorage`."""
        return self._storage.writer(operator_id, name, subtask, groups)

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        """See `SnapshotStorage`."""
        return self._storage.read_keyed(state, groups, root)

    def write_in_flight(self, target: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
        """See `SnapshotStorage`."""
        return self._storage.write_in_flight(target, in_flight)

    def read_in_flight(
        self, channels: Sequence[Sequence[KeptElement]], root: str
    ) -> list[tuple[RecordBatch | Event, ...]]:
        """See `SnapshotStorage`."""
        return self._storage.read_in_flight(channels, root)
