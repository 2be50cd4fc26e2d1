"""References by hash: an open-addressing table of one array, for all hashes of a batch at once, that grows without a pause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowrun.core.arrays import Integers
from flowrun.operators.keyed.state_arrays import allocated, extended

TAG_BITS = 31
"""Bits of a hash that count; with them and a reference a cell is 8 bytes."""

REFERENCE = 0xFFFFFFFF
"""The bits of a cell that are the reference; the tag is above them."""

_LEAST_BITS = 10
_LOAD = 0.35
"""Of the cells this part is used before there are twice as many: searches that go on cost more than memory does."""

_BEYOND = 1024
"""Cells after the last home: what finds no place at the end of a table goes there, so that no search wraps around."""

_PACE = 6
"""Cells of an old table that move for each entry that is added. Until its last ones move it takes in a sixth of its cells more."""

_LEAST_MOVED = 16 * 1024


class Cells:
    """Tag → reference, a number from 1 to 2³² − 1. Home cells are in the order of tags, the search goes on cell by cell.

    Entries are never removed, and stay where they are. Those who ask in ascending order of tags go through memory in one direction.
    """

    def __init__(self, bits: int) -> None:
        self.count = 0
        self._bits = bits
        self._cells: Integers = allocated(
            (1 << bits) + _BEYOND, np.zeros(0, np.int64)
        )  # tag · 2³² + reference; 0: free

    @property
    def bits(self) -> int:
        """Logarithm of the number of home cells."""
        return self._bits

    def locate(self, tags: Integers) -> tuple[Integers, Integers]:
        """(cell of each tag, or the free one where its search ends; the reference there, 0 if it is free)."""
        at = tags >> (TAG_BITS - self._bits)
        held = self._cells[at]
        searching = np.flatnonzero((held >> 32 != tags) & (held != 0))
        while len(searching):
            cells = at[searching] + 1
            met = self._cells[cells]
            at[searching], held[searching] = cells, met
            searching = searching[(met != 0) & (met >> 32 != tags[searching])]
        held &= REFERENCE
        return at, held

    def replace(self, at: Integers, tags: Integers, references: Integers) -> None:
        """Give tags that were located in some cells other references."""
        self._cells[at] = tags << 32 | references

    def place(self, at: Integers, tags: Integers, references: Integers) -> None:
        """Add distinct tags that are not there yet; `at` are the free cells where they were located."""
        self.count += len(tags)
        if not len(tags):
            return
        cells = tags << 32 | references
        self._keep_end_free(int(at.max()))
        self._cells[at] = cells  # of several that want one cell, the last one gets it
        while True:
            lost = np.flatnonzero(self._cells[at] != cells)
            if not len(lost):
                return
            at, cells = at[lost] + 1, cells[lost]
            self._keep_end_free(int(at.max()))
            free = self._cells[at] == 0
            self._cells[at[free]] = cells[free]

    def _keep_end_free(self, last: int) -> None:
        if last + 1 >= len(self._cells):
            self._cells = extended(self._cells, last + _BEYOND, 0)

    def fill(self, home: int, cells: Integers) -> None:
        """Add many at once: cells of another table, whose tags are not before this home, while none of those here are."""
        start = stop = home
        while self._cells[stop]:  # what found no place before
            stop += 1
        every = np.concatenate([self._cells[start:stop], cells])
        every.sort(kind="stable")  # almost in order already: that sort is many times as fast then
        self.count += len(cells)
        order = np.arange(len(every))
        # each as far on as its home and those before it demand
        at = np.maximum.accumulate(np.maximum(every >> (32 + TAG_BITS - self._bits), start) - order) + order
        self._keep_end_free(int(at[-1]) if len(at) else start)
        self._cells[at] = every

    def entries(self, start: int = 0, stop: int | None = None) -> Integers:
        """What is in a range of cells, but for free ones."""
        cells = self._cells[start:stop]
        held: Integers = cells.compress(cells != 0)  # several times as fast as an index of booleans
        return held

    def gap(self, start: int) -> int:
        """The first home cell from there on that is free (nothing after it belongs before it), or the end of the table."""
        step = 1024
        for first in range(start, len(self._cells), step):
            free = np.flatnonzero(self._cells[first : first + step] == 0)
            if len(free):
                cell = first + int(free[0])
                return cell if cell < 1 << self._bits else len(self._cells)
        return len(self._cells)


class GrowingCells:
    """Cells whose number grows with that of the entries: a part of them moves with each batch that adds some, in the order of tags."""

    def __init__(self) -> None:
        self._cells = Cells(_LEAST_BITS)
        self._old: Cells | None = None
        self._moved = 0  # cells of the old table

    def make_room(self, more: int) -> None:
        """So many entries will be added, at most. What was located before is not valid any more."""
        if self._old is not None:
            self._move(self._old, max(_PACE * more, _LEAST_MOVED))
        bits = self._cells.bits
        if not self._fits(more, bits):
            if self._old is not None:
                self._move(self._old, 1 << self._old.bits)
            while not self._fits(more, bits):
                bits += 1
            self._old, self._moved = self._cells, 0
            self._cells = Cells(bits)
            self._move(self._old, max(_PACE * more, _LEAST_MOVED))

    def fill(self, cells: Integers) -> None:
        """Add what was in other cells, at once; there is nothing here yet."""
        bits = self._cells.bits
        while not self._fits(len(cells), bits):
            bits += 1
        self._cells = Cells(bits)
        self._cells.fill(0, cells)

    def _fits(self, more: int, bits: int) -> bool:
        entries = self._cells.count if self._old is None else self._cells.count + self._old.count
        return entries + more <= _LOAD * (1 << bits)

    def entries(self) -> Integers:
        """All cells in use, in the order of their homes: tags ascend but for those that found their home taken."""
        if self._old is None:
            return self._cells.entries()
        return np.concatenate([self._cells.entries(), self._old.entries(self._moved)])

    def _move(self, old: Cells, cells: int) -> None:
        stop = old.gap(self._moved + cells)
        entries = old.entries(self._moved, stop)
        old.count -= len(entries)
        self._cells.fill(self._moved << (self._cells.bits - old.bits), entries)
        self._moved = stop
        if stop >= 1 << old.bits:
            self._old = None

    def split(self, tags: Integers) -> Iterator[tuple[Cells, int, int]]:
        """(cells, range of the tags that are there, or are to be placed there) for some ascending tags."""
        middle = len(tags)
        if self._old is not None:
            middle = int(np.searchsorted(tags, self._moved << (TAG_BITS - self._old.bits)))
        if middle:
            yield self._cells, 0, middle
        if self._old is not None and middle < len(tags):
            yield self._old, middle, len(tags)
