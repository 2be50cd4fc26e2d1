"""Folders and files on the local disk or on any `pyarrow.fs` file system: durable writing, listing, removing, and their errors.

On the local disk files are written to a temporary name, forced to disk and renamed; elsewhere a file appears when it is closed
(object stores) or is renamed by the file system. Every failure is one `StateError` that says what was to be done, and where.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.core.record import record
from flowrun.core.store_uris import with_time_limit
from flowrun.errors import StateError

TEMPORARY_SUFFIX = ".tmp"
"""Of files that are being written; whoever takes a job's folder removes them."""

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_ELSEWHERE = "name another folder (checkpoints: settings.checkpoint.dir; a cluster: --state)"
_REMEDIES = {
    errno.ENOSPC: f"the disk is full: free some space, or {_ELSEWHERE}",
    errno.EDQUOT: f"the disk quota is used up: free some space, or {_ELSEWHERE}",
    errno.EROFS: f"the file system is read-only: {_ELSEWHERE}",
    errno.EACCES: f"check who may write there, or {_ELSEWHERE}",
    errno.EPERM: f"check who may write there, or {_ELSEWHERE}",
    errno.ENOTDIR: "a part of the path is a file: remove it, or name another folder",
    errno.EEXIST: "something of that name is there already: remove it, or name another folder",
    errno.ENAMETOOLONG: "use a shorter path or pipeline name",
}


@record
class Entry:
    """One thing in a folder: its name, and its size in bytes (0 for folders)."""

    name: str
    is_folder: bool
    size: int = 0


