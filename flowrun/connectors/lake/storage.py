"""The files of a lake table: created, forced to disk, listed and removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.api.refusals import retryable_io
from flowrun.errors import ConnectorError


class TableStorage:
    """The folder of a table. It is used by one thread; every method blocks on I/O, and raises ConnectorError if it fails.

    Args:
        filesystem: where the table is.
        base: the path of its folder there.
        to_path: the path on the file system of a location, as the table's metadata names it; it raises ValueError for what is not in
            the folder.
    """

    def __init__(self, filesystem: pafs.FileSystem, base: str, to_path: Callable[[str], str]) -> None:
        self._filesystem = filesystem
        self.base = base.rstrip("/")
        self._to_path = to_path
        self._is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._folders: set[str] = set()

    def path(self, location: str) -> str:
        """The path on the file system of a location below the folder.

        Raises:
            ValueError: the location is not below the folder.
        """
        path = self._to_path(location)
        inside = path.removeprefix(self.base + "/") if self.base else path
        if (self.base and inside == path) or {"", ".", ".."} & set(inside.split("/")):
            raise ValueError(location)
        return path

    def holds(self, location: object) -> bool:
        """Whether a location is below the folder."""
        try:
            return isinstance(location, str) and bool(self.path(location))
        except ValueError:
            return False

    def create(self, location: str) -> Any:
        """A pyarrow output stream to a new file; missing folders are created."""
        path = self.path(location)
        folder = path.rpartition("/")[0]
        try:
            if self._is_local and not os.path.isdir(folder):
                missing = folder
                while not os.path.isdir(missing):
                    missing = os.path.dirname(missing)
                    self._folders.add(missing)
                self._filesystem.create_dir(folder, recursive=True)
            self._folders.add(folder)
            return self._filesystem.open_output_stream(path)
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be created", location, error) from error

    def finish(self, stream: Any, location: str) -> int:
        """Close a file and force it to disk; gives its size in bytes."""
        path = self.path(location)
        try:
            if not stream.closed:
                stream.close()
            if self._is_local:
                _sync(path)
            size: int = self._filesystem.get_file_info(path).size
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be written", location, error) from error
        return size

    def settle(self) -> None:
        """Force the entries of new files and folders to disk, so that they are found after a crash of the machine."""
        folders, self._folders = self._folders, set()
        for folder in sorted(folders) if self._is_local else ():
            try:
                _sync(folder)
            except OSError as error:
                raise failure("cannot be forced to disk", folder, error) from error

    def open(self, location: str) -> Any:
        """A pyarrow input file."""
        try:
            return self._filesystem.open_input_file(self.path(location))
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be opened", location, error) from error

    def discard(self, location: str) -> None:
        """Remove a file. It is no error if it does not exist."""
        path = self.path(location)
        try:
            if self._filesystem.get_file_info(path).type != pafs.FileType.NotFound:
                self._filesystem.delete_file(path)
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be removed", location, error) from error

    def exists(self, location: str) -> bool:
        """Whether there is a file at a location."""
        try:
            found: bool = self._filesystem.get_file_info(self.path(location)).type != pafs.FileType.NotFound
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be looked at", location, error) from error
        return found

    def files(self) -> list[tuple[str, int]]:
        """(path on the file system, when it was written, in ms since the epoch) of all files below the folder, which need not exist."""
        try:
            found = self._filesystem.get_file_info(pafs.FileSelector(self.base, allow_not_found=True, recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be listed", self.base, error) from error
        return sorted((f.path, (f.mtime_ns or 0) // 1_000_000) for f in found if f.type == pafs.FileType.File)

    def discard_path(self, path: str) -> None:
        """Remove a file of `files`."""
        try:
            self._filesystem.delete_file(path)
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as error:
            raise failure("cannot be removed", path, error) from error


def close_quietly(stream: Any) -> None:
    """Close a file that will be removed, and ignore a failure to write its last bytes."""
    with contextlib.suppress(OSError, pa.ArrowException):
        stream.close()


def failure(what: str, location: str, error: BaseException) -> ConnectorError:
    """The error for I/O that failed at a location."""
    strerror = error.strerror if isinstance(error, OSError) else None
    reason = strerror or (str(error).splitlines() or [type(error).__name__])[0]
    hint = "check permissions and space where the table is"
    return ConnectorError(f"{location} {what}: {reason}", retryable=retryable_io(error), hint=hint)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
