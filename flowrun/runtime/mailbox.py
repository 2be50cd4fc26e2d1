"""The mailbox of a subtask: everything that is not its next input element comes as a letter, run on the subtask's one thread.

After Apache Flink's `MailboxProcessor`: the default action processes input; it suspends when there is nothing to do, and is resumed
by whoever has something.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from enum import IntEnum

Letter = Callable[[], None]


class Priority(IntEnum):
    """Which letters go first; letters of one priority keep their order."""

    URGENT = 0
    """Cancel and the like."""
    NORMAL = 1
    LOW = 2
    """Work that may wait for all other letters."""


class Mailbox:
    """A thread-safe queue of letters with one reader.

    The condition's lock is re-entrant, so that a signal handler that interrupts a `put` on its own thread may put, too.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._letters: list[tuple[int, int, Letter]] = []
        self._order = itertools.count()
        self._resumed = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._letters)

    def put(self, letter: Letter, priority: Priority = Priority.NORMAL) -> bool:
        """Add a letter, from any thread; False if the mailbox is closed and the letter will never be read."""
        with self._condition:
            if self._closed:
                return False
            heapq.heappush(self._letters, (priority, next(self._order), letter))
            self._condition.notify_all()
            return True

    def resume(self) -> None:
        """Wake the reader out of `wait`: its default action may have something to do. Any thread."""
        with self._condition:
            self._resumed = True
            self._condition.notify_all()

    def take_nowait(self) -> Letter | None:
        """The next letter, or None."""
        if not self._letters:  # the common case needs no lock
            return None
        with self._condition:
            return heapq.heappop(self._letters)[2] if self._letters else None

    def wait(self) -> None:
        """Return once there is a letter or `resume` was called (since the last `wait`)."""
        with self._condition:
            while not self._letters and not self._resumed:
                self._condition.wait()
            self._resumed = False

    def wait_for_letter(self) -> None:
        """Return once there is a letter."""
        with self._condition:
            while not self._letters:
                self._condition.wait()

    def close(self) -> int:
        """Refuse letters from now on and drop those that are left; gives their number."""
        with self._condition:
            self._closed = True
            left = len(self._letters)
            self._letters.clear()
            return left
