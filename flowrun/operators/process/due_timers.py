"""The timers that are due, dealt to calls of the function: each call gets at most one timer of a key, its earliest.

What the function does for a timer may make others due, so that the timers of a key are not all known when the first one fires. They are
kept in runs that are merged by size, each in order of key and time with the place of each key's next timer: a call costs as much as the
keys that it is for, however many timers of them wait, and a timer is moved about log2 of their number times.
"""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Bools, Integers
from flowrun.operators.process.indexed_entries import IndexedEntries


class DueTimers:
    """Due timers of one domain, by number of their entries.

    Args:
        indexed: the timers as entries.
    """

    def __init__(self, indexed: IndexedEntries) -> None:
        self._indexed = indexed
        self._runs: list[_Run] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, numbers: Integers) -> None:
        """More timers have become due; none that is here already."""
        if len(numbers) == 0:
            return
        owners, times = self._indexed.owners(numbers), self._indexed.further(numbers).to_numpy()
        self._runs.append(_Run(owners, times, numbers))
        while len(self._runs) > 1 and self._runs[-2].left <= 2 * self._runs[-1].left:
            parts = [run.rest() for run in self._runs[-2:]]
            self._runs[-2:] = [_Run(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))]

    def take_round(self) -> Integers:
        """The earliest timer of each key, in order of time; they are not here any more."""
        heads = [run.heads for run in self._runs]
        owners, times, numbers = (np.concatenate(columns) for columns in zip(*heads, strict=True))
        first = np.ones(len(owners), np.bool_)
        if len(heads) > 1:
            order = np.lexsort((times, owners))
            first[order[1:]] = owners[order[1:]] != owners[order[:-1]]
        stops = np.cumsum([len(run_owners) for run_owners, _, _ in heads])[:-1]
        for run, taken in zip(self._runs, np.split(first, stops), strict=True):
            run.advance(taken)
        self._runs = [run for run in self._runs if run.left]
        chosen = numbers[first]
        return chosen[np.lexsort((owners[first], times[first]))]


class _Run:
    """Timers in order of key and time.

    Attributes:
        left: how many have not been taken.
    """

    def __init__(self, owners: Integers, times: Integers, numbers: Integers) -> None:
        order = np.lexsort((times, owners))
        self._owners, self._times, self._numbers = owners[order], times[order], numbers[order]
        begins = np.flatnonzero(self._owners[1:] != self._owners[:-1]) + 1
        self._next: Integers = np.concatenate([[0], begins]).astype(np.int64)
        self._stops: Integers = np.append(begins, len(order)).astype(np.int64)
        self.left = len(order)

    @property
    def heads(self) -> tuple[Integers, Integers, Integers]:
        """(key, time, number) of the earliest timer of each key."""
        return self._owners[self._next], self._times[self._next], self._numbers[self._next]

    def advance(self, taken: Bools) -> None:
        """The earliest timers of some keys are not here any more."""
        self._next = self._next + taken
        self.left -= int(np.count_nonzero(taken))
        more = self._next < self._stops
        self._next, self._stops = self._next[more], self._stops[more]

    def rest(self) -> tuple[Integers, Integers, Integers]:
        """(key, time, number) of all that have not been taken."""
        counts = self._stops - self._next
        places = np.repeat(self._next - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(self.left)
        return self._owners[places], self._times[places], self._numbers[places]
