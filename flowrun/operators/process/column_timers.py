"""Timers of functions on batches, in columns: registered, deleted and fired many at a time.

A timer is an entry (slot of its key, time). What is waiting is ordered in sorted runs that are merged by size; entries that were deleted
stay in the runs until these are merged, or until their turn. A call of the function gets at most one timer of a key, its earliest, so
that what the function does for it, registering and deleting timers included, is done before the key's next timer fires, just as in
functions on rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Integers
from flowrun.core.types import BIGINT
from flowrun.operators.process.current import last_of_each
from flowrun.operators.process.due_timers import DueTimers
from flowrun.operators.process.indexed_entries import IndexedEntries

Fire = Callable[[Integers, Integers], None]
"""Gets the slots, each once, and the times of the timers that fire, in order of time."""


class ColumnTimers:
    """The timers of one time domain.

    Attributes:
        indexed: the timers as entries.
    """

    def __init__(self) -> None:
        self.indexed = IndexedEntries(BIGINT, None, None)
        self._runs: list[tuple[Integers, Integers]] = []

    def register(self, slots: Integers, times: Integers) -> None:
        """Register timers; those that are registered already stay."""
        numbers = self.indexed.numbers(slots, pa.array(times), add=True)
        if len(numbers) == 0:
            return
        fresh = np.flatnonzero(~self.indexed.entries.alive(numbers))
        fresh = fresh[last_of_each(numbers[fresh])]
        numbers, times = numbers[fresh], times[fresh]
        if len(numbers) == 0:
            return
        self.indexed.entries.put(numbers)
        order = np.argsort(times, kind="stable")
        self._runs.append((times[order], numbers[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            self._runs[-2:] = [self._merged(self._runs[-2:])]

    def delete(self, slots: Integers, times: Integers) -> None:
        """Forget timers, as far as they are registered."""
        numbers = self.indexed.numbers(slots, pa.array(times), add=False)
        self.indexed.entries.drop(numbers[numbers >= 0])

    def first(self) -> int | None:
        """When the next timer is due."""
        for i, (times, numbers) in enumerate(self._runs):
            start = self._first_alive(numbers)
            self._runs[i] = (times[start:], numbers[start:])
        self._runs = [r for r in self._runs if len(r[0])]
        return min((int(times[0]) for times, _ in self._runs), default=None)

    def glance(self) -> int | None:
        """When the next timer is due, for any thread; too early if that one has been deleted."""
        return min((int(times[0]) for times, _ in list(self._runs) if len(times)), default=None)

    def _first_alive(self, numbers: Integers) -> int:
        """Position of the first timer of a run that was not deleted; looks no further than it must."""
        start, step = 0, 64
        while start < len(numbers):
            alive = self.indexed.entries.alive(numbers[start : start + step])
            if alive.any():
                return start + int(np.argmax(alive))
            start, step = start + step, 4 * step
        return len(numbers)

    def fire(self, until: int, fire: Fire, *, again: bool = True) -> None:
        """Fire what is due at `until`; if `again`, also what is registered on the way and due."""
        due = DueTimers(self.indexed)
        due.add(self._take_due(until))
        while due:
            planned = due.take_round()
            numbers = planned[self.indexed.entries.alive(planned)]
            if len(numbers) == 0:
                continue
            owners, times = self.indexed.owners(numbers), self.indexed.further(numbers).to_numpy()
            self.indexed.entries.drop(numbers)
            fire(owners, times)
            if again:
                due.add(self._take_due(until))
        self.compact()

    def _take_due(self, until: int) -> Integers:
        """Numbers of the timers at or before `until`, taken out of the runs; some may have been deleted."""
        taken: list[Integers] = []
        for i, (times, numbers) in enumerate(self._runs):
            stop = int(np.searchsorted(times, until, side="right"))
            if stop:
                taken.append(numbers[:stop])
                self._runs[i] = (times[stop:], numbers[stop:])
        if not taken:
            return np.zeros(0, np.int64)
        self._runs = [r for r in self._runs if len(r[0])]
        numbers = np.unique(np.concatenate(taken))
        due: Integers = numbers[self.indexed.entries.alive(numbers)]
        return due

    @property
    def count(self) -> int:
        """How many timers wait."""
        return self.indexed.entries.live

    @property
    def kept(self) -> int:
        """How many timers are in order, some of which may have been deleted."""
        return sum(len(times) for times, _ in self._runs)

    # ---- room

    def compact(self) -> None:
        """Forget timers that fired or were deleted, if there are many."""
        if self.indexed.compact() is not None:
            self._order()

    def renumber_slots(self, kept: Integers, slots: int) -> None:
        """Slots were renumbered."""
        self.indexed.renumber_slots(kept, slots)
        self._order()

    def _order(self) -> None:
        """Make one run of all timers, whose entries have other numbers now."""
        numbers = self.indexed.entries.all_alive()
        times = self.indexed.further(numbers).to_numpy()
        order = np.argsort(times, kind="stable")
        self._runs = [(times[order], numbers[order])] if len(numbers) else []

    def _merged(self, runs: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
        """One run of several, with each timer that is still registered once: one that is deleted and registered again is in two of them."""
        times = np.concatenate([r[0] for r in runs])
        numbers = np.concatenate([r[1] for r in runs])
        order = np.lexsort((numbers, times))
        order = order[self.indexed.entries.alive(numbers[order])]
        times, numbers = times[order], numbers[order]
        once = np.ones(len(numbers), np.bool_)
        once[1:] = numbers[1:] != numbers[:-1]
        return times[once], numbers[once]
