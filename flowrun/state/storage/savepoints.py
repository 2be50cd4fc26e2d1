"""Savepoints of jobs that take no checkpoints: such a job owns no folder, and nothing is made before it is needed.

Nor is anything imported before: file systems and Parquet would cost a small job more time than it runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from flowrun.core.elements import CheckpointKind
from flowrun.errors import InternalError
from flowrun.state.checkpoints import CheckpointMetadata, StateFile
from flowrun.state.storage.contract import SnapshotStorage
from flowrun.state.storage.forwarding import ForwardedSnapshots
from flowrun.state.storage.names import STAGED_FOLDER, job_slug

if TYPE_CHECKING:
    from flowrun.state.commit_log import Fork, LoggedCommit
    from flowrun.state.storage.commit_log_files import CommitLogWriter
    from flowrun.state.storage.parquet_storage import ParquetStorage
    from flowrun.state.storage.state_path import StatePath


class Savepoints(ForwardedSnapshots):
    """`CheckpointStorage` for savepoints alone; makes nothing and locks nothing until `begin`. Thread-safe.

    Args:
        directory: below which the job's checkpoints would be.
        job_name: as users call it.
        lineage: of the run; it names the log of its commits.
        ancestors: where the lineage began.
    """

    def __init__(self, directory: str, job_name: str, *, lineage: str = "", ancestors: Sequence[Fork] = ()) -> None:
        self._lineage = lineage
        self._ancestors = tuple(ancestors)
        self._directory = directory
        self._job_name = job_name

    @cached_property
    def folder(self) -> StatePath:
        """That checkpoints would have; it need not exist."""
        from flowrun.state.storage.state_path import resolve

        return resolve(self._directory) / job_slug(self._job_name)

    @cached_property
    def _storage(self) -> ParquetStorage:
        from flowrun.state.storage.parquet_storage import ParquetStorage

        return ParquetStorage(self.folder)

    @cached_property
    def _commits(self) -> CommitLogWriter:
        from flowrun.state.storage.commit_log_files import CommitLogWriter

        return CommitLogWriter(self.folder, self._lineage, self._ancestors)

    @property
    def job_folder(self) -> str:
        """URI or absolute path of the folder that checkpoints would have; it need not exist."""
        return self.folder.uri

    @property
    def staging(self) -> str:
        """Where rows would wait for their commit; see `SnapshotStorage.staging`."""
        return (self.folder / STAGED_FOLDER).uri

    def discard_staged(self, owner: str, keep: Collection[str]) -> int:
        """Remove rows that wait for nothing any more; see `CheckpointStorage.discard_staged`."""
        return self._storage.discard_staged(owner, keep)

    def _snapshots(self) -> SnapshotStorage:
        return self._storage

    def begin(self, checkpoint_id: int, kind: CheckpointKind, directory: str | None) -> str:
        """Make the folder of a savepoint below `directory`; below the checkpoint directory if None.

        Raises:
            StateError: it cannot be made.
        """
        if kind is not CheckpointKind.SAVEPOINT:
            raise InternalError(f"checkpoint {checkpoint_id} of a job that takes none")
        parent = self.folder.parent if directory is None else self.folder.located(directory)
        parent.make_folder()
        name = f"savepoint-{job_slug(self._job_name)}-{checkpoint_id}"
        if any(e.name == name for e in parent.entries()):
            name = f"{name}-{uuid.uuid4().hex[:8]}"
        folder = parent / name
        folder.make_folder()
        return folder.uri

    def finish(self, target: str, metadata: CheckpointMetadata) -> str:
        """Let a savepoint exist; see `CheckpointStorage.finish`."""
        from flowrun.state.storage.metadata_file import write_metadata

        folder = self.folder.located(target)
        write_metadata(folder, metadata)
        folder.parent.sync_folder()
        return folder.uri

    def discard(self, target: str, files: Iterable[StateFile]) -> None:
        """Delete what an aborted savepoint wrote; a complete one is the user's."""
        from flowrun.state.storage.other_checkpoints import has_metadata

        folder = self.folder.located(target)
        if not has_metadata(folder):
            folder.remove_folder()

    def retain(self, checkpoint_ids: Sequence[int]) -> None:
        """There are no checkpoints."""

    def note_stop(self, checkpoint_id: int, savepoint: str) -> None:
        """There is no folder of checkpoints that anybody could resume."""

    def note_commits(self, commits: Sequence[LoggedCommit]) -> None:
        """Remember what sinks are about to make visible; see `CheckpointStorage.note_commits`."""
        self._commits.add(commits)

    def note_discarded(self, checkpoint_id: int) -> None:
        """Nothing of a savepoint was committed; see `CheckpointStorage.note_discarded`."""
        from flowrun.state.commit_log import WentBack
        from flowrun.state.storage.commit_log_files import note_return

        note_return(self.folder, self._lineage, WentBack(checkpoint_id - 1, checkpoint_id + 1))

    def existing(self) -> Mapping[int, CheckpointMetadata]:
        """There are no checkpoints."""
        return {}

    def close(self) -> None:
        """Nothing is held."""
