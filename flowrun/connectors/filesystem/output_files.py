"""Writes files that become visible only when they are complete: under a hidden name first, forced to disk, and then renamed."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow.fs as pafs

from flowrun.api.refusals import retryable_io
from flowrun.connectors.filesystem.table_path import TablePath, is_hidden
from flowrun.errors import ConnectorError


class OutputFolder:
    """A folder to write to, local or remote. It is used by one thread; every method blocks on I/O, and raises ConnectorError if it fails.

    Args:
        location: the folder.
        option: the option that names the folder, for messages.
    """

    def __init__(self, location: TablePath, option: str = "path") -> None:
        self._location = location
        self._option = option
        self._filesystem, self.base = location.open()
        self._local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._known: set[str] = set()
        self._unsettled: set[str] = set()

    def path(self, *parts: str) -> str:
        """A path below the folder."""
        return "/".join([self.base.rstrip("/"), *(p for p in parts if p)])

    def prepare(self) -> None:
        """Create the folder if it is missing and check that files can be created in it."""
        if self._filesystem.get_file_info(self.base).type == pafs.FileType.File:
            raise ConnectorError(
                f"{self._option} '{self._location.text}' is a file, but a folder to write to is needed",
                retryable=False,
                hint="name a folder; the files in it get their names from flowrun",
            )
        probe = self.path(f".probe-{uuid.uuid4().hex}")
        try:
            self._make_folder(self.base)
            if self._local:
                with self._filesystem.open_output_stream(probe):
                    pass
                self._filesystem.delete_file(probe)
        except OSError as error:
            raise self._failed("cannot be written", self.base, error) from error
        self._known.add(self.base)

    def create(self, path: str) -> Any:
        """A pyarrow output stream to a new file; missing folders are created."""
        folder = path.rpartition("/")[0]
        try:
            if folder not in self._known:
                self._make_folder(folder)
                self._known.add(folder)
            self._unsettled.add(folder)
            return self._filesystem.open_output_stream(path)
        except OSError as error:
            raise self._failed("cannot be created", path, error) from error

    def _make_folder(self, folder: str) -> None:
        """Create a folder and those above it; before `settle` it may still be lost in a crash of the machine."""
        missing = folder
        while self._local and not os.path.isdir(missing):
            missing = os.path.dirname(missing)
            self._unsettled.add(missing)
        self._filesystem.create_dir(folder, recursive=True)

    def settle(self) -> None:
        """Force the entries of folders that were created to disk, so that files in them are found after a crash of the machine."""
        folders, self._unsettled = self._unsettled, set()
        self._sync_all(folders)

    def _sync_all(self, paths: Iterable[str]) -> None:
        if not self._local:
            return
        for path in sorted(paths):
            try:
                _sync(path)
            except OSError as error:
                raise self._failed("cannot be forced to disk", path, error) from error

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

    def make_folders(self, paths: Iterable[str]) -> None:
        """Create the folders of files that are to be renamed, durably."""
        for folder in sorted({path.rpartition("/")[0] for path in paths} - self._known):
            try:
                self._make_folder(folder)
            except OSError as error:
                raise self._failed("cannot be created", folder, error) from error
            self._known.add(folder)
        self.settle()

    def force(self, paths: Iterable[str]) -> None:
        """Force finished files to disk."""
        self._sync_all(paths)

    def close_quietly(self, stream: Any) -> None:
        """Close a file that will be removed, and ignore a failure to write its last bytes."""
        with contextlib.suppress(OSError):
            stream.close()

    def publish(self, renames: Sequence[tuple[str, str]]) -> int:
        """Rename finished files to their visible names, durably; gives how many had been renamed before.

        Args:
            renames: (the hidden path, the visible path) of each file.

        Raises:
            ConnectorError: a file has neither name, or a rename fails. Other files may have been renamed; a second call renames the rest.
        """
        before = 0
        for temporary, final in renames:
            before += not self._rename(temporary, final)
        self._sync_all({final.rpartition("/")[0] for _, final in renames})
        return before

    def _rename(self, temporary: str, final: str) -> bool:
        try:
            if self._filesystem.get_file_info(temporary).type == pafs.FileType.NotFound:
                if self._filesystem.get_file_info(final).type == pafs.FileType.NotFound:
                    raise ConnectorError(
                        f"{final} cannot be committed: neither it nor {temporary}, which a checkpoint says was written, is there",
                        hint="rows are lost: somebody removed one of the two. Put it back, or resume from an older checkpoint or "
                        "savepoint, from before the file was written (flowrun resume --from-savepoint)",
                    )
                return False
            self._filesystem.move(temporary, final)
        except OSError as error:
            raise self._failed("cannot be committed", final, error) from error
        return True

    def hidden_here(self, ending: str) -> list[str]:
        """The `hidden_files` directly in this folder, sorted."""
        found = (f for f in self._listed() if f.type == pafs.FileType.File)
        return sorted(f.path for f in found if f.base_name.startswith(".") and f.base_name.endswith(ending))

    def hidden_files(self, ending: str) -> list[str]:
        """All files below the folder whose names begin with a dot and end with `ending`; none if the folder does not exist."""
        return [
            f.path
            for f in self._listed(recursive=True)
            if f.base_name.startswith(".") and f.base_name.endswith(ending) and f.type == pafs.FileType.File
        ]

    def folders_without(self, mark: str) -> list[str]:
        """Folders below this one, relative to it, that hold visible files and none called `mark`, sorted."""
        names: dict[str, set[str]] = {}
        for entry in self._listed(recursive=True):
            folder, _, name = entry.path.removeprefix(self.base).strip("/").rpartition("/")
            if (
                entry.type == pafs.FileType.File
                and folder
                and not is_hidden(folder)
                and (name == mark or not name.startswith((".", "_")))
            ):
                names.setdefault(folder, set()).add(name)
        return sorted(folder for folder, inside in names.items() if mark not in inside)

    def hidden_folders(self, prefix: str) -> list[str]:
        """Folders directly in this one whose names begin with `prefix`; none if this one does not exist."""
        return [f.path for f in self._listed() if f.type == pafs.FileType.Directory and f.base_name.startswith(prefix)]

    def visible_files(self) -> list[str]:
        """All files below the folder that have no hidden name in their path, sorted."""
        found = (f for f in self._listed(recursive=True) if f.type == pafs.FileType.File)
        return sorted(f.path for f in found if not is_hidden(f.path.removeprefix(self.base)))

    def marks(self, name: str) -> list[str]:
        """All files called `name` in folders below this one that have no hidden name in their path."""
        found = (f for f in self._listed(recursive=True) if f.type == pafs.FileType.File and f.base_name == name)
        return [
            f.path for f in found if not is_hidden(f.path.removeprefix(self.base).rpartition("/")[0].strip("/") or "x")
        ]

    def _listed(self, *, recursive: bool = False) -> Sequence[pafs.FileInfo]:
        try:
            selector = pafs.FileSelector(self.base, allow_not_found=True, recursive=recursive)
            found: Sequence[pafs.FileInfo] = self._filesystem.get_file_info(selector)
        except OSError as error:
            raise self._failed("cannot be listed", self.base, error) from error
        return found

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None: there is no such file."""
        try:
            if self._filesystem.get_file_info(path).type == pafs.FileType.NotFound:
                return None
            with self._filesystem.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except OSError as error:
            raise self._failed("cannot be read", path, error) from error
        return content

    def write_whole(self, path: str, data: bytes) -> None:
        """Write a small file durably; it becomes visible when it is complete."""
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.inprogress"
        stream = self.create(temporary)
        self.write(stream, data, temporary)
        self.finish(stream, temporary)
        self.publish([(temporary, path)])

    def discard_folder(self, path: str) -> None:
        """Remove a folder and all that is in it. It is no error if it does not exist."""
        try:
            if self._filesystem.get_file_info(path).type != pafs.FileType.NotFound:
                self._filesystem.delete_dir(path)
        except OSError as error:
            raise self._failed("cannot be removed", path, error) from error

    def discard_empty(self, folder: str, mark: str) -> None:
        """Remove a folder below this one, with its mark, if it holds no other file; then those above it in the same way."""
        while folder.startswith(self.base.rstrip("/") + "/"):
            try:
                inside = self._filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
                if any(f.base_name != mark for f in inside):
                    return
                if self._filesystem.get_file_info(folder).type != pafs.FileType.NotFound:
                    self._filesystem.delete_dir(folder)
            except OSError as error:
                raise self._failed("cannot be removed", folder, error) from error
            folder = folder.rpartition("/")[0]

    def discard(self, path: str) -> None:
        """Remove a file. It is no error if it does not exist."""
        try:
            if self._filesystem.get_file_info(path).type != pafs.FileType.NotFound:
                self._filesystem.delete_file(path)
        except OSError as error:
            raise self._failed("cannot be removed", path, error) from error

    def discard_durably(self, path: str) -> None:
        """Remove a file durably. It is no error if it does not exist."""
        folder = path.rpartition("/")[0]
        if self.exists(path):
            self.discard(path)
            self._sync_all([folder])

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder at a path."""
        try:
            found: bool = self._filesystem.get_file_info(path).type != pafs.FileType.NotFound
        except OSError as error:
            raise self._failed("cannot be looked at", path, error) from error
        return found

    def holds(self, path: str) -> bool:
        """Whether a path is below this folder.

        >>> folder = OutputFolder(TablePath("/data/out"))
        >>> folder.holds("/data/out/day=1/part-0.json"), folder.holds("/data/out/../other"), folder.holds("/data/out2/x")
        (True, False, False)
        """
        base = self.base.rstrip("/") + "/"
        return path.startswith(base) and not {"", ".", ".."} & set(path.removeprefix(base).split("/"))

    def failure(self, path: str, error: OSError) -> ConnectorError:
        """The error for a write that failed in a format that writes the file itself."""
        return self._failed("cannot be written", path, error)

    def _failed(self, what: str, path: str, error: OSError) -> ConnectorError:
        reason = error.strerror or str(error).splitlines()[0]
        hint = f"check permissions and space of {self._option}"
        return ConnectorError(f"{path} {what}: {reason}", retryable=retryable_io(error), hint=hint)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
