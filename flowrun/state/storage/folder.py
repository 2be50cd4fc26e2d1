"""The folder of one job: lock, numbering, checkpoints, retention and clean-up."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence

from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import InternalError, StateError
from flowrun.state.checkpoints import CheckpointMetadata, StateFile
from flowrun.state.commit_log import Fork, LoggedCommit, WentBack
from flowrun.state.storage.commit_log_files import CommitLogWriter, note_return
from flowrun.state.storage.contract import SnapshotStorage
from flowrun.state.storage.forwarding import ForwardedSnapshots
from flowrun.state.storage.inventory import Inventory
from flowrun.state.storage.leases import is_leased
from flowrun.state.storage.lock import FolderLock
from flowrun.state.storage.metadata_file import metadata_in, write_metadata
from flowrun.state.storage.names import checkpoint_folder, checkpoint_number, job_slug
from flowrun.state.storage.other_checkpoints import has_metadata
from flowrun.state.storage.parquet_storage import ParquetStorage
from flowrun.state.storage.state_path import StatePath, resolve
from flowrun.state.storage.stop_note import StopNote, write_stop_note


class JobFolder(ForwardedSnapshots):
    """`CheckpointStorage` in a folder on any `pyarrow.fs` file system, owned by this process. Thread-safe.

    Use `open_job_folder`.

    Args:
        folder: of the job; made if missing.
        job_name: as users call it.
        lineage: of the run.
        clock: for the lock's note of when it was taken.
        ancestors: where the lineage began.

    Raises:
        StateError: another process owns the folder, or it cannot be made, read or written.
    """

    def __init__(
        self, folder: StatePath, job_name: str, *, lineage: str, clock: Clock, ancestors: Sequence[Fork] = ()
    ) -> None:
        self._folder = folder
        self._job_name = job_name
        self._lineage = lineage
        self._storage = ParquetStorage(folder)
        self._commits = CommitLogWriter(folder, lineage, ancestors)
        self._guard = threading.Lock()
        folder.make_folder()
        self._lock = FolderLock(folder, clock)
        try:
            self._inventory = Inventory(folder)
            self._lock.note(self._inventory.highest)  # before clean-up removes the folder that has this number
            if not is_leased(folder):
                self._inventory.sweep()
        except BaseException:
            self._lock.release()
            raise

    @property
    def job_folder(self) -> str:
        """URI or absolute path."""
        return self._folder.uri

    @property
    def storage(self) -> ParquetStorage:
        """What tasks need of this; may be sent to other processes."""
        return self._storage

    @property
    def staging(self) -> str:
        """Where rows wait for their commit; see `SnapshotStorage.staging`."""
        return self._storage.staging

    @property
    def next_checkpoint_id(self) -> int:
        """One above every number that was ever used in this folder, at least 1."""
        with self._guard:
            return max(self._inventory.highest, self._lock.highest) + 1

    def _snapshots(self) -> SnapshotStorage:
        return self._storage

    def begin(self, checkpoint_id: int, kind: CheckpointKind, directory: str | None) -> str:
        """Make the folder of a checkpoint or savepoint (below `directory`; below the checkpoint directory if None).

        Raises:
            StateError: it cannot be made, or the number was used before.
        """
        with self._guard:
            self._lock.note(checkpoint_id)
            if kind is CheckpointKind.SAVEPOINT:
                return self._begin_savepoint(checkpoint_id, directory)
            folder = self._folder / checkpoint_folder(checkpoint_id)
            if folder.entries():
                raise StateError(
                    f"cannot begin checkpoint {checkpoint_id}: '{folder}' has files of another",
                    hint="remove that folder if nothing needs it",
                )
            folder.make_folder()
            self._inventory.begin(checkpoint_id)
            return folder.uri

    def _begin_savepoint(self, checkpoint_id: int, directory: str | None) -> str:
        parent = self._folder.parent if directory is None else resolve(directory, shared=self._folder.shared)
        name = f"savepoint-{job_slug(self._job_name)}-{checkpoint_id}"
        parent.make_folder()
        if any(e.name == name for e in parent.entries()):
            name = f"{name}-{uuid.uuid4().hex[:8]}"
        folder = parent / name
        folder.make_folder()
        return folder.uri

    def finish(self, target: str, metadata: CheckpointMetadata) -> str:
        """Let a checkpoint exist; see `CheckpointStorage.finish`."""
        folder = self._folder.located(target)
        with self._guard:
            if metadata.kind is CheckpointKind.SAVEPOINT:
                write_metadata(folder, metadata)
                self._commits.add_savepoint(metadata.checkpoint_id, folder.uri)
                return folder.uri
            number = self._number(folder)
            tables = [t for o in metadata.operators.values() for s in o.subtasks.values() for t in s.keyed.values()]
            named = {r.file.path for t in tables for r in t.files}
            missing = self._inventory.missing(number, named)
            if missing:
                raise StateError(
                    f"checkpoint {number} refers to files that are not there: {', '.join(missing[:3])}"
                    + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
                )
            paths = write_metadata(folder, metadata)
            self._inventory.completed(number, metadata.lineage, paths)
            return folder.uri

    def discard(self, target: str, files: Iterable[StateFile]) -> None:
        """Delete what an aborted checkpoint wrote; see `CheckpointStorage.discard`."""
        folder = self._folder.located(target)
        with self._guard:
            number = checkpoint_number(folder.name) if folder.parent == self._folder else None
            if number is None:
                if not has_metadata(folder):
                    folder.remove_folder()
                return
            if self._inventory.is_under_way(number):  # nothing refers to what never was complete
                self._inventory.over(number)
                self._inventory.drop(number, [e.name for e in folder.entries()])
                return
            own = f"{folder.name}/"
            self._inventory.drop(number, [f.path.removeprefix(own) for f in files if f.path.startswith(own)])

    def retain(self, checkpoint_ids: Sequence[int]) -> None:
        """Forget all other checkpoints of this lineage; see `CheckpointStorage.retain`."""
        with self._guard:
            if is_leased(self._folder):  # somebody reads: later
                return
            for number, checkpoint in sorted(self._inventory.complete.items()):
                if checkpoint.lineage == self._lineage and number not in checkpoint_ids:
                    self._inventory.forget(number)
            self._inventory.sweep()

    def note_stop(self, checkpoint_id: int, savepoint: str) -> None:
        """Remember that the job was stopped with a savepoint; see `CheckpointStorage.note_stop`."""
        with self._guard:
            write_stop_note(self._folder, StopNote(checkpoint_id, savepoint))

    def note_commits(self, commits: Sequence[LoggedCommit]) -> None:
        """Remember what sinks are about to make visible; see `CheckpointStorage.note_commits`."""
        with self._guard:
            own = [n for n, c in self._inventory.complete.items() if c.lineage == self._lineage]
        self._commits.add(commits, min(own, default=None))

    def discard_staged(self, owner: str, keep: Collection[str]) -> int:
        """Remove rows that wait for nothing any more; see `CheckpointStorage.discard_staged`."""
        return self._storage.discard_staged(owner, keep)

    def note_discarded(self, checkpoint_id: int) -> None:
        """Nothing of a checkpoint was committed; see `CheckpointStorage.note_discarded`."""
        note_return(self._folder, self._lineage, WentBack(checkpoint_id - 1, checkpoint_id + 1))

    def existing(self) -> Mapping[int, CheckpointMetadata]:
        """Completed checkpoints of the folder, all lineages, by number; unreadable ones are left out."""
        with self._guard:
            numbers = sorted(self._inventory.complete)
        found = {}
        for number in numbers:
            try:
                found[number] = metadata_in(self._folder / checkpoint_folder(number))
            except StateError:  # as the contract says; whoever asks for that very one gets the error
                continue
        return found

    def close(self) -> None:
        """Give up the lock. Idempotent."""
        with self._guard:
            self._lock.release()

    def _number(self, folder: StatePath) -> int:
        number = checkpoint_number(folder.name)
        if number is None or folder.parent != self._folder:
            raise InternalError(f"'{folder}' is no checkpoint of '{self._folder}'")
        return number


def open_job_folder(
    directory: str,
    job_name: str,
    *,
    lineage: str,
    clock: Clock,
    ancestors: Sequence[Fork] = (),
    shared: bool = False,
) -> JobFolder:
    """The folder of job `job_name` below `directory` (made if missing), locked for this process, orphans of former owners removed.

    `shared`: what is made gets the permissions that the process gives; else it is its owner's alone.

    Raises:
        StateError: another process owns it, or it cannot be made, read or written.
    """
    folder = resolve(directory, shared=shared) / job_slug(job_name)
    return JobFolder(folder, job_name, lineage=lineage, clock=clock, ancestors=ancestors)
