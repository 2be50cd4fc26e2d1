"""Files that appear only whole: written under a hidden name, forced to disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import Any

import pyarrow.fs as pafs

from flowrun.connectors.filesystem.locations import Location
from flowrun.errors import ConnectorError


class OutputFolder:
    """A folder to write to, local or remote. Not thread-safe; every method blocks on I/O and raises ConnectorError.

    Args:
        location: the folder.
        option: the option that names it, for messages.
    """

    def __init__(self, location: Location, option: str = "path") -> None:
        self._location = location
        self._option = option
        self._filesystem, self.base = location.open()
        self._local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._known: set[str] = set()

    def path(self, *parts: str) -> str:
        """A path below the folder."""
        return "/".join([self.base.rstrip("/"), *(p for p in parts if p)])

    def prepare(self) -> None:
        """Create the folder if it is missing and check that files can be created in it."""
        if self._filesystem.get_file_info(self.base).type == pafs.FileType.File:
            raise ConnectorError(
                f"{self._option} '{self._location.text}' is a file, but a folder to write to is needed",
                hint="name a folder; the files in it get their names from flowrun",
            )
        probe = self.path(f".probe-{uuid.uuid4().hex}")
        try:
            self._filesystem.create_dir(self.base, recursive=True)
            if self._local:
                with self._filesystem.open_output_stream(probe):
                    pass
                self._filesystem.delete_file(probe)
        except OSError as error:
            raise self._failed("cannot be written", self.base, error) from error
        self._known.add(self.base)

    def create(self, path: str) -> Any:
        """A new file to write, a pyarrow output stream; missing folders are created."""
        folder = path.rpartition("/")[0]
        try:
            if folder not in self._known:
                self._filesystem.create_dir(folder, recursive=True)
                self._known.add(folder)
            return self._filesystem.open_output_stream(path)
        except OSError as error:
            raise self._failed("cannot be created", path, error) from error

    def write(self, stream: Any, data: Any, path: str) -> None:
        """Append bytes."""
        try:
            stream.write(data)
        except OSError as error:
            raise self._failed("cannot be written", path, error) from error

    def finish(self, stream: Any, path: str) -> None:
        """Close a file and force it to disk."""
        try:
            stream.close()
            if self._local:
                _sync(path)
        except OSError as error:
            raise self._failed("cannot be written", path, error) from error

    def close_quietly(self, stream: Any) -> None:
        """Close a file that will be removed: whether its last bytes reach the disk does not matter."""
        with contextlib.suppress(OSError):
            stream.close()

    def publish(self, temporary: str, final: str) -> bool:
        """Rename a finished file to its visible name; False if that had been done before.

        Raises:
            ConnectorError: neither name exists, or the rename fails.
        """
        try:
            if self._filesystem.get_file_info(temporary).type == pafs.FileType.NotFound:
                if self._filesystem.get_file_info(final).type == pafs.FileType.NotFound:
                    raise ConnectorError(
                        f"{temporary} is gone and {final} is not there: somebody removed a file to be committed"
                    )
                return False
            self._filesystem.move(temporary, final)
            if self._local:
                _sync(final.rpartition("/")[0])
        except OSError as error:
            raise self._failed("cannot be committed", final, error) from error
        return True

    def discard(self, path: str) -> None:
        """Remove a file; nothing happens if it is gone."""
        try:
            if self._filesystem.get_file_info(path).type != pafs.FileType.NotFound:
                self._filesystem.delete_file(path)
        except OSError as error:
            raise self._failed("cannot be removed", path, error) from error

    def failure(self, path: str, error: OSError) -> ConnectorError:
        """The error for a write that failed below this class (a format that writes the file itself)."""
        return self._failed("cannot be written", path, error)

    def _failed(self, what: str, path: str, error: OSError) -> ConnectorError:
        reason = error.strerror or str(error).splitlines()[0]
        return ConnectorError(f"{path} {what}: {reason}", hint=f"check permissions and space of {self._option}")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
