"""What a program forces to disk, in order: what would be there after the power failed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Synced:
    """One call of `fsync`: of a file by its number (its name may change later), or of a folder with the names in it then."""

    path: Path
    inode: int
    names: frozenset[str] | None


class DiskLog:
    """Records every `os.fsync` of this process while a test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Synced] = []
        fsync = os.fsync

        def recorded(descriptor: int) -> None:
            about = os.fstat(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            names = frozenset(os.listdir(path)) if stat.S_ISDIR(about.st_mode) else None
            self.events.append(Synced(path, about.st_ino, names))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", recorded)

    def content_at(self, file: Path) -> int:
        """When the content of a file was forced to disk, as a place in `events`.

        Raises:
            AssertionError: it never was.
        """
        inode = file.stat().st_ino
        found = [i for i, e in enumerate(self.events) if e.names is None and e.inode == inode]
        assert found, f"the content of {file.name} was never forced to disk"
        return found[-1]

    def name_at(self, path: Path, *, without: str | None = None, after: int = -1) -> int:
        """When the name of a file or folder was forced to disk first, as a place in `events`.

        Args:
            path: of the file or folder.
            without: count only what happened while this name was not beside it.
            after: count only what happened after this place.

        Raises:
            AssertionError: it never was.
        """
        found = [
            i
            for i, e in enumerate(self.events)
            if i > after
            and e.names is not None
            and e.path == path.parent
            and path.name in e.names
            and without not in e.names
        ]
        assert found, f"the name {path.name} in {path.parent} was never forced to disk"
        return found[0]
