"""Which rows are in which windows, as arrays: sorted by the end of windows, so that those that are over are found without a search.

New entries are runs of their own; runs are merged by size, so an entry is sorted O(log n) times.
"""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Integers
from flowrun.core.record import record

_FAN = 4


@record
class WindowRows:
    """Entries: a window's end in ms, its number, and the position of a row, each."""

    ends: Integers
    windows: Integers
    rows: Integers

    def __len__(self) -> int:
        return len(self.ends)

    def at(self, chosen: Integers | slice) -> WindowRows:
        """Some entries."""
        return WindowRows(self.ends[chosen], self.windows[chosen], self.rows[chosen])


_NONE = np.zeros(0, np.int64)
NO_ROWS = WindowRows(_NONE, _NONE, _NONE)


def joined(parts: list[WindowRows]) -> WindowRows:
    """All entries, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_ROWS
    return WindowRows(
        np.concatenate([p.ends for p in parts]),
        np.concatenate([p.windows for p in parts]),
        np.concatenate([p.rows for p in parts]),
    )


class WindowRowRuns:
    """Entries, of which those with the least ends are taken out. Entries of one window stay in the order in which they were added."""

    def __init__(self) -> None:
        self._runs: list[WindowRows] = []

    def __len__(self) -> int:
        return sum(len(r) for r in self._runs)

    def add(self, entries: WindowRows) -> None:
        """Add entries in any order."""
        if not len(entries):
            return
        self._runs.append(_sorted(entries))
        while len(self._runs) >= _FAN and len(self._runs[-_FAN]) <= 2 * sum(len(r) for r in self._runs[1 - _FAN :]):
            self._runs[-_FAN:] = [_sorted(joined(self._runs[-_FAN:]))]

    def take(self, last_end: int) -> WindowRows:
        """Remove the entries of windows that end at `last_end` or before; in no order of windows."""
        taken, left = [], []
        for run in self._runs:
            count = int(np.searchsorted(run.ends, last_end, "right"))
            if count:
                taken.append(run.at(slice(None, count)))
            if count < len(run):
                left.append(run.at(slice(count, None)) if count else run)
        self._runs = left
        return joined(taken)

    def all(self) -> WindowRows:
        """All entries; nobody may change them."""
        return joined(self._runs)

    def renumber(self, windows: Integers | None, rows: Integers | None) -> None:
        """Give windows and rows new numbers: that of window i is `windows[i]`."""
        self._runs = [
            WindowRows(
                r.ends,
                r.windows if windows is None else windows[r.windows],
                r.rows if rows is None else rows[r.rows],
            )
            for r in self._runs
        ]


def _sorted(entries: WindowRows) -> WindowRows:
    if (entries.ends[1:] >= entries.ends[:-1]).all():
        return entries
    return entries.at(np.argsort(entries.ends, kind="stable"))
