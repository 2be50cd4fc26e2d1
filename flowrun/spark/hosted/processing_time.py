"""Processing time of a hosted subtask, which stands still or jumps to the time that is waited for; and its mailbox."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable

from flowrun.core.clock import ManualClock


class _Registered:
    """A callback that waits for its time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[int], None]) -> None:
        self.callback: Callable[[int], None] | None = callback

    def cancel(self) -> None:
        """Do not run the callback."""
        self.callback = None


class StillTime:
    """`ProcessingTimeService` and mailbox of one subtask whose clock shows the time of the run.

    A callback that is due later does not run, as in a stream that ends before a timer is due. The subtask's thread calls all methods, but
    any thread may call `put` and `wake`.
    """

    def __init__(self, now_ms: int) -> None:
        self.clock = ManualClock(now_ms)
        self._queue: list[tuple[int, int, _Registered]] = []
        self._registered = 0
        self._mails: deque[Callable[[], None]] = deque()
        self._awake = threading.Event()

    def now_ms(self) -> int:
        """The time of the run, ms since the epoch."""
        return self.clock.now_ms()

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> _Registered:
        """Run `callback(timestamp_ms)` at the next `settle` if it is due, else when time jumps there."""
        entry = _Registered(callback)
        heapq.heappush(self._queue, (timestamp_ms, self._registered, entry))
        self._registered += 1
        return entry

    def put(self, mail: Callable[[], None]) -> None:
        """Run a mail at the next `settle`. Any thread may call this."""
        self._mails.append(mail)
        self._awake.set()

    def wake(self) -> None:
        """End a wait. Any thread may call this."""
        self._awake.set()

    def pause(self, ms: float) -> None:
        """Block for `ms` by the machine's clock."""
        time.sleep(ms / 1000)

    def settle(self) -> None:
        """Run mails and callbacks that are due until there are none."""
        while True:
            if self._mails:
                self._mails.popleft()()
            elif not self._run_one_due():
                return

    def wait_or_jump(self) -> None:
        """Jump to the time of the next callback; without one, or after a call of `put` or `wake`, wait for such a call instead."""
        while self._queue and self._queue[0][2].callback is None:
            heapq.heappop(self._queue)
        if not self._awake.is_set() and self._queue:
            self.clock.advance(max(self._queue[0][0] - self.now_ms(), 0))
        else:
            self._awake.wait()
        self._awake.clear()
        self.settle()

    def _run_one_due(self) -> bool:
        if not self._queue or self._queue[0][0] > self.now_ms():
            return False
        timestamp_ms, _, entry = heapq.heappop(self._queue)
        if entry.callback is not None:
            entry.callback(timestamp_ms)
        return True
