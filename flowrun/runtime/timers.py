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


class Timer:
    """A callback that waits for its time. `cancel` may come from any thread."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback if it has not run."""
        self.callback = None


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
        self._by_time: list[tuple[int, int, Timer]] = []
        """(ms since the epoch, order, timer): a heap."""
        self._by_duration: list[tuple[int, int, Timer]] = []
        """(monotonic ns, order, timer): a heap."""
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.failure: BaseException | None = None

    def at(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` once the clock shows `due_ms` (ms since the epoch) or later; soon if it already does."""
        return self._add(self._by_time, due_ms, callback)

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` in `delay_ms`, whatever happens to the time of day."""
        return self._add(self._by_duration, self.clock.monotonic_ns() + delay_ms * 1_000_000, callback)

    def _add(self, heap: list[tuple[int, int, Timer]], due: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        with self._condition:
            if self._closed:
                timer.cancel()
                return timer
            heapq.heappush(heap, (due, next(self._order), timer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif heap[0][2] is timer:
                self._condition.notify_all()
        return timer

    def close(self) -> None:
        """Forget all timers and end the thread. Idempotent."""
        with self._condition:
            self._closed = True
            self._by_time.clear()
            self._by_duration.clear()
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
        if self._by_time and self._by_time[0][0] <= now_ms:
            return heapq.heappop(self._by_time)[2], None
        if self._by_duration and self._by_duration[0][0] <= now_ns:
            return heapq.heappop(self._by_duration)[2], None
        waits = [due - now_ms for due, *_ in self._by_time[:1]] + [
            (d - now_ns) / 1e6 for d, *_ in self._by_duration[:1]
        ]
        return None, min(waits, default=None)

    def _call(self, callback: Callable[[], None]) -> None:
        self._condition.release()
        try:
            callback()
        except Exception as error:
            self.failure = self.failure or error
        finally:
            self._condition.acquire()
