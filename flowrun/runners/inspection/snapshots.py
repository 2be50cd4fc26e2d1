"""Which checkpoints and savepoints are in a folder, as values; looks only at names and metadata, and never takes a lock, but leases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow.fs as pafs

from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.checkpoints import CheckpointMetadata
from flowrun.state.storage.leases import lease
from flowrun.state.storage.metadata_file import read_metadata
from flowrun.state.storage.names import METADATA_FILE, checkpoint_number
from flowrun.state.storage.state_path import StatePath, resolve


@record
class ListedSnapshot:
    """A checkpoint or savepoint, complete or not.

    Attributes:
        path: of its folder.
        number: from its metadata, else from its name; None: a savepoint that cannot be read.
        metadata: None: incomplete or unreadable.
        problem: why it cannot be used; None: it can.
        resumed: it is the one that resuming from its job's folder takes.
        used: it exists no more (retention deleted its metadata), but later checkpoints use files in its folder.
    """

    path: str
    number: int | None
    metadata: CheckpointMetadata | None = None
    problem: str | None = None
    resumed: bool = False
    used: bool = False

    @property
    def state(self) -> str:
        """`complete`, `unreadable`, `used` or `incomplete` (no metadata: it is being written, or was left by a crash)."""
        if self.metadata is not None:
            return "complete"
        if self.used:
            return "used"
        return "incomplete" if self.problem is None else "unreadable"

    @property
    def is_there(self) -> bool:
        """Whether it has metadata, be they readable or not."""
        return self.metadata is not None or self.problem is not None


@record
class ListedFolder:
    """What one folder holds: the checkpoints of a job, or savepoints; by number, oldest first."""

    path: str
    snapshots: tuple[ListedSnapshot, ...]

    @property
    def job_name(self) -> str | None:
        """Of the newest that can be read."""
        names = [s.metadata.job_name for s in self.snapshots if s.metadata is not None]
        return names[-1] if names else None


def list_snapshots(path: str) -> tuple[ListedFolder, ...]:
    """The snapshots below `path`: one checkpoint or savepoint, a job's folder, or a folder of jobs or savepoints.

    Those that cannot be read are listed with the reason.

    Raises:
        StateError: there is nothing of the kind, or the folder cannot be listed.
    """
    location = resolve(path)
    if location.name == METADATA_FILE:
        location = location.parent
    kind = location.kind()
    if kind == pafs.FileType.NotFound:
        raise StateError(f"there is no folder '{path}'", hint=_nearby(location))
    if kind != pafs.FileType.Directory:
        raise StateError(f"'{path}' is a file", hint="name a savepoint, a checkpoint, or a folder of them")
    if _is_complete(location):
        return (ListedFolder(location.parent.uri, (_listed(location),)),)
    folders = [f for f in (_folder(location), *map(_folder, _subfolders(location))) if f.snapshots]
    if not folders:
        raise StateError(
            f"there is no checkpoint or savepoint in '{path}'",
            hint="the folder of checkpoints is settings.checkpoint.dir of the pipeline, or .flowrun/state",
        )
    return tuple(folders)


def _subfolders(location: StatePath) -> Iterator[StatePath]:
    return (location / e.name for e in location.entries() if e.is_folder)


def _is_complete(location: StatePath) -> bool:
    return bool((location / METADATA_FILE).kind() == pafs.FileType.File)


def _folder(location: StatePath) -> ListedFolder:
    """The snapshots directly in a folder."""
    children = list(_subfolders(location))
    if any(checkpoint_number(child.name) is not None for child in children):
        lease(location)
        children = list(_subfolders(location))
    listed = [
        _listed(child)
        for child in children
        if checkpoint_number(child.name) is not None or child.name.startswith("savepoint-") or _is_complete(child)
    ]
    found = [s for s in listed if s.is_there or resolve(s.path).kind() == pafs.FileType.Directory]
    found.sort(key=lambda s: (-1 if s.number is None else s.number, s.path))
    resumable = [s.path for s in found if s.is_there and checkpoint_number(s.path.rpartition("/")[2]) is not None]
    folders = {path.partition("/")[0] for s in found if s.metadata is not None for path in _paths(s.metadata)}
    return ListedFolder(
        location.uri,
        tuple(
            replace(
                s,
                resumed=resumable[-1:] == [s.path],
                used=not s.is_there and s.path.rpartition("/")[2] in folders,
            )
            for s in found
        ),
    )


def _paths(metadata: CheckpointMetadata) -> Iterator[str]:
    """Of its keyed state files, from the job's folder (or, of a savepoint, from its own)."""
    for operator in metadata.operators.values():
        for subtask in operator.subtasks.values():
            for table in subtask.keyed.values():
                yield from (reference.file.path for reference in table.files)


def _listed(location: StatePath) -> ListedSnapshot:
    number = checkpoint_number(location.name)
    if not _is_complete(location):
        return ListedSnapshot(location.uri, number)
    try:
        metadata = read_metadata(location.uri)
    except StateError as error:
        if not _is_complete(location):  # its job deleted it meanwhile
            return ListedSnapshot(location.uri, number)
        return ListedSnapshot(location.uri, number, problem=error.message)
    return ListedSnapshot(location.uri, metadata.checkpoint_id, metadata)


def _nearby(location: StatePath) -> str | None:
    """A hint with folders of a similar name."""
    from flowrun.errors import near_matches

    names = [e.name for e in location.parent.entries() if e.is_folder]
    close = near_matches(location.name, names)
    return "did you mean " + " or ".join(f"'{(location.parent / c).uri}'" for c in close) + "?" if close else None
