"""The future of a savepoint or checkpoint that was asked for: its path, or the reason why there is none."""

from __future__ import annotations

import threading

from flowrun.core.clock import Clock
from flowrun.errors import StateError


class SnapshotTicket:
    """The answer to one request for a snapshot. Thread-safe.

    Args:
        request_id: unique in the job.
        clock: of time-outs.
    """

    def __init__(self, request_id: str, clock: Clock) -> None:
        self.request_id = request_id
        self._clock = clock
        # Re-entrant: a signal handler may look at a ticket that the thread that it interrupted waits for.
        self._condition = threading.Condition(threading.RLock())
        self._path: str | None = None
        self._failure: StateError | None = None

    @property
    def is_answered(self) -> bool:
        """Whether `wait` returns or raises at once."""
        with self._condition:
            return self._path is not None or self._failure is not None

    def wait(self, timeout_ms: float | None = None) -> str:
        """The path to resume from, once the snapshot is complete.

        Raises:
            StateError: there is no snapshot, and why; or it is not complete after `timeout_ms` (it may still become so).
        """
        end_ns = None if timeout_ms is None else self._clock.monotonic_ns() + int(timeout_ms * 1e6)
        with self._condition:
            while self._path is None and self._failure is None:
                left_ms = None if end_ns is None else (end_ns - self._clock.monotonic_ns()) / 1e6
                if left_ms is not None and left_ms <= 0:
                    raise StateError(
                        f"the snapshot is not complete after {timeout_ms:.0f} ms",
                        hint="it goes on; wait longer, or look at the job's back pressure",
                    )
                self._clock.wait(self._condition, left_ms)
            if self._failure is not None:
                raise StateError(self._failure.message, hint=self._failure.hint)
            assert self._path is not None
            return self._path

    def succeed(self, path: str) -> None:
        """The snapshot exists. The job master's side; the first answer counts."""
        with self._condition:
            if not self.is_answered:
                self._path = path
                self._condition.notify_all()

    def fail(self, reason: str, hint: str | None = None) -> None:
        """There will be no snapshot. The job master's side; the first answer counts."""
        with self._condition:
            if not self.is_answered:
                self._failure = StateError(reason, hint=hint)
                self._condition.notify_all()
