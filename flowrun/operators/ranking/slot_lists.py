"""Lists of row numbers by slot, all in one array: replaced or extended for many slots at once.

Each slot owns a block with room to spare; a list that outgrows its block moves to the end. Blocks left behind are reclaimed when they
are most of the array.
"""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Integers
from flowrun.operators.keyed.integers import ranges
from flowrun.operators.keyed.state_arrays import extended

_SPARE = 64 * 1024


class SlotLists:
    """Slot → row numbers in an order that the caller gives them."""

    def __init__(self) -> None:
        self._start: Integers = np.zeros(0, np.int64)
        self._room: Integers = np.zeros(0, np.int64)
        self._length: Integers = np.zeros(0, np.int64)
        self._numbers: Integers = np.zeros(0, np.int64)
        self._used = 0
        self._slots = 0

    def reserve(self, slots: int) -> None:
        """Let there be the slots 0 … slots − 1; new ones have empty lists."""
        self._slots = slots
        self._start = extended(self._start, slots, 0)
        self._room = extended(self._room, slots, 0)
        self._length = extended(self._length, slots, 0)

    def lengths(self, slots: Integers) -> Integers:
        """How long some lists are."""
        lengths: Integers = self._length[slots]
        return lengths

    def get(self, slots: Integers) -> tuple[Integers, Integers]:
        """(position in `slots`, row number) of all entries of some lists, list by list."""
        lengths = self._length[slots]
        return np.repeat(np.arange(len(slots)), lengths), self._numbers[ranges(self._start[slots], lengths)]

    def last(self, slots: Integers) -> Integers:
        """The last row number of some lists, none of which is empty."""
        last: Integers = self._numbers[self._start[slots] + self._length[slots] - 1]
        return last

    def put(self, slots: Integers, lengths: Integers, numbers: Integers) -> None:
        """Replace the lists of distinct slots; `numbers` are the new lists one after the other."""
        full = lengths > self._room[slots]
        if full.any():
            self._move(slots[full], lengths[full])
        self._numbers[ranges(self._start[slots], lengths)] = numbers
        self._length[slots] = lengths
        if self._used > 2 * int(self._room[: self._slots].sum()) + _SPARE:
            self._rebuild(*self.get(np.arange(self._slots)))

    def extend(self, slots: Integers, lengths: Integers, numbers: Integers) -> None:
        """Append to the lists of distinct slots; `numbers` are what is appended, list by list."""
        before = self._length[slots]
        full = before + lengths > self._room[slots]
        if full.any():
            owners, old = self.get(slots)
            more = np.repeat(np.arange(len(slots)), lengths)
            order = np.argsort(np.concatenate([owners, more]), kind="stable")
            self.put(slots, before + lengths, np.concatenate([old, numbers])[order])
            return
        self._numbers[ranges(self._start[slots] + before, lengths)] = numbers
        self._length[slots] = before + lengths

    def renumber(self, moved: Integers) -> None:
        """Rows got new numbers (by old number; −1: the row is gone, and leaves its list)."""
        owners, numbers = self.get(np.arange(self._slots))
        numbers = moved[numbers]
        kept = numbers >= 0
        self._rebuild(owners[kept], numbers[kept])

    def keep(self, kept: Integers) -> None:
        """Forget all other slots; the kept ones get the numbers 0, 1, …"""
        owners, numbers = self.get(kept)
        self._slots = len(kept)
        self._start, self._room, self._length = (np.zeros(len(kept), np.int64) for _ in range(3))
        self._rebuild(owners, numbers)

    def _move(self, slots: Integers, lengths: Integers) -> None:
        room = 1 << np.ceil(np.log2(np.maximum(lengths, 4))).astype(np.int64)
        self._start[slots] = self._used + np.cumsum(room) - room
        self._room[slots] = room
        self._used += int(room.sum())
        self._numbers = extended(self._numbers, self._used, 0)

    def _rebuild(self, owners: Integers, numbers: Integers) -> None:
        lengths = np.bincount(owners, minlength=self._slots).astype(np.int64)
        self._numbers, self._used = np.zeros(0, np.int64), 0
        self._length[: self._slots] = 0
        self._room[: self._slots] = 0
        filled = np.flatnonzero(lengths)
        if len(filled):
            self.put(filled, lengths[filled], numbers)
