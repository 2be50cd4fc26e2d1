"""The mailbox of a thread: whatever others want of it comes as a mail, a function that this one thread runs.

After Apache Flink's `MailboxProcessor`. A subtask's thread runs mails between two elements of its input; when there is neither a mail
nor input, it waits until somebody resumes it. The job master's thread does nothing but run mails.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from enum import IntEnum

Mail = Callable[[], None]
Post = Callable[[Mail], None]
"""Puts a mail into a mailbox."""


class Priority(IntEnum):
    """Which mails go first; mails of one priority keep their order."""

    URGENT = 0
    """Cancel and the like."""
    NORMAL = 1
    LOW = 2
    """Work that may wait for all other mails."""


class Mailbox:
    """A thread-safe queue of mails with one reader.

    The condition's lock is re-entrant, so that a signal handler that interrupts a `put` on its own thread may put, too.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._mails: list[tuple[int, int, Mail]] = []
        self._order = itertools.count()
        self._resumed = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._mails)

    def put(self, mail: Mail, priority: Priority = Priority.NORMAL) -> bool:
        """Add a mail, from any thread; False if the mailbox is closed and the mail will never be read."""
        with self._condition:
            if self._closed:
                return False
            heapq.heappush(self._mails, (priority, next(self._order), mail))
            self._condition.notify_all()
            return True

    def resume(self) -> None:
        """Wake the reader out of `wait`: its default action may have something to do. Any thread."""
        with self._condition:
            self._resumed = True
            self._condition.notify_all()

    def take_nowait(self) -> Mail | None:
        """The next mail, or None."""
        if not self._mails:  # the common case needs no lock
            return None
        with self._condition:
            return heapq.heappop(self._mails)[2] if self._mails else None

    def wait(self) -> None:
        """Return once there is a mail or `resume` was called (since the last `wait`)."""
        with self._condition:
            while not self._mails and not self._resumed:
                self._condition.wait()
            self._resumed = False

    def is_awake_nowait(self) -> bool:
        """Whether `wait` would return at once; as after it, what resumed the reader is forgotten."""
        with self._condition:
            resumed, self._resumed = self._resumed, False
            return bool(self._mails) or resumed

    def wait_for_mail(self) -> None:
        """Return once there is a mail."""
        with self._condition:
            while not self._mails:
                self._condition.wait()

    def close(self) -> int:
        """Refuse mails from now on and drop those that are left; gives their number."""
        with self._condition:
            self._closed = True
            left = len(self._mails)
            self._mails.clear()
            return left
