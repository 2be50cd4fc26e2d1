"""Which of several job managers of one job leads: the others wait until it is gone.

The leader holds a lock on `.leader` in the job's folder from its start to its end. The system frees the lock with the process, however
that dies, so a new leader never meets the old one: whoever could still commit still holds the lock. On network file systems with such
locks (NFS 4) the server frees it when the machine of the leader has not renewed its lease. A leader whose job has come to its end says so
in the file; where it does not, the next one goes on.

No lock is ever taken from a leader that lives. One that hangs does not beat any more, which those that stand by see (`Silence`); they lead
when it has been ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket

from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.storage.names import LEADER_FILE
from flowrun.state.storage.state_path import StatePath, failures


@record
class Leader:
    """Who leads, or led.

    Attributes:
        host: of its machine.
        pid: its process.
        ended: how the job came to its end under it, such as `finished`; None: it did not.
    """

    host: str
    pid: int
    ended: str | None = None


class Silence:
    """How long the one who leads has not beaten, by the clock of this process.

    Args:
        told_after_s: from when on it is worth a word.
        now_s: monotonic.
    """

    def __init__(self, told_after_s: float, now_s: float) -> None:
        self._told_after_s = told_after_s
        self._since_s = now_s
        self._last_ns: int | None = None
        self._is_told = False

    def look(self, last_beat_ns: int, now_s: float) -> float | None:
        """Seconds of silence if that is news: once, until the leader beats again.

        >>> silence = Silence(10, 0)
        >>> [silence.look(beat, now) for beat, now in ((1, 0), (1, 9), (1, 11), (1, 30), (2, 31), (2, 42))]
        [None, None, 11, None, None, 11]
        """
        if last_beat_ns != self._last_ns:
            self._last_ns, self._since_s, self._is_told = last_beat_ns, now_s, False
        silent_s = now_s - self._since_s
        if self._is_told or silent_s < self._told_after_s:
            return None
        self._is_told = True
        return silent_s


class Leadership:
    """A candidate of one process. Close it.

    Args:
        folder: of the job; made if missing.

    Raises:
        StateError: the file system has no such locks, as object stores, or the folder cannot be written.
    """

    def __init__(self, folder: StatePath) -> None:
        if not folder.is_local:
            raise StateError(
                f"a standby needs checkpoints in a folder of a file system, which has locks: '{folder}' has none",
                hint="put the checkpoints into a folder that all machines mount, or leave --standby out",
            )
        folder.make_folder()
        self._location = folder / LEADER_FILE
        with failures("open", self._location):
            self._descriptor = os.open(self._location.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._leads = False

    def try_lead(self) -> bool:
        """Take the lead if nobody has it; whether this process leads now."""
        if self._leads:
            return True
        with failures("lock", self._location):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        self._leads = True
        return True

    def begin(self) -> None:
        """This process leads from now on: forget what became of the one before."""
        self._write(Leader(socket.gethostname(), os.getpid()))

    def end(self, how: str) -> None:
        """The job has come to its end under this leader: nobody is to go on with it."""
        self._write(Leader(socket.gethostname(), os.getpid(), how))

    def leader(self) -> Leader | None:
        """Who leads, or led last; None: nobody ever did, or it died as it wrote that."""
        with failures("read", self._location):
            text = os.pread(self._descriptor, _MOST_BYTES, 0)
        try:
            known = json.loads(text)
            return Leader(str(known["host"]), int(known["pid"]), known["ended"])
        except (ValueError, KeyError, TypeError):
            return None

    def beat(self) -> None:
        """The leader lives: those that stand by see it in the time of the file. Raises StateError: it cannot be written."""
        with failures("write", self._location):
            os.utime(self._descriptor)

    def last_beat_ns(self) -> int:
        """When the leader has beaten last, by its clock: whether that changes is all that it tells here."""
        with failures("read", self._location):
            return os.fstat(self._descriptor).st_mtime_ns

    def close(self) -> None:
        """Give up the lead. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, leader: Leader) -> None:
        text = json.dumps({"host": leader.host, "pid": leader.pid, "ended": leader.ended}).encode()
        with failures("write", self._location):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
            os.fsync(self._descriptor)


_MOST_BYTES = 4096
