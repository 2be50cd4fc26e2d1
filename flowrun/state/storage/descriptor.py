"""Where a job's snapshots are, as plain data: for processes that write and read them without owning the folder."""

from __future__ import annotations

import os
import socket
from functools import cached_property

from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.storage.contract import SnapshotStorage
from flowrun.state.storage.forwarding import ForwardedSnapshots
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


class _FolderOfAnother(ForwardedSnapshots):
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

    def _snapshots(self) -> SnapshotStorage:
        return self._storage
