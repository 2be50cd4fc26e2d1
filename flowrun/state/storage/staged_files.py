"""Rows that wait in a job's folder until their checkpoint is complete, for sinks that cannot prepare a transaction.

A file holds what one subtask wrote for one commit, as an Arrow IPC stream. Its name has lineage, attempt and a number. It is removed
when its rows are in the outside system, or when nothing can commit it any more.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.storage.state_path import StatePath, failures, resolve

_PREFIX, _ENDING = "staged-", ".arrows"


@record
class StagedFile:
    """A complete file: its name, and what it must be to be read."""

    name: str
    rows: int
    bytes: int
    checksum: int
    """CRC-32 of its bytes."""


def staged_name(owner: str, unique: str) -> str:
    """The name of a file of a lineage; `unique` tells apart those of all its subtasks and attempts.

    >>> staged_name("6f0c", "a1-0-3")
    'staged-6f0c-a1-0-3.arrows'
    """
    return f"{_PREFIX}{owner}-{unique}{_ENDING}"


def is_staged_name(name: str) -> bool:
    """Whether it can be the name of such a file."""
    return name.startswith(_PREFIX) and name.endswith(_ENDING) and "/" not in name and "\0" not in name


class _Counting:
    """A file object that counts and sums up what goes through it, for pyarrow."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.bytes = 0
        self.checksum = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._stream.write(view)
        self.bytes += view.nbytes
        self.checksum = zlib.crc32(view, self.checksum)
        return view.nbytes

    def flush(self) -> None:
        """Nothing is kept back here."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class StagedFileWriter:
    """Writes one file; it counts once `finish` has returned.

    Args:
        folder: of staged files; made if it is missing.
        name: as `staged_name` gives it.
        schema: of the batches.

    Raises:
        StateError: the file cannot be made.
    """

    def __init__(self, folder: StatePath, name: str, schema: pa.Schema) -> None:
        self._path = folder / name
        self._folder = folder
        self._rows = 0
        folder.make_folder()
        with failures("write", self._path):
            self._stream: BinaryIO | Any
            if folder.is_local:
                self._stream = self._path.create_local()
            else:
                self._stream = folder.filesystem.open_output_stream(self._path.path)
            self._counting = _Counting(self._stream)
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._counting, mode="w"), schema)

    @property
    def rows(self) -> int:
        """Written so far."""
        return self._rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises StateError: the disk is full, …"""
        with failures("write", self._path):
            self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> StagedFile:
        """Complete the file, durably. Raises StateError."""
        with failures("write", self._path):
            self._writer.close()
            if self._folder.is_local:
                self._stream.flush()
                os.fsync(self._stream.fileno())
            self._stream.close()
        self._folder.sync_folder()
        return StagedFile(self._path.name, self._rows, self._counting.bytes, self._counting.checksum)

    def abandon(self) -> None:
        """Remove the file; never raises because of the disk."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._stream.close()
        self._path.remove_quietly()


def staging_folder(uri: str) -> StatePath:
    """The folder that a URI or absolute path of `STAGED_FOLDER` names."""
    return resolve(uri)


def is_staged(folder: StatePath, name: str) -> bool:
    """Whether the file is there still."""
    with failures("look at", folder / name):
        return bool(folder.filesystem.get_file_info((folder / name).path).type == pafs.FileType.File)


def read_staged(folder: StatePath, file: StagedFile) -> Iterator[pa.RecordBatch]:
    """The batches of a file, which is first read once to compare it with what was written.

    Raises:
        StateError: it is not there, or not as it was written.
    """
    path = folder.below(file.name)
    with failures("read", path):
        try:
            content = _mapped(path)
        except FileNotFoundError:
            raise StateError(
                f"the rows that wait for their commit in '{path}' are gone",
                hint="somebody deleted the file: restore it from a backup, or go on from another checkpoint or savepoint",
            ) from None
        if content.size != file.bytes or zlib.crc32(content) != file.checksum:
            raise StateError(
                f"the rows that wait for their commit in '{path}' are not as they were written: "
                f"{content.size} bytes instead of {file.bytes}, or other content",
                hint="the file was altered or damaged: restore it from a backup, or go on from another checkpoint or savepoint",
            )
    with pa.ipc.open_stream(content) as reader:
        yield from reader


def _mapped(path: StatePath) -> pa.Buffer:
    if path.is_local:
        if os.path.getsize(path.path) == 0:
            return pa.py_buffer(b"")
        with pa.memory_map(path.path) as file:
            return file.read_buffer()
    with path.filesystem.open_input_file(path.path) as file:
        return file.read_buffer()


def remove_staged(folder: StatePath, name: str) -> None:
    """Remove a file; no error if it is gone. Raises StateError."""
    folder.below(name).remove_file()


def discard_staged(folder: StatePath, owner: str, keep: Collection[str]) -> int:
    """Remove the files of a lineage but those named in `keep`; gives how many there were. No subtask of it may be writing.

    Raises:
        StateError: one cannot be removed.
    """
    found = [e.name for e in folder.entries() if e.name.startswith(f"{_PREFIX}{owner}-") and e.name.endswith(_ENDING)]
    gone = [name for name in found if name not in keep]
    for name in gone:
        (folder / name).remove_file()
    return len(gone)
