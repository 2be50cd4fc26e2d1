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
        """Wait on a held condition; False on time-out. One of more than some hundred years counts as that long."""
        return condition.wait(None if timeout_ms is None else min(max(timeout_ms, 0) / 1000, threading.TIMEOUT_MAX))


class ForwardClock:
    """Another clock whose time of day never goes back: the processing time of one job, which all of its parts read.

    When the other clock is set back, time goes on from where it was, at the pace of its monotonic part, until the other clock has caught
    up. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shown_ns = clock.now_ms() * 1_000_000
        self._seen_ns = clock.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since the epoch; not below what was given before, and not below that with the time that has passed since."""
        with self._lock:
            seen_ns = self._clock.monotonic_ns()
            passed_ns = max(seen_ns - self._seen_ns, 0)
            self._shown_ns = max(self._clock.now_ms() * 1_000_000, self._shown_ns + passed_ns)
            self._seen_ns = max(seen_ns, self._seen_ns)
            return self._shown_ns // 1_000_000

    def not_before(self, time_ms: int) -> int:
        """Go on from a time that was reached already, on this machine or another; gives by how many ms this clock was behind it."""
        behind_ms = time_ms - self.now_ms()
        with self._lock:
            self._shown_ns = max(self._shown_ns, time_ms * 1_000_000)
        return max(behind_ms, 0)

    def monotonic_ns(self) -> int:
        """That of the other clock."""
        return self._clock.monotonic_ns()

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Wait on a held condition as the other clock does."""
        return self._clock.wait(condition, timeout_ms)


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
