"""Clocks: the only readers of wall time, injected everywhere."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits. Thread-safe."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back; only differences mean anything."""
        ...

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition until notified or until `timeout_ms` of this clock passed; False on time-out."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary point."""
        return time.perf_counter_ns()

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition; False on time-out."""
        return condition.wait(None if timeout_ms is None else max(timeout_ms, 0) / 1000)


class ManualClock:
    """A clock for tests: time moves only by `advance`, which wakes every waiter.

    Thread-safe. A waiter whose deadline is not reached goes on waiting. A condition that was waited on once is notified by every
    `advance` from then on: a thread that holds it while it looks at the time and then waits misses none (a first `wait(…, 0)`
    makes it known).
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._lock = threading.Lock()
        self._now_ns = start_ms * 1_000_000
        self._waiters: weakref.WeakSet[threading.Condition] = weakref.WeakSet()

    def now_ms(self) -> int:
        """Milliseconds since the epoch as set by the test."""
        return self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Same time line as `now_ms`, in ns."""
        return self._now_ns

    def advance(self, ms: int) -> None:
        """Move time on by `ms` and wake all waiters."""
        with self._lock:
            self._now_ns += ms * 1_000_000
            waiters = list(self._waiters)
        for condition in waiters:
            with condition:
                condition.notify_all()

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition until notified; False if this clock's deadline passed meanwhile."""
        with self._lock:
            self._waiters.add(condition)
            deadline = None if timeout_ms is None else self._now_ns + int(timeout_ms * 1_000_000)
            if deadline is not None and deadline <= self._now_ns:
                return False
        condition.wait()
        return deadline is None or self._now_ns < deadline