@record(slots=False)
class StatePath:
    """A file or folder of checkpoints and savepoints. Picklable if its file system is.

    Attributes:
        filesystem: that holds it.
        path: on the file system, absolute, without a `/` at its end.
        uri: as users see it: an absolute path on the local disk, else a URI.
        shared: folders and files that are made here get the permissions that the process gives; else they are their owner's alone.
    """

    filesystem: pafs.FileSystem
    path: str
    uri: str
    shared: bool = False

    def __str__(self) -> str:
        return self.uri

    @property
    def is_local(self) -> bool:
        """Whether it is on the local disk."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    @property
    def name(self) -> str:
        """Its last part."""
        return posixpath.basename(self.path)

    @property
    def parent(self) -> StatePath:
        """The folder that it is in."""
        return StatePath(self.filesystem, posixpath.dirname(self.path), self.uri.rpartition("/")[0] or "/", self.shared)

    def __truediv__(self, relative: str) -> StatePath:
        path, uri = f"{self.path.rstrip('/')}/{relative}", f"{self.uri.rstrip('/')}/{relative}"
        return StatePath(self.filesystem, path, uri, self.shared)

    def below(self, relative: str) -> StatePath:
        """The file of a path that was read from state, which starts in this folder.

        Raises:
            StateError: the path leads out of the folder: it is absolute or has `..`, or a symbolic link on its way does.
        """
        found = self / relative
        parts = relative.split("/")
        if "" in parts or "." in parts or ".." in parts or "\0" in relative:
            raise self._outside(relative, "it is absolute, or goes up")
        if self.is_local and not os.path.realpath(found.path).startswith(os.path.realpath(self.path).rstrip("/") + "/"):
            raise self._outside(relative, "a symbolic link leads out")
        return found

    def _outside(self, relative: str, why: str) -> StateError:
        return StateError(
            f"the state in '{self}' names the file '{relative}', which is not below that folder: {why}",
            hint="flowrun never writes such paths: somebody altered the metadata; use another checkpoint or savepoint",
        )

    def located(self, uri: str) -> StatePath:
        """The location of a path or URI, on this file system if it is this folder or below it."""
        if uri == self.uri:
            return self
        below = self.uri.rstrip("/") + "/"
        return self / uri.removeprefix(below) if uri.startswith(below) else resolve(uri, shared=self.shared)

    # ---- looking

    def entries(self) -> list[Entry]:
        """What is directly in this folder, by name; nothing if there is no such folder."""
        with failures("list", self):
            found = self.filesystem.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))
        entries = [Entry(f.base_name, f.type == pafs.FileType.Directory, f.size or 0) for f in found]
        return sorted(entries, key=lambda e: e.name)

    def kind(self) -> pafs.FileType:
        """Whether it is a file, a folder, or not there."""
        with failures("look at", self):
            return self.filesystem.get_file_info(self.path).type

    def read_bytes(self) -> bytes | None:
        """The content of this file; None if it is not there."""
        with failures("read", self):
            try:
                with self.filesystem.open_input_file(self.path) as file:
                    content: bytes = file.read()
                    return content
            except FileNotFoundError:
                return None

    # ---- changing

    def make_folder(self) -> None:
        """Make this folder and those above it; no error if it is there, whatever its permissions are."""
        with failures("make the folder", self, {errno.ENOENT: f"nothing can be made there: {_ELSEWHERE}"}):
            if self.is_local:
                _make_local_folder(self.path, 0o777 if self.shared else 0o700)
            else:
                self.filesystem.create_dir(self.path, recursive=True)

    def write_atomically(self, content: bytes) -> None:
        """Make this file with all of `content`, or not at all; its folder must be there. Durable once the folder is synced."""
        temporary = self.parent / f"{self.name}.{uuid.uuid4().hex[:8]}{TEMPORARY_SUFFIX}"
        with failures("write", self):
            try:
                if self.is_local:
                    with temporary.create_local() as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(temporary.path, self.path)
                else:
                    with self.filesystem.open_output_stream(temporary.path) as stream:
                        stream.write(content)
                    self.filesystem.move(temporary.path, self.path)
            except BaseException:
                temporary.remove_quietly()
                raise

    def create_local(self) -> BinaryIO:
        """Open this file, which must not be there yet, for writing. Of local files only; raises OSError."""
        mode = 0o666 if self.shared else 0o600
        return cast(BinaryIO, open(self.path, "xb", opener=lambda path, flags: os.open(path, flags, mode)))

    def sync_folder(self) -> None:
        """Force the names in this folder to disk; other file systems than the local one need no such thing."""
        if not self.is_local:
            return
        with failures("sync", self):
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove_file(self) -> None:
        """Delete this file; no error if it is not there."""
        with failures("delete", self):
            try:
                self.filesystem.delete_file(self.path)
            except FileNotFoundError:
                return

    def remove_folder(self) -> None:
        """Delete this folder with everything in it; no error if it is not there."""
        with failures("delete the folder", self):
            try:
                self.filesystem.delete_dir(self.path)
            except FileNotFoundError:
                return

    def remove_quietly(self) -> None:
        """Delete this file after a failure that is reported already: a second one would hide it, and clean-up finds the file."""
        try:
            self.remove_file()
        except StateError:
            return


def resolve(text: str, *, shared: bool = False) -> StatePath:
    """The path that a user's path or URI names; `shared` as in `StatePath`.

    Raises:
        StateError: the text is empty, has a NUL character, or is no URI that can be opened.
    """
    if not text.strip():
        raise StateError("an empty path names no folder", hint="write . for the working directory")
    if "\0" in text:
        raise StateError(f"the path '{text}' has a NUL character, which no path can have", hint="take it out")
    if not _SCHEME.match(text) or text.startswith("file://"):
        path = os.path.abspath(os.path.expanduser(text.removeprefix("file://")))
        return StatePath(pafs.LocalFileSystem(), path, path, shared)
    try:
        filesystem, path = pafs.FileSystem.from_uri(with_time_limit(text))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise StateError(
            f"'{text}' is no location that can be opened: {error}", hint="name a folder, or a URI that pyarrow knows"
        ) from error
    return StatePath(filesystem, path.rstrip("/"), text.rstrip("/"), shared)


def _make_local_folder(path: str, mode: int) -> None:
    """Make a folder and those above it that are missing, all with these permissions (less the umask)."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        above = os.path.dirname(path)
        if above == path:
            break
        path = above
    for folder in reversed(missing):
        try:
            os.mkdir(folder, mode)
        except FileExistsError:
            if os.path.isdir(folder):
                continue
            if folder == missing[0]:
                raise
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None


@contextmanager
def failures(action: str, location: StatePath, remedies: Mapping[int, str] = MappingProxyType({})) -> Iterator[None]:
    """Turns what a file system raises inside into one `StateError`: cannot `action` `location`, why, and what to do.

    `remedies` says what to do about the errors of some numbers, beside those that need the same whatever is done.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(action, location, error, remedies) from error
    except pa.ArrowException as error:
        raise StateError(f"cannot {action} '{location}': {error}") from error


def storage_error(
    action: str, location: StatePath, error: OSError, remedies: Mapping[int, str] = MappingProxyType({})
) -> StateError:
    """The error for an action on a location that the file system refused; see `failures`."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StateError(f"cannot {action} '{location}': {reason}", hint={**_REMEDIES, **remedies}.get(error.errno or 0))
