"""Timers that run when the caller says so, and the threads of a job master that are the caller's own."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from typing import TypeVar

from flowrun.core.clock import Clock, ManualClock
from flowrun.errors import InternalError
from flowrun.runtime.jobmaster.io_thread import IoThread
from flowrun.runtime.jobmaster.main_thread import JobMasterThreads, MainThread
from flowrun.runtime.mailbox import Post
from flowrun.runtime.timers import Timer, TimerThread

T = TypeVar("T")


class CallersClock(ManualClock):
    """A clock that `advance` moves, and nothing else but who waits on the only thread that there is: for it the time goes by."""

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """Move the time on by `timeout_ms`; False."""
        if timeout_ms is None:
            raise InternalError("something waits on the only thread there is, for nobody to wake it")
        if timeout_ms > 0:
            self.advance(math.ceil(timeout_ms))
        return False


class SteppedTimers(TimerThread):
    """Timers of a process without a thread: `run_due` runs what is due. Times of day and durations are one time line, as the clock's."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._due: list[tuple[int, int, Timer]] = []
        self._numbers = itertools.count()

    def at(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` with the first `run_due` at which the clock shows `due_ms`, ms since the epoch, or later."""
        timer = Timer(callback)
        heapq.heappush(self._due, (due_ms, next(self._numbers), timer))
        return timer

    def after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` in `delay_ms`."""
        return self.at(self.clock.now_ms() + delay_ms, callback)

    @property
    def next_ms(self) -> int | None:
        """When the next one is due, ms since the epoch; None: there is none."""
        while self._due and self._due[0][2].callback is None:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def run_due(self) -> bool:
        """Run what is due, also what that makes due at once; whether there was anything."""
        any_ran = False
        while (due_ms := self.next_ms) is not None and due_ms <= self.clock.now_ms():
            timer = heapq.heappop(self._due)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
                any_ran = True
        return any_ran

    def close(self) -> None:
        """Forget all timers."""
        self._due.clear()


class CallersThreads(JobMasterThreads):
    """What a job master does on threads, done by the caller.

    Attributes:
        mains: the threads that run mails, by when they were made.
    """

    def __init__(self) -> None:
        self.mains: list[SteppedMain] = []

    def main(self, name: str) -> SteppedMain:
        """One that runs its mails when it is told to."""
        made = SteppedMain(name)
        self.mains.append(made)
        return made

    def io(self, name: str, post: Post) -> IoThread:
        """One that does at once what it is given."""
        return _AtOnce(name, post)


class SteppedMain(MainThread):
    """Runs the mails of one mailbox when it is told to."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._step: Callable[[], bool] | None = None

    def start(self, step: Callable[[], bool]) -> None:
        """Take what runs the next mail."""
        self._step = step

    def join(self) -> None:
        """Who waits for it sees that it is over."""

    def run_mails(self) -> bool:
        """Run all mails that are there and that come meanwhile; whether there was one."""
        any_ran = False
        while self._step is not None and len(self.mailbox):
            any_ran = True
            if not self._step():
                self._step = None
        return any_ran


class _AtOnce(IoThread):
    """Does what it is given before it returns; what comes of it is posted, as by the thread."""

    def __init__(self, name: str, post: Post) -> None:
        super().__init__(name, post)
        self._answer = post

    def submit(self, call: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Do it."""
        try:
            result = call()
        except Exception as error:
            caught = error  # the name of the clause is gone when the mail is read
            self._answer(lambda: failed(caught))
        else:
            self._answer(lambda: done(result))

    def close(self) -> None:
        """Nothing is left."""
