"""File systems for tests: one that is not the local disk, and one that fails when told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.state.storage.state_path import StatePath


def elsewhere(folder: Path) -> StatePath:
    """A location that flowrun must treat like an object store, though its files are in `folder`."""
    return StatePath(pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), "state", "fake://store/state")


class FailingFileSystem(pafs.FileSystemHandler):
    """The files of a folder; asks `fails` before each action, which may raise what a real file system would.

    Args:
        folder: that holds the files.
        fails: gets the action (`write`, `open`, `delete`, `move`, `list`, `make`, `look`) and the path.
    """

    def __init__(self, folder: Path, fails: Callable[[str, str], None]) -> None:
        self._inner = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
        self._fails = fails

    def get_type_name(self) -> str:
        return "failing"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        for path in paths:
            self._fails("look", path)
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> Any:
        self._fails("list", selector.base_dir)
        return self._inner.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._fails("make", path)
        self._inner.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._fails("delete", path)
        self._inner.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        self._inner.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise AssertionError("nobody deletes everything")

    def delete_file(self, path: str) -> None:
        self._fails("delete", path)
        self._inner.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self._fails("move", dest)
        self._inner.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self._inner.copy_file(src, dest)

    def open_input_stream(self, path: str) -> Any:
        self._fails("open", path)
        return self._inner.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        self._fails("open", path)
        return self._inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._fails("create", path)
        return pa.PythonFile(
            _Stream(self._inner.open_output_stream(path), lambda: self._fails("write", path)), mode="w"
        )

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise AssertionError("nothing is ever appended to")


class _Stream:
    def __init__(self, inner: Any, before_write: Callable[[], None]) -> None:
        self._inner = inner
        self._before_write = before_write

    def write(self, data: bytes) -> int:
        self._before_write()
        written: int = self._inner.write(data)
        return written

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)


def failing(folder: Path, fails: Callable[[str, str], None]) -> StatePath:
    """A location on a `FailingFileSystem`."""
    return StatePath(pafs.PyFileSystem(FailingFileSystem(folder, fails)), "state", "fake://store/state")
