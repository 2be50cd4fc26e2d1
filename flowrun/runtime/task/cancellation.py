"""The cancellation of one subtask, and the waits of operators that it ends."""

from __future__ import annotations

import threading

from flowrun.core.clock import Clock
from flowrun.errors import JobCancelledError


class Cancellation:
    """Whether a subtask was cancelled. `cancel` may come from any thread; the other methods are for the subtask's own.

    Args:
        name: of the subtask, for messages.
        clock: of the process.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._condition = threading.Condition()
        self._cancelled = False

    def cancel(self) -> None:
        """End pauses, and have every later check raise. Idempotent."""
        self._cancelled = True
        with self._condition:
            self._condition.notify_all()

    def check(self) -> None:
        """Pass if the subtask was not cancelled.

        Raises:
            JobCancelledError: it was.
        """
        if self._cancelled:
            raise JobCancelledError(f"{self._name} was cancelled")

    def pause(self, ms: float) -> None:
        """Wait for `ms` of the clock.

        Raises:
            JobCancelledError: the subtask was cancelled before or meanwhile.
        """
        end_ns = self._clock.monotonic_ns() + int(ms * 1_000_000)
        with self._condition:
            self._clock.wait(self._condition, 0)  # a manual clock knows this waiter from now on
            while not self._cancelled:
                left_ns = end_ns - self._clock.monotonic_ns()
                if left_ns <= 0:
                    return
                self._clock.wait(self._condition, left_ns / 1_000_000)
        self.check()
