"""Timers: one thread a process that runs short callbacks when they are due, by the injected clock.

It serves the processing-time services of all subtasks (whose callbacks it turns into letters), the flusher of network buffers and
the job master's periodic work.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from flowrun.core.clock import Clock
from flowrun.runtime.task.mailbox import Mailbox


class Timer:
    """A callback that waits for its time. `cancel` may come from any thread."""

    __slots__ = ("callback", "due_ms")

    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback if it has not run."""
        self.callback = None


class TimerThread:
    """Runs callbacks at given times of a clock, in order of time, on one thread that starts with the first timer. Thread-safe.

    Callbacks must not block, and must not raise: one that does ends up in `failure`, and the thread goes on.
    """

    def __init__(self, clock: Clock, name: str = "flowrun-timers") -> None:
        self.clock = clock
        self._name = name
        self._condition = threading.Condition()
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.failure: BaseException | None = None

    def at(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` once the clock shows `due_ms` (ms since the epoch) or later; soon if it already does."""
        timer = Timer(due_ms, callback)
        with self._condition:
            if self._closed:
                timer.cancel()
                return timer
            heapq.heappush(self._heap, (due_ms, next(self._order), timer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif self._heap[0][2] is timer:
                self._condition.notify_all()
        return timer

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` in `delay_ms`."""
        return self.at(self.clock.now_ms() + delay_ms, callback)

    def close(self) -> None:
        """Forget all timers and end the thread. Idempotent."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        with self._condition:
            self.clock.wait(self._condition, 0)  # a manual clock knows this waiter from now on
            while not self._closed:
                now = self.clock.now_ms()
                if self._heap and self._heap[0][0] <= now:
                    timer = heapq.heappop(self._heap)[2]
                    callback, timer.callback = timer.callback, None
                    if callback is not None:
                        self._call(callback)
                    continue
                self.clock.wait(self._condition, self._heap[0][0] - now if self._heap else None)

    def _call(self, callback: Callable[[], None]) -> None:
        self._condition.release()
        try:
            callback()
        except Exception as error:
            self.failure = self.failure or error
        finally:
            self._condition.acquire()


class MailboxTimeService:
    """Processing time of one subtask: callbacks run as letters in its mailbox, never concurrently with its other work."""

    def __init__(self, timers: TimerThread, mailbox: Mailbox) -> None:
        self._timers = timers
        self._mailbox = mailbox
        self._closed = False

    def now_ms(self) -> int:
        """Current processing time, ms since the epoch."""
        return self._timers.clock.now_ms()

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> Timer:
        """Call `callback(timestamp_ms)` once processing time reaches `timestamp_ms`."""
        timer = Timer(timestamp_ms, lambda: callback(timestamp_ms))

        def fire() -> None:
            due, timer.callback = timer.callback, None
            if due is not None and not self._closed:
                due()

        def put() -> None:
            if timer.callback is not None:
                self._mailbox.put(fire)

        self._timers.at(timestamp_ms, put)
        return timer

    def close(self) -> None:
        """No callback runs any more."""
        self._closed = True
