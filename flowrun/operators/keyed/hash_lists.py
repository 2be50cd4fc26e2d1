"""Lists of row numbers by hash: growing ranges of one array, so that a key with a million rows costs no more a row than one with two.

Each hash owns a block of the array with room to spare; a block that is full moves to the end with twice the room. Everything is done
for all hashes of a batch at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.record import record
from flowrun.operators.keyed.hash_index import HashIndex
from flowrun.operators.keyed.integers import Integers, extended, ranges

Bools = npt.NDArray[np.bool_]


@record
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
    """Hash (int64) → the numbers added under it, in the order in which they were added.

    A hash with one number, the usual case with unique keys, has no list: its number is in the index.
    """

    def __init__(self) -> None:
        self._index = HashIndex()  # hash → 2 · its only number, or 1 + 2 · the slot of its list
        self._slots = 0
        self._start: Integers = np.zeros(0, np.int64)
        self._length: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._numbers: Integers = np.zeros(0, np.int64)
        self._used = 0

    def add(self, hashes: Integers, numbers: Integers, alive: Bools) -> None:
        """Add a number under each hash. `alive` says, by number, which of the numbers are still meant: others may be dropped."""
        if not len(hashes):
            return
        local, distinct = _distinct(hashes)
        ordered = firsts = numbers
        counts = np.ones(len(distinct), np.int64)
        if len(distinct) < len(hashes):
            ordered, counts = numbers[np.argsort(local, kind="stable")], np.bincount(local, minlength=len(distinct))
            firsts = ordered[np.cumsum(counts) - counts]
        found = self._index.find_or_insert(distinct, 2 * firsts)
        old = found >= 0
        if not old.any() and len(distinct) == len(hashes):
            return
        single = old & (found & 1 == 0)
        begins = single.copy()
        begins[single] = alive[found[single] >> 1]  # a number that is not meant any more gives way
        changed = single & ~begins & (counts == 1)
        if changed.any():
            self._index.replace(distinct[changed], 2 * firsts[changed])
        listed = (counts > 1) | (old & ~changed)
        if listed.any():
            chosen = np.repeat(listed, counts)
            self._add_to_lists(distinct[listed], counts[listed], ordered[chosen], found[listed], begins[listed], alive)

    def _add_to_lists(
        self, hashes: Integers, counts: Integers, numbers: Integers, found: Integers, begins: Bools, alive: Bools
    ) -> None:
        """Add the next `counts[i]` of the numbers to the list of hash i.

        `found` is what the index had for each, `begins` whether that is a number with which its list begins.
        """
        slots = found >> 1
        fresh = (found < 0) | (found & 1 == 0)
        if fresh.any():
            slots[fresh] = np.arange(self._slots, self._slots + np.count_nonzero(fresh))
            self._index.replace(hashes[fresh], 2 * slots[fresh] + 1)
            self._slots += int(np.count_nonzero(fresh))
            self._start = extended(self._start, self._slots, 0)
            if len(self._length) < self._slots:
                self._length = np.concatenate([self._length, np.zeros(len(self._start) - len(self._length), np.int32)])
        needed = counts + begins
        lengths = self._length[slots]
        full = lengths + needed > _room(lengths)
        if full.any():
            self._grow(slots[full], needed[full], alive)
        if begins.any():
            first = slots[begins]
            self._numbers[self._start[first]] = found[begins] >> 1
            self._length[first] = 1
        self._numbers[ranges(self._start[slots] + self._length[slots], counts)] = numbers
        self._length[slots] += counts

    def find(self, hashes: Integers) -> Pairs:
        """What was added under each hash."""
        return self.listed(*self.located(hashes))

    def located(self, hashes: Integers) -> tuple[Integers, Integers]:
        """(where the list of each hash begins, its length), to be passed to `listed` before anything is added."""
        found = self._index.find(hashes)
        places = found >> 1
        lengths = (found >= 0).astype(np.int64)
        starts = -1 - places  # of what has no list: found below 0
        if self._slots:
            lists = np.flatnonzero((found >= 0) & (found & 1 == 1))
            starts[lists] = self._start[places[lists]]
            lengths[lists] = self._length[places[lists]]
        return starts, lengths

    def listed(self, starts: Integers, lengths: Integers) -> Pairs:
        """The numbers in some lists; `probe` is the position of a list among them."""
        probe = np.repeat(np.arange(len(starts)), lengths)
        at = ranges(starts, lengths)
        numbers = -1 - at
        lists = np.flatnonzero(at >= 0)
        numbers[lists] = self._numbers[at[lists]]
        return Pairs(probe, numbers)

    def _grow(self, slots: Integers, more: Integers, alive: Bools) -> None:
        """Move the lists of some slots to the end, without what is not alive, with room for `more` and as much again."""
        had = self._length[slots].astype(np.int64)
        old = self._numbers[ranges(self._start[slots], had)]
        owner = np.repeat(np.arange(len(slots)), had)
        kept = alive[old]
        old, owner = old[kept], owner[kept]
        lengths = np.bincount(owner, minlength=len(slots))
        room = _room(lengths + more)
        starts = self._used + np.cumsum(room) - room
        self._used += int(room.sum())
        self._numbers = extended(self._numbers, self._used, 0)
        self._numbers[ranges(starts, lengths)] = old
        self._start[slots], self._length[slots] = starts, lengths


def _room(lengths: npt.NDArray[np.integer[Any]]) -> Integers:
    """For how many numbers a block that has so many of them was made: the next power of two.

    A block is made for one more than half of its room at least, and never holds less.

    >>> _room(np.array([0, 1, 2, 3, 4, 5])).tolist()
    [0, 1, 2, 4, 4, 8]
    """
    _, bits = np.frexp(np.maximum(lengths, 1) - 0.5)
    room: Integers = np.where(lengths > 0, 1 << bits.astype(np.int64), 0)
    return room


def _distinct(hashes: Integers) -> tuple[Integers, Integers]:
    """(for each hash its number among the distinct ones, the distinct ones in order of appearance)."""
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():  # costs a tenth of what is saved
        return np.arange(len(hashes)), hashes
    encoded = pa.array(hashes).dictionary_encode()
    local: Integers = encoded.indices.to_numpy().astype(np.int64)
    distinct: Integers = encoded.dictionary.to_numpy()
    return local, distinct
