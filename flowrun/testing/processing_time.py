"""Processing time for tests: callbacks run in order of time when the test moves the clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from flowrun.core.clock import ManualClock


class RegisteredCallback:
    """A callback that waits for its time; `cancel` forgets it."""

    def __init__(self, timestamp_ms: int, callback: Callable[[int], None]) -> None:
        self.timestamp_ms = timestamp_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Never run it."""
        self.cancelled = True


class ManualProcessingTime:
    """A `ProcessingTimeService` without threads: `advance` runs what falls due, each callback at its own time.

    >>> service = ManualProcessingTime(ManualClock())
    >>> seen = []
    >>> _ = service.register(20, lambda t: seen.append((t, service.now_ms())))
    >>> _ = service.register(10, lambda t: seen.append((t, service.now_ms())))
    >>> service.advance(25)
    >>> seen, service.now_ms()
    ([(10, 10), (20, 20)], 25)
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._queue: list[tuple[int, int, RegisteredCallback]] = []
        self._registered = 0

    def now_ms(self) -> int:
        """The clock's time, ms since the epoch."""
        return self._clock.now_ms()

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> RegisteredCallback:
        """Run `callback(timestamp_ms)` when time gets there; with the next `run_due` if it already has."""
        entry = RegisteredCallback(timestamp_ms, callback)
        heapq.heappush(self._queue, (timestamp_ms, self._registered, entry))
        self._registered += 1
        return entry

    @property
    def pending(self) -> tuple[int, ...]:
        """Times of the callbacks that wait, in order."""
        return tuple(sorted(at for at, _, entry in self._queue if not entry.cancelled))

    def run_due(self) -> None:
        """Run everything that is due now, also what the callbacks themselves register for now."""
        self._run_until(self.now_ms())

    def advance(self, ms: int) -> None:
        """Move time on by `ms`; callbacks on the way see the time that they asked for."""
        target = self.now_ms() + ms
        self._run_until(target)
        if target > self.now_ms():
            self._clock.advance(target - self.now_ms())

    def _run_until(self, target: int) -> None:
        while self._queue and self._queue[0][0] <= target:
            timestamp_ms, _, entry = heapq.heappop(self._queue)
            if entry.cancelled:
                continue
            if timestamp_ms > self.now_ms():
                self._clock.advance(timestamp_ms - self.now_ms())
            entry.callback(timestamp_ms)
