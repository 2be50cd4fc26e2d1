"""When something is due for entries under way: their time is up, or a call is to be made again."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flowrun.api.operator import ProcessingTimeService, TimerHandle
from flowrun.operators.asynchronous.queue import Entry


class Deadlines:
    """The deadlines of one subtask, behind one timer of its processing time.

    Args:
        service: processing time.
        fire: called when something is due.
        timeout_ms: allowed for an entry; None: there is no limit.
    """

    def __init__(self, service: ProcessingTimeService, fire: Callable[[], None], timeout_ms: int | None) -> None:
        self._service = service
        self._fire = fire
        self._timeout_ms = timeout_ms
        self._ends: deque[tuple[int, Entry]] = deque()
        self._repetitions: list[tuple[int, int, Entry]] = []
        self._numbers = itertools.count()
        self._timer: TimerHandle | None = None
        self._timer_at = 0
        self._behind_ms = 0
        """How much time has passed in `in_place` that the service did not show."""

    @contextmanager
    def in_place(self) -> Iterator[Callable[[], None]]:
        """The subtask waits where no callbacks run, and the time of the service may stand still: the machine's clock counts as well.

        Gives what is to be called before `take_due`.
        """
        began_ms, began, behind = self._service.now_ms(), time.monotonic(), self._behind_ms

        def look() -> None:
            shown = self._service.now_ms() - began_ms
            self._behind_ms = behind + max(0, round((time.monotonic() - began) * 1000) - shown)

        yield look

    def _now(self) -> int:
        return self._service.now_ms() + self._behind_ms

    def begin(self, entry: Entry) -> None:
        """The time that is allowed for an entry runs from now on."""
        if self._timeout_ms is not None:
            self._ends.append((self._now() + self._timeout_ms, entry))
            self._arm()

    def repeat(self, entry: Entry, delay_ms: int) -> None:
        """The entry's call is to be made again after a delay."""
        due = self._now() + delay_ms
        heapq.heappush(self._repetitions, (due, next(self._numbers), entry))
        self._arm()

    def take_due(self) -> tuple[list[Entry], list[Entry]]:
        """(entries whose time is up, entries to be called again), as far as they are not done."""
        now = self._now()
        late: list[Entry] = []
        again: list[Entry] = []
        while self._ends and (self._ends[0][0] <= now or self._ends[0][1].is_done):
            entry = self._ends.popleft()[1]
            if not entry.is_done:
                late.append(entry)
        while self._repetitions and self._repetitions[0][0] <= now:
            entry = heapq.heappop(self._repetitions)[2]
            if not entry.is_done:
                again.append(entry)
        self._arm()
        return late, again

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ends.clear()
        self._repetitions.clear()

    def _arm(self) -> None:
        dues = [queue[0][0] for queue in (self._ends, self._repetitions) if queue]
        if not dues or (self._timer is not None and self._timer_at <= min(dues)):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = min(dues)
        self._timer = self._service.register(self._timer_at - self._behind_ms, self._due)

    def _due(self, _timestamp_ms: int) -> None:
        self._timer = None
        self._fire()
