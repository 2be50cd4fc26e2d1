"""Timers: one thread a process that runs short callbacks when they are due, by the injected clock.

It serves the processing-time services of all subtasks (whose callbacks it turns into mails), the flusher of network buffers and
the job master's periodic work.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from flowrun.core.clock import Clock

_SPARE = 64
"""Cancelled timers that are not worth looking for."""

_LOOK_EVERY_MS = 500.0
"""How long a clock may have jumped ahead before timers by the time of day know of it: nothing wakes who waits for it then."""


class Timer:
    """A callback that waits for its time. `cancel` may come from any thread."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback if it has not run."""
        self.callback = None


class _Waiting:
    """Timers in order of their times. Most are cancelled before these: such are forgotten when there may be as many of them as others."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._look_at = _SPARE

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> int | None:
        """When the first one is due, be it cancelled."""
        return self._heap[0][0] if self._heap else None

    def add(self, due: int, timer: Timer) -> bool:
        """Whether it is the first one now."""
        heapq.heappush(self._heap, (due, next(self._order), timer))
        if len(self._heap) > self._look_at:
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._look_at = 2 * len(self._heap) + _SPARE
        return self._heap[0][2] is timer

    def pop_due(self, now: int) -> Timer | None:
        """One that is due, taken out."""
        return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None


class TimerThread:
    """Runs callbacks at given times of a clock, or after given durations, on one thread that starts with the first timer.

    Thread-safe. Times of day follow the clock wherever it jumps; durations do not: a clock that is set back by an hour must not
    hold up checkpoints and flushes for an hour. Callbacks must not block, and must not raise: one that does ends up in `failure`,
    and the thread goes on.
    """

    def __init__(self, clock: Clock, name: str = "flowrun-timers") -> None:
        self.clock = clock
        self._name = name
        self._condition = threading.Condition()
        self._by_time = _Waiting()
        """By ms since the epoch."""
        self._by_duration = _Waiting()
        """By monotonic ns."""
        self._thread: threading.Thread | None = None
        self._closed = False
        self.failure: BaseException | None = None

    def at(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` once the clock shows `due_ms` (ms since the epoch) or later; soon if it already does."""
        return self._add(self._by_time, due_ms, callback)

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` in `delay_ms`, whatever happens to the time of day."""
        return self._add(self._by_duration, self.clock.monotonic_ns() + delay_ms * 1_000_000, callback)

    def _add(self, waiting: _Waiting, due: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        with self._condition:
            if self._closed:
                timer.cancel()
                return timer
            is_first = waiting.add(due, timer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif is_first:
                self._condition.notify_all()
        return timer

    @property
    def waiting(self) -> int:
        """How many timers are kept, some of which may be cancelled."""
        return len(self._by_time) + len(self._by_duration)

    def close(self) -> None:
        """Forget all timers and end the thread. Idempotent."""
        with self._condition:
            self._closed = True
            self._by_time = _Waiting()
            self._by_duration = _Waiting()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        with self._condition:
            self.clock.wait(self._condition, 0)  # a manual clock knows this waiter from now on
            while not self._closed:
                first, wait_ms = self._first()
                if first is None:
                    self.clock.wait(self._condition, wait_ms)
                    continue
                callback, first.callback = first.callback, None
                if callback is not None:
                    self._call(callback)

    def _first(self) -> tuple[Timer | None, float | None]:
        """(a timer that is due, taken out, or None; ms until the next one, None if there is none)."""
        now_ms, now_ns = self.clock.now_ms(), self.clock.monotonic_ns()
        due = self._by_time.pop_due(now_ms) or self._by_duration.pop_due(now_ns)
        if due is not None:
            return due, None
        waits = []
        if (first_ms := self._by_time.first) is not None:
            waits.append(min(float(first_ms - now_ms), _LOOK_EVERY_MS))
        if (first_ns := self._by_duration.first) is not None:
            waits.append((first_ns - now_ns) / 1e6)
        return None, min(waits, default=None)

    def _call(self, callback: Callable[[], None]) -> None:
        self._condition.release()
        try:
            callback()
        except Exception as error:
            self.failure = self.failure or error
        finally:
            self._condition.acquire()
