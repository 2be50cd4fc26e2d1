"""Rows in the order in which time leaves them behind: sorted runs, merged by size tiers, from whose fronts rows are taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowrun.core.arrays import Integers

_LITTLE = 4096


@dataclass(slots=True)
class _Waiting:
    """Rows in order of time, of equal times in order of arrival."""

    times: Integers
    numbers: Integers

    def __len__(self) -> int:
        return len(self.times)

    def sorted(self) -> _Waiting:
        """In order, as merging leaves them; linear in the ascending pieces that there are."""
        if (self.times[1:] >= self.times[:-1]).all():
            return self
        order = np.argsort(self.times, kind="stable")
        return _Waiting(self.times[order], self.numbers[order])


class TimeQueue:
    """Numbers of rows by time, taken out in order of time. Adding and taking costs nothing for the rows that stay.

    >>> queue = TimeQueue()
    >>> queue.add(np.array([5, 3, 9]), np.array([0, 1, 2]))
    >>> queue.add(np.array([4]), np.array([3]))
    >>> queue.first(), queue.pop(5).tolist(), queue.first()
    (3, [1, 3, 0], 9)
    """

    def __init__(self) -> None:
        self._runs: list[_Waiting] = []

    def add(self, times: Integers, numbers: Integers) -> None:
        """Add rows; of equal times those added first come out first."""
        if not len(times):
            return
        self._runs.append(_Waiting(times, numbers).sorted())
        merged = len(self._runs) - 1
        size = len(times)
        while merged > 0 and len(self._runs[merged - 1]) <= 2 * size + _LITTLE:
            merged -= 1
            size += len(self._runs[merged])
        if merged < len(self._runs) - 1:
            self._runs[merged:] = [_joined(self._runs[merged:])]

    def first(self) -> int | None:
        """The time of the first row; None: there is no row. May be called by any thread."""
        firsts = (run.times[:1].tolist() for run in list(self._runs))
        return min((time for times in firsts for time in times), default=None)

    def pop(self, bound: int) -> Integers:
        """Take out the rows with time ≤ `bound` (ms), in order of time."""
        taken = []
        for run in self._runs:
            due = int(np.searchsorted(run.times, bound, side="right"))
            if due:
                taken.append(_Waiting(run.times[:due], run.numbers[:due]))
                run.times, run.numbers = run.times[due:], run.numbers[due:]
        if not taken:
            return np.zeros(0, np.int64)
        self._runs = [run for run in self._runs if len(run)]
        return _joined(taken).numbers

    def renumber(self, moved: Integers) -> None:
        """Rows have other numbers now; all rows of the queue must still be there."""
        for run in self._runs:
            run.times, run.numbers = run.times.copy(), moved[run.numbers]


def _joined(runs: list[_Waiting]) -> _Waiting:
    """One run of several, older ones first."""
    if len(runs) == 1:
        return runs[0]
    return _Waiting(np.concatenate([r.times for r in runs]), np.concatenate([r.numbers for r in runs])).sorted()
