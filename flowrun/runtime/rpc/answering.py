"""Threads that answer calls: as many as calls are under way, up to a bound, so that no peer makes a process start threads without end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

MOST_THREADS = 32
"""Of one connection. A call may wait, as for the end of a job's threads, and holds up no other meanwhile."""
MOST_WAITING = 1_000
"""Calls of one connection that wait for a thread; more are refused."""


class AnsweringThreads:
    """Runs work in the order in which it comes, on threads that end when nothing is left. Thread-safe.

    Args:
        name: of the threads.
        most_threads: at one time.
        most_waiting: what may wait beside them.
    """

    def __init__(self, name: str, most_threads: int = MOST_THREADS, most_waiting: int = MOST_WAITING) -> None:
        self._name = name
        self._most_threads = most_threads
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = 0

    def run(self, work: Callable[[], None]) -> bool:
        """Have work done, which must raise nothing; False if too much waits."""
        with self._lock:
            if len(self._waiting) >= self._most_waiting:
                return False
            self._waiting.append(work)
            if self._threads < self._most_threads:
                self._threads += 1
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                work = self._waiting.popleft()
            work()
