"""Numbers by hash: an open-addressing table in arrays, for all keys of a batch at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowrun.operators.keyed.integers import Integers

_LEAST_CELLS = 1024
_LOAD = 0.5
_PART_BITS = 4
_PARTS = 1 << _PART_BITS
_CUT_FROM = 512 * 1024
"""Entries from which on a hash table is cut into parts."""


class HashIndex:
    """Hash → number, over arrays: open addressing with linear probing, all lookups of a call advancing together.

    A table that has many entries is cut into parts by the upper bits of the hashes. Each is full at another load, so that they grow one
    after the other: no call takes long because there are many entries.
    """

    def __init__(self) -> None:
        self._parts = [_Cells(_LEAST_CELLS, _LOAD)]

    def find(self, hashes: Integers) -> Integers:
        """The number of each hash, −1 if it is not there."""
        if len(self._parts) == 1:
            return self._parts[0].find(hashes)
        order, ranges_of_parts = self._by_part(hashes)
        ordered = hashes[order]
        found = np.empty(len(hashes), np.int64)
        for part, start, stop in ranges_of_parts:
            found[start:stop] = part.find(ordered[start:stop])
        numbers = np.empty(len(hashes), np.int64)
        numbers[order] = found
        return numbers

    def insert(self, hashes: Integers, numbers: Integers) -> None:
        """Add distinct hashes that are not there yet."""
        if not self._is_cut(len(hashes)):
            self._parts[0].insert(hashes, numbers)
            return
        order, ranges_of_parts = self._by_part(hashes)
        hashes, numbers = hashes[order], numbers[order]
        for part, start, stop in ranges_of_parts:
            part.insert(hashes[start:stop], numbers[start:stop])

    def find_or_insert(self, hashes: Integers, numbers: Integers) -> Integers:
        """The number of each of some distinct hashes, −1 if it was not there: then it is now, with the number given."""
        if not self._is_cut(len(hashes)):
            return self._parts[0].find_or_insert(hashes, numbers)
        order, ranges_of_parts = self._by_part(hashes)
        hashes, numbers = hashes[order], numbers[order]
        ordered = np.empty(len(hashes), np.int64)
        for part, start, stop in ranges_of_parts:
            ordered[start:stop] = part.find_or_insert(hashes[start:stop], numbers[start:stop])
        found = np.empty(len(hashes), np.int64)
        found[order] = ordered
        return found

    def _is_cut(self, more: int) -> bool:
        """Whether there are parts; cuts the table if it cannot take so many more entries in one."""
        if len(self._parts) > 1:
            return True
        if len(self._parts[0]) + more <= _CUT_FROM:
            return False
        hashes, numbers = self._parts[0].entries()
        self._parts = [_Cells(_LEAST_CELLS, _LOAD * 2 ** (i / _PARTS - 0.5)) for i in range(_PARTS)]
        self.insert(hashes, numbers)
        return True

    def replace(self, hashes: Integers, numbers: Integers) -> None:
        """Give distinct hashes that are there other numbers."""
        if len(self._parts) == 1:
            self._parts[0].replace(hashes, numbers)
            return
        order, ranges_of_parts = self._by_part(hashes)
        hashes, numbers = hashes[order], numbers[order]
        for part, start, stop in ranges_of_parts:
            part.replace(hashes[start:stop], numbers[start:stop])

    def _by_part(self, hashes: Integers) -> tuple[Integers, list[tuple[_Cells, int, int]]]:
        """(positions by part, the part and its range of these for each that has any)."""
        parts = (hashes.view(np.uint64) >> np.uint64(64 - _PART_BITS)).astype(np.uint8)
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=_PARTS)).tolist()
        starts = [0, *ends[:-1]]
        return order, [(p, a, b) for p, a, b in zip(self._parts, starts, ends, strict=True) if a < b]


class _Cells:
    """A hash table of a power of two of cells, twice as many when more than `load` of them are used."""

    def __init__(self, size: int, load: float) -> None:
        self._load = load
        self._resize(size)

    def _resize(self, size: int) -> None:
        self._mask = size - 1
        # free cells hold the number 0, others one more than theirs: zeros are had for nothing; 2³¹ entries would take 40 GB
        self._hashes: Integers = np.zeros(size, np.int64)
        self._numbers: npt.NDArray[np.int32] = np.zeros(size, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def entries(self) -> tuple[Integers, Integers]:
        """(hashes, numbers)."""
        used = np.flatnonzero(self._numbers)
        return self._hashes[used], self._numbers[used].astype(np.int64) - 1

    def find(self, hashes: Integers) -> Integers:
        """The number of each hash, −1 if it is not there."""
        cells = hashes & self._mask
        found = self._numbers[cells]
        searching = np.flatnonzero((found > 0) & (self._hashes[cells] != hashes))
        while len(searching):
            cells[searching] = (cells[searching] + 1) & self._mask
            at = cells[searching]
            found[searching] = self._numbers[at]
            searching = searching[(found[searching] > 0) & (self._hashes[at] != hashes[searching])]
        numbers: Integers = found.astype(np.int64) - 1
        return numbers

    def insert(self, hashes: Integers, numbers: Integers) -> None:
        """Add distinct hashes that are not there yet."""
        wanted = self._count + len(hashes)
        if wanted > self._load * (self._mask + 1):
            held = self.entries()
            size = self._mask + 1
            while wanted > self._load * size:
                size *= 2
            self._resize(size)
            self._place(*held)
        self._place(hashes, numbers)

    def find_or_insert(self, hashes: Integers, numbers: Integers) -> Integers:
        """The number of each of some distinct hashes, −1 if it was not there: then it is now, with the number given."""
        found = self.find(hashes)
        new = np.flatnonzero(found < 0)
        if len(new) == len(hashes):
            self.insert(hashes, numbers)
        elif len(new):
            self.insert(hashes[new], numbers[new])
        return found

    def replace(self, hashes: Integers, numbers: Integers) -> None:
        """Give distinct hashes that are there other numbers."""
        cells = hashes & self._mask
        searching = np.flatnonzero(self._hashes[cells] != hashes)
        while len(searching):
            cells[searching] = (cells[searching] + 1) & self._mask
            searching = searching[self._hashes[cells[searching]] != hashes[searching]]
        self._numbers[cells] = numbers + 1

    def _place(self, hashes: Integers, numbers: Integers) -> None:
        empty = self._count == 0
        self._count += len(hashes)
        cells = hashes & self._mask
        filled = (numbers + 1).astype(np.int32)
        while len(hashes):
            if empty:
                self._numbers[cells] = filled  # of several that want one cell, the last one gets it
                placed = self._numbers[cells] == filled
                empty = False
            else:
                free = np.flatnonzero(self._numbers[cells] == 0)
                claimed, wanted = cells[free], filled[free]
                self._numbers[claimed] = wanted
                placed = np.zeros(len(hashes), np.bool_)
                placed[free] = self._numbers[claimed] == wanted
            if placed.all():
                self._hashes[cells] = hashes
                return
            won, waiting = np.flatnonzero(placed), np.flatnonzero(~placed)
            self._hashes[cells[won]] = hashes[won]
            hashes, filled = hashes[waiting], filled[waiting]
            cells = (cells[waiting] + 1) & self._mask
