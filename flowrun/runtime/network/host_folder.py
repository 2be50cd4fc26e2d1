"""Folders for what does not fit into memory, and who removes them.

A folder belongs to the process that made it: it holds a lock in it as long as it lives, which the system takes back when that process
dies, however it does. Whoever makes the next one beside it removes those that nobody owns any more.

The owner may hand its folder to processes that it starts: what one of them has written can be read by the others when it is dead. So the
blocking partitions of a worker process outlive it (`HostFolder`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from flowrun.core.record import record

PREFIX = "flowrun-spill-"
_LOCK = ".owner"
_DEATH_S, _NOTICE_S = 5.0, 0.2
"""How long a process may take to be gone, on a busy machine; and until its children have another parent."""

_lock = threading.Lock()
_owned: dict[Path, tuple[int, int]] = {}
"""Folder → its owner's number, and the open file whose lock it holds. Processes that the owner forks know of it, and do not own it."""


@record
class HostFolder:
    """A folder that outlives the process that is given it. Those that are given the same one read what others have written there.

    Attributes:
        path: of the folder.
        id: names it in the cluster.
    """

    path: Path
    id: str

    def within(self, name: str) -> HostFolder:
        """A part of it for one purpose; it may not exist."""
        return HostFolder(self.path / "".join(c if c.isalnum() or c in ".-" else "_" for c in name), self.id)

    def of_job(self, job_id: str) -> Path:
        """Where a job's files are; it may not exist."""
        return self.path / job_id


def new_host_folder() -> HostFolder:
    """A new folder of this process, in the system's temporary folder."""
    return HostFolder(owned_folder(), secrets.token_hex(8))


def owned_folder(parent: Path | None = None) -> Path:
    """A new folder that this process owns, and only this user can enter; those beside it that nobody owns any more are removed.

    Args:
        parent: where it is made; None: the system's temporary folder.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    with _lock:
        remove_abandoned(parent)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        descriptor = os.open(folder / f"{_LOCK}.new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # A lock of the process, not of the open file: processes that it forks do not have it.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(folder / f"{_LOCK}.new", folder / _LOCK)
        _owned[folder] = os.getpid(), descriptor
    return folder


def remove_owned(folder: Path) -> None:
    """Delete a folder of this process, or of the one that it was forked from. Idempotent."""
    shutil.rmtree(folder, ignore_errors=True)
    with _lock:
        known = _owned.pop(folder, None)
    if known is not None:
        os.close(known[1])


def clear_owned(folder: Path) -> None:
    """Delete what is in a folder of this process."""
    for path in folder.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Delete the folders in `parent` whose owners are gone; those of other users are left alone."""
    with suppress(OSError):
        for folder in list(parent.glob(f"{PREFIX}*")):
            remove_if_abandoned(folder)


def remove_rest(folder: Path, parent: int) -> None:
    """At the end of a process below the owner: delete the folder if the owner is gone, or has deleted it too early.

    When the owner is killed those below it hear of that before its last thread has ended, and before they have another parent.

    Args:
        folder: of the owner.
        parent: that has forked this process; while it lives the owner does.
    """
    began = time.monotonic()
    while not (gone := remove_if_abandoned(folder)) and (folder / _LOCK).exists():
        passed = time.monotonic() - began
        if passed > _DEATH_S or (passed > _NOTICE_S and os.getppid() == parent):
            return
        time.sleep(0.02)
    if not gone:
        shutil.rmtree(folder, ignore_errors=True)


def remove_if_abandoned(folder: Path) -> bool:
    """Delete a folder if its owner is gone; whether it was."""
    if folder in _owned and _owned[folder][0] == os.getpid():
        return False  # its lock would go with the first descriptor that is closed
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # being made, of another user, or gone
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
