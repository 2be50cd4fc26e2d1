"""Lists of row numbers by hash: growing ranges of one array, so that a key with a million rows costs no more a row than one with two.

Each hash owns a block of the array with room to spare; a block that is full moves to the end with twice the room. Everything is done
for all hashes of a batch at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.operators.windows.keyed_rows import HashIndex, Integers, extended, ranges

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Probing rows and what they found: `numbers[i]` was found for row `probe[i]`; ordered by `probe`, then by arrival."""

    probe: Integers
    numbers: Integers

    def __len__(self) -> int:
        return len(self.probe)

    def where(self, keep: Bools) -> Pairs:
        """Some of the pairs."""
        return self if keep.all() else Pairs(self.probe[keep], self.numbers[keep])


class HashLists:
    """Hash (int64) → the numbers added under it, in the order in which they were added."""

    def __init__(self) -> None:
        self._index = HashIndex()
        self._hashes = 0
        self._start: Integers = np.zeros(0, np.int64)
        self._room: Integers = np.zeros(0, np.int64)
        self._length: Integers = np.zeros(0, np.int64)
        self._numbers: Integers = np.zeros(0, np.int64)
        self._used = 0

    def add(self, hashes: Integers, numbers: Integers, alive: Bools) -> None:
        """Add a number under each hash. `alive` says, by number, which of the numbers are still meant: others may be dropped."""
        if not len(hashes):
            return
        local, distinct = _distinct(hashes)
        slots = self._slots(distinct)
        counts = np.bincount(local, minlength=len(distinct))
        full = self._length[slots] + counts > self._room[slots]
        if full.any():
            self._grow(slots[full], counts[full], alive)
        ordered = numbers if len(distinct) == len(hashes) else numbers[np.argsort(local, kind="stable")]
        self._numbers[ranges(self._start[slots] + self._length[slots], counts)] = ordered
        self._length[slots] += counts

    def find(self, hashes: Integers) -> Pairs:
        """What was added under each hash."""
        if not self._hashes or not len(hashes):
            return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
        local, distinct = _distinct(hashes)
        slots = self._index.find(distinct)
        known = slots >= 0
        lengths = np.where(known, self._length[slots], 0)[local]
        starts = self._start[slots][local]
        return Pairs(np.repeat(np.arange(len(hashes)), lengths), self._numbers[ranges(starts, lengths)])

    def counts(self, hashes: Integers) -> Integers:
        """How many numbers `find` gives for each hash."""
        if not self._hashes:
            return np.zeros(len(hashes), np.int64)
        slots = self._index.find(hashes)
        return np.where(slots >= 0, self._length[slots], 0)

    def _slots(self, distinct: Integers) -> Integers:
        slots = self._index.find(distinct)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = np.arange(self._hashes, self._hashes + len(new))
            self._index.insert(distinct[new], slots[new])
            self._hashes += len(new)
            self._start = extended(self._start, self._hashes, 0)
            self._room = extended(self._room, self._hashes, 0)
            self._length = extended(self._length, self._hashes, 0)
        return slots

    def _grow(self, slots: Integers, more: Integers, alive: Bools) -> None:
        """Move the lists of some slots to the end, without what is not alive, with room for `more` and as much again."""
        old = self._numbers[ranges(self._start[slots], self._length[slots])]
        owner = np.repeat(np.arange(len(slots)), self._length[slots])
        kept = alive[old]
        old, owner = old[kept], owner[kept]
        lengths = np.bincount(owner, minlength=len(slots))
        needed = lengths + more
        room = np.where(needed > 1, 1 << np.ceil(np.log2(np.maximum(needed, 1))).astype(np.int64), 1)
        starts = self._used + np.cumsum(room) - room
        self._used += int(room.sum())
        self._numbers = extended(self._numbers, self._used, 0)
        self._numbers[ranges(starts, lengths)] = old
        self._start[slots], self._room[slots], self._length[slots] = starts, room, lengths


def _distinct(hashes: Integers) -> tuple[Integers, Integers]:
    """(for each hash its number among the distinct ones, the distinct ones in order of appearance)."""
    encoded = pa.array(hashes).dictionary_encode()
    local: Integers = encoded.indices.to_numpy().astype(np.int64)
    distinct: Integers = encoded.dictionary.to_numpy()
    return local, distinct
