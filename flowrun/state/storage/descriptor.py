"""Where a job's snapshots are, as plain data: for processes that write and read them without owning the folder."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.state.storage.contract import SnapshotStorage


@record
class StorageDescriptor:
    """The folder of a job, as `CheckpointStorage.job_folder` gives it: an absolute path or a URI."""

    job_folder: str

    def open(self) -> SnapshotStorage:
        """What tasks write and read through. Takes no lock, and makes nothing.

        Raises:
            StateError: there is no such file system.
        """
        # Imported here: a job without state needs none of it.
        from flowrun.state.storage.parquet_storage import ParquetStorage
        from flowrun.state.storage.state_path import resolve

        return ParquetStorage(resolve(self.job_folder))
