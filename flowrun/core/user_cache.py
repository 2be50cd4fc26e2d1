"""Folders of this user for files that can be had again: private ones, with a bound on what they keep."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

NEW = ".new-"
"""How names of files begin that are being written."""
ABANDONED_AFTER_S = 600.0
"""A file that is not finished after so long never will be."""


def cache_folders() -> Sequence[Path]:
    """Where this user's caches may be, the best place first: FLOWRUN_CACHE_DIR if it is set, else the user's folder for such things, and
    that of temporary files.
    """
    named = os.environ.get("FLOWRUN_CACHE_DIR")
    if named:
        return (Path(named),)
    found = [Path(tempfile.gettempdir()) / f"flowrun-cache-{os.geteuid()}"]
    with suppress(RuntimeError):  # no home
        found.insert(0, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowrun")
    return found


def private_folder(folder: Path, forbidden: int = 0o077) -> Path:
    """A folder of this user, made if it is not there, in which others have none of the `forbidden` rights.

    Raises:
        OSError: it cannot be made.
        PermissionError: it is not this user's, or others have such rights.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & forbidden:
        raise PermissionError(f"other users may change what is in {folder}")
    return folder


def make_room(folder: Path, most_bytes: int) -> None:
    """Delete what was not used for longest until a folder has no more than that, and what was begun long ago and never finished."""
    kept: list[tuple[float, int, Path]] = []
    for place in entries(folder):
        with suppress(OSError):  # deleted meanwhile
            found = place.lstat()
            if place.name.startswith(NEW) and time.time() - found.st_mtime > ABANDONED_AFTER_S:
                place.unlink()
            else:
                kept.append((found.st_mtime, found.st_size, place))
    total = sum(size for _, size, _ in kept)
    for _, size, place in sorted(kept):
        if total <= most_bytes:
            break
        with suppress(OSError):
            place.unlink()
        total -= size


def entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []
