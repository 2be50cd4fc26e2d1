"""One process at a time owns a job's folder.

On the local disk by `flock` on `.lock`: gone with its process, however that dies. Elsewhere by a file that says who owns the
folder: weaker, as nothing takes it away from a process that died (unless it was one of this machine), and of two that start at
the same instant both may believe that they own it.

The `filelock` package would serve for the local half alone: it does not say who holds a lock, and keeps nothing in the locked file,
where the owner and the highest checkpoint number are noted here.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import uuid
from dataclasses import asdict
from typing import Any

from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.storage.names import LOCK_FILE
from flowrun.state.storage.state_path import StatePath, failures


@record
class _Owner:
    host: str
    pid: int
    since_ms: int
    token: str


class FolderLock:
    """The lock of a job's folder, held until `release`. Also keeps the highest checkpoint number that was ever used there.

    Raises:
        StateError: another process holds it, or it cannot be written.
    """

    def __init__(self, folder: StatePath, clock: Clock) -> None:
        self._location = folder / LOCK_FILE
        self._folder = folder
        owner = _Owner(socket.gethostname(), os.getpid(), clock.now_ms(), uuid.uuid4().hex)
        self._owner: _Owner | None = owner
        self._descriptor: int | None = None
        if folder.is_local:
            self._lock_file()
        else:
            self._claim(owner)

    @property
    def highest(self) -> int:
        """The highest number noted; 0 if none was."""
        return int(self._content().get("highest", 0))

    def note(self, checkpoint_id: int) -> None:
        """Keep `checkpoint_id` if it is the highest so far."""
        if checkpoint_id > self.highest:
            self._write(checkpoint_id, self._owner)

    def release(self) -> None:
        """Give up the lock; idempotent."""
        if self._owner is None:
            return
        self._write(self.highest, None)
        self._owner = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    # ---- local

    def _lock_file(self) -> None:
        mode = 0o644 if self._location.shared else 0o600
        with failures("lock", self._location):
            descriptor = os.open(self._location.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise self._refused(self._content()) from None
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        self._write(self.highest, self._owner)

    # ---- elsewhere

    def _claim(self, owner: _Owner) -> None:
        content = self._content()
        known = content.get("owner")
        if known and not _is_gone(known):
            raise self._refused(content)
        self._write(int(content.get("highest", 0)), owner)
        now = self._content().get("owner") or {}
        if now.get("token") != owner.token:
            raise self._refused({"owner": now})

    def _refused(self, content: dict[str, Any]) -> StateError:
        owner = content.get("owner") or {}
        who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        hint = "stop that job first (flowrun jobs, flowrun stop), or use another checkpoint directory or pipeline name"
        if not self._folder.is_local:
            hint += f"; if that process is gone, delete {self._location}"
        return StateError(f"the checkpoint folder '{self._folder}' is in use by {who}", hint=hint)

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(self._location.read_bytes() or b"{}")
        except ValueError:  # cut off when its writer died: whoever holds the lock writes it anew
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, highest: int, owner: _Owner | None) -> None:
        text = json.dumps({"owner": None if owner is None else asdict(owner), "highest": highest}).encode()
        if self._descriptor is None:
            self._location.write_atomically(text)
            return
        with failures("write", self._location):  # in place: the lock is on this very file
            os.pwrite(self._descriptor, text.ljust(os.fstat(self._descriptor).st_size), 0)
            os.ftruncate(self._descriptor, len(text))


def highest_number(folder: StatePath) -> int | None:
    """The highest checkpoint number that was ever used in a job's folder; None: it was never locked. Needs no lock."""
    content = (folder / LOCK_FILE).read_bytes()
    if content is None:
        return None
    try:
        return int(json.loads(content).get("highest", 0))
    except (ValueError, AttributeError):  # cut off when its writer died
        return None


def _is_gone(owner: dict[str, Any]) -> bool:
    """Whether an owner was a process of this machine that does not exist any more."""
    if owner.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(owner["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
