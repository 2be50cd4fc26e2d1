"""The contracts of checkpoint storage: what tasks write while a checkpoint is taken, and what the job master finishes and deletes.

`flowrun.state.storage.folder` implements them on any `pyarrow.fs` file system.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from flowrun.api.state import KeyGroupRange, OperatorSnapshot
from flowrun.core.elements import CheckpointKind, Event, RecordBatch
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    InFlight,
    KeptElement,
    KeyedTableState,
    OperatorSubtaskState,
    StateFile,
)
from flowrun.state.commit_log import LoggedCommit


class SnapshotWriter(Protocol):
    """Writes the snapshots of one operator of one subtask for the life of an attempt; remembers which segments are in which file.

    One call at a time (an upload thread); checkpoints in the order of their ids.
    """

    def write(
        self, checkpoint_id: int, target: str, kind: CheckpointKind, snapshot: OperatorSnapshot
    ) -> OperatorSubtaskState:
        """Write what is new into Parquet files, durably; savepoints are always whole and reference no other folder.

        Args:
            checkpoint_id: of the barrier.
            target: folder as `CheckpointStorage.begin` gave it.
            kind: as in the barrier.
            snapshot: what to write; segments are materialised here.

        Raises:
            StateError: the disk is full, the folder may not be written, …; nothing that it wrote is left.
        """
        ...

    def completed(self, checkpoint_id: int) -> None:
        """Files of this checkpoint may be referenced by later ones. Without this call they are not: they may be deleted."""
        ...


class SnapshotStorage(Protocol):
    """What tasks get. Thread-safe."""

    @property
    def staging(self) -> str:
        """URI or absolute path of the folder in which rows wait for their commit; it need not be there yet."""
        ...

    def writer(self, operator_id: str, name: str, subtask: int, groups: KeyGroupRange) -> SnapshotWriter:
        """The writer of one operator in one subtask and attempt."""
        ...

    def read_keyed(self, state: Sequence[KeyedTableState], groups: KeyGroupRange, root: str) -> pa.Table:
        """The live rows of some key groups from the tables of old subtasks; reads only those rows, and checks their checksums.

        Args:
            state: the same table of several old subtasks; schemas are equal.
            groups: wanted.
            root: where the paths of the files start.

        Raises:
            StateError: a file is missing, truncated or corrupt.
        """
        ...

    def write_in_flight(self, target: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
        """Write the rows that were in flight to and from one subtask; gives the same with the places of the rows instead of them.

        Args:
            target: folder of a checkpoint as `CheckpointStorage.begin` gave it.
            in_flight: with rows in memory.

        Raises:
            StateError: as `SnapshotWriter.write`.
        """
        ...

    def read_in_flight(
        self, channels: Sequence[Sequence[KeptElement]], root: str
    ) -> list[tuple[RecordBatch | Event, ...]]:
        """The elements of channels with their rows.

        Args:
            channels: whose rows may be in files.
            root: where the paths of the files start.

        Raises:
            StateError: a file is missing, truncated or corrupt.
        """
        ...


class CheckpointStorage(SnapshotStorage, Protocol):
    """The folder of one job. The job master's side; calls block on I/O."""

    @property
    def job_folder(self) -> str:
        """URI or absolute path."""
        ...

    def begin(self, checkpoint_id: int, kind: CheckpointKind, directory: str | None) -> str:
        """Make the folder of a checkpoint (`chk-N`), or of a savepoint below `directory`; gives what tasks get as `target`.

        Raises:
            StateError: it cannot be made.
        """
        ...

    def finish(self, target: str, metadata: CheckpointMetadata) -> str:
        """Write operator state, rows in flight and at last `_metadata.json`, atomically; gives the path to resume from.

        Raises:
            StateError: it cannot be written; the checkpoint does not exist then.
        """
        ...

    def discard(self, target: str, files: Iterable[StateFile]) -> None:
        """An aborted checkpoint: delete what it wrote (files in `target`), never what others use. Missing files are no error."""
        ...

    def retain(self, checkpoint_ids: Sequence[int]) -> None:
        """Forget all other checkpoints of this lineage in the job folder: delete their metadata first, then every file that no retained one
        names. Never touches other lineages and savepoints, nor folders of checkpoints that are under way.
        """
        ...

    def note_stop(self, checkpoint_id: int, savepoint: str) -> None:
        """Remember that the job was stopped with a savepoint, whose number and path these are.

        What it had written is committed up to there: restoring from an older checkpoint of the folder would write rows twice. Until a
        newer checkpoint is complete, looking for the newest one in the job's folder is an error that names the savepoint.
        """
        ...

    def note_commits(self, commits: Sequence[LoggedCommit]) -> None:
        """Remember, durably, what sinks are about to make visible: who goes back to an older snapshot must know of it."""
        ...

    def discard_staged(self, owner: str, keep: Collection[str]) -> int:
        """Remove the files in `staging` that writers of a lineage left, but those of these commit ids; gives how many.

        Raises:
            StateError: one cannot be removed.
        """
        ...

    def note_discarded(self, checkpoint_id: int) -> None:
        """A checkpoint whose commits were noted is given up: nothing of it was committed."""
        ...

    def existing(self) -> Mapping[int, CheckpointMetadata]:
        """Completed checkpoints of the job folder, all lineages, by number; unreadable ones are left out."""
        ...

    def close(self) -> None:
        """Give up the lock. Idempotent."""
        ...
