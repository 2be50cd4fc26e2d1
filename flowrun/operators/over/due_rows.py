"""Rows that wait for the watermark, as runs in order of time: what is due of a run is a prefix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.operators.ranking.order import sorted_order

_LITTLE = 4096


@record
class Rows:
    """Remembered rows: their numbers, the slots of their keys, and their times."""

    numbers: Integers
    slots: Integers
    times: Integers

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, positions: Integers) -> Rows:
        """Some of the rows, in this order."""
        return Rows(self.numbers[positions], self.slots[positions], self.times[positions])

    def slice(self, start: int, stop: int) -> Rows:
        """The rows from `start` up to `stop`."""
        return Rows(self.numbers[start:stop], self.slots[start:stop], self.times[start:stop])

    def by_time(self) -> Rows:
        """The rows by time, of equal times in their order."""
        return self if (self.times[1:] >= self.times[:-1]).all() else self.take(sorted_order([self.times]))


def _concat(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([p.numbers for p in parts]),
        np.concatenate([p.slots for p in parts]),
        np.concatenate([p.times for p in parts]),
    )


class DueRows:
    """The rows that wait. Runs are merged by size, so that there are few and each row is moved O(log n) times."""

    def __init__(self) -> None:
        self._runs: list[Rows] = []

    def add(self, rows: Rows) -> None:
        """Let rows wait; they came after all that are there."""
        if not len(rows):
            return
        kept, size = len(self._runs), len(rows)
        while kept and len(self._runs[kept - 1]) <= 2 * size + _LITTLE:
            kept -= 1
            size += len(self._runs[kept])
        self._runs[kept:] = [_concat([*self._runs[kept:], rows]).by_time()]

    def take(self, time: int) -> Rows | None:
        """The rows that are due at `time` (ms), which wait no longer; None: there are none."""
        due: list[Rows] = []
        rest: list[Rows] = []
        for run in self._runs:
            cut = int(np.searchsorted(run.times, time, side="right"))
            if cut:
                due.append(run.slice(0, cut))
            if cut < len(run):
                rest.append(run.slice(cut, len(run)))
        self._runs = rest
        return _concat(due) if due else None

    def first(self) -> int | None:
        """The time of the first row that waits, ms; None: there is none. May be called by any thread."""
        return min((int(run.times[0]) for run in list(self._runs)), default=None)

    def renumber(self, moved: Integers) -> None:
        """Rows got new numbers, by old number."""
        self._runs = [Rows(moved[r.numbers], r.slots, r.times) for r in self._runs]
