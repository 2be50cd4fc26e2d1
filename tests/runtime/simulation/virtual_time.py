"""Time that moves only when nothing is left to do: events in order of a virtual clock, and the threads of processes as such events."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from flowrun.core.clock import ForwardClock
from flowrun.runtime.jobmaster.io_thread import IoThread
from flowrun.runtime.jobmaster.main_thread import JobMasterThreads, MainThread
from flowrun.runtime.mailbox import Mail, Mailbox, Post, Priority
from flowrun.runtime.timers import Timer, TimerThread

Call = Callable[[], None]
START_MS = 1_000_000


class VirtualTime:
    """The clock of everything that is simulated, and what is to happen. Chance decides nothing but by `chance`, so a seed is a story."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.events = 0
        """How many have happened."""
        self.after_each: list[Call] = []
        """Is called after each event: looks at what must hold, or has threads go on that have something to do."""
        self._now_ns = START_MS * 1_000_000
        self._heap: list[tuple[int, int, Call]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self._now_ns

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        """What waits is a thread beside all that is simulated: something happens, and it looks again."""
        assert timeout_ms is not None, "nothing that is simulated may wait for ever"
        due_ns = self._now_ns + int(timeout_ms * 1e6)
        if self._heap and self._heap[0][0] <= due_ns:
            self._step()
            return True
        self._now_ns = due_ns
        return False

    def after(self, delay_ms: float, call: Call) -> None:
        """Have something happen later; of two at one time the one that was asked for first."""
        heapq.heappush(self._heap, (self._now_ns + int(delay_ms * 1e6), next(self._order), call))

    def soon(self, call: Call, most_ms: float = 1.0) -> None:
        """Have something happen within a moment."""
        self.after(self.chance.uniform(0, most_ms), call)

    def run_for(self, duration_ms: float) -> None:
        """Let everything happen that is due within so long."""
        end_ns = self._now_ns + int(duration_ms * 1e6)
        while self._heap and self._heap[0][0] <= end_ns:
            self._step()
        self._now_ns = end_ns

    def run_until(self, holds: Callable[[], bool], limit_ms: float) -> bool:
        """Let things happen until `holds`, looked at after each; False: it did not come to that in time."""
        end_ns = self._now_ns + int(limit_ms * 1e6)
        while not holds():
            if not self._heap or self._heap[0][0] > end_ns:
                return False
            self._step()
        return True

    def _step(self) -> None:
        self._now_ns, _, call = heapq.heappop(self._heap)
        self.events += 1
        call()
        for look in self.after_each:
            look()


class Process:
    """What happens in one process: nothing once it is dead, and later while it is stopped."""

    def __init__(self, time: VirtualTime, name: str) -> None:
        self.time = time
        self.name = name
        self.is_dead = False
        self.is_stopped = False
        self.clock = ForwardClock(time)
        self.timers = VirtualTimers(self)
        self._waiting: deque[Call] = deque()

    def run(self, call: Call) -> None:
        if self.is_stopped:
            self._waiting.append(call)
        elif not self.is_dead:
            call()

    def after(self, delay_ms: float, call: Call) -> None:
        self.time.after(delay_ms, lambda: self.run(call))

    def soon(self, call: Call, most_ms: float = 1.0) -> None:
        self.time.soon(lambda: self.run(call), most_ms)

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False
        while self._waiting and not self.is_stopped:
            self.run(self._waiting.popleft())

    def die(self) -> None:
        self.is_dead, self.is_stopped = True, False
        self._waiting.clear()


class VirtualTimers(TimerThread):
    """The timers of one process."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.clock)
        self._process = process

    def at(self, due_ms: int, callback: Call) -> Timer:
        return self.after(max(due_ms - self.clock.now_ms(), 0), callback)

    def after(self, delay_ms: int, callback: Call) -> Timer:
        timer = Timer(callback)

        def fire() -> None:
            call, timer.callback = timer.callback, None
            if call is not None:
                call()

        self._process.after(delay_ms, fire)
        return timer


class VirtualThreads(JobMasterThreads):
    """The threads of one job master.

    Args:
        process: that it is in.
        slowness_ms: how long a call of the I/O thread takes at most.
    """

    def __init__(self, process: Process, slowness_ms: float) -> None:
        self._process = process
        self._slowness_ms = slowness_ms

    def main(self, name: str) -> MainThread:
        return _VirtualMain(self._process, name)

    def io(self, name: str, post: Post) -> IoThread:
        return _VirtualIo(self._process, name, post, self._slowness_ms)


class _VirtualMain(MainThread):
    """Runs one mail at a time, a moment after it came."""

    def __init__(self, process: Process, name: str) -> None:
        super().__init__(name)
        self.mailbox = _WatchedMailbox(self._wake)
        self._process = process
        self._step: Callable[[], bool] | None = None
        self._is_due = False

    def start(self, step: Callable[[], bool]) -> None:
        self._step = step
        self._wake()

    def join(self) -> None:
        """Who waits for it sees that it is over."""

    def _wake(self) -> None:
        if self._step is not None and not self._is_due:
            self._is_due = True
            self._process.soon(self._run, 0.2)

    def _run(self) -> None:
        self._is_due = False
        if self._step is None:
            return  # it was over when it was about to run once more
        if not self._step():
            self._step = None
        elif len(self.mailbox):
            self._wake()


class _WatchedMailbox(Mailbox):
    def __init__(self, wake: Call) -> None:
        super().__init__()
        self._wake = wake

    def put(self, mail: Mail, priority: Priority = Priority.NORMAL) -> bool:
        taken = super().put(mail, priority)
        if taken:
            self._wake()
        return taken


class _VirtualIo(IoThread):
    """Runs calls in order, each a while after the one before."""

    def __init__(self, process: Process, name: str, post: Post, slowness_ms: float) -> None:
        super().__init__(name, post)
        self._process = process
        self._left: deque[Call] = deque()
        self._slowness_ms = slowness_ms
        self._is_due = False

    def submit(self, call: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        def run() -> None:
            try:
                result = call()
            except Exception as error:
                caught = error
                self._post(lambda: failed(caught))
            else:
                self._post(lambda: done(result))

        self._left.append(run)
        self._wake()

    def close(self) -> None:
        while self._left:
            self._left.popleft()()

    def _wake(self) -> None:
        if self._left and not self._is_due:
            self._is_due = True
            self._process.soon(self._run, self._slowness_ms)

    def _run(self) -> None:
        self._is_due = False
        if self._left:
            self._left.popleft()()
        self._wake()
