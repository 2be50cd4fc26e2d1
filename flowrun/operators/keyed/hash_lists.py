"""Lists of row numbers by hash, for all hashes of a batch at once, with few accesses of memory a row.

What a batch looks up is sorted first: it then goes through memory in one direction. A hash with one number, the usual case with unique
keys, costs the access of one cell (see `hash_cells`). The numbers of another one are a block of an array: their count, then they
themselves, with room to spare; a block that is full moves to the end with twice the room, so that a key with a million rows costs no
more a row than one with two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.operators.keyed.hash_cells import REFERENCE, TAG_BITS, Cells, GrowingCells
from flowrun.operators.keyed.integers import ranges, sorted_with_places
from flowrun.operators.keyed.state_arrays import extended
from flowrun.state.key_groups import hash_columns

_LEAST_WORDS = 4
"""Of a block: a count and three numbers."""


@record
class Pairs:
    """Probing rows and what they found: `numbers[i]` was found for row `probe[i]`; ordered by `probe`, then by arrival."""

    probe: Integers
    numbers: Integers

    def __len__(self) -> int:
        return len(self.probe)

    def where(self, keep: Bools) -> Pairs:
        """Some of the pairs."""
        return self if keep.all() else Pairs(self.probe.compress(keep), self.numbers.compress(keep))


@record
class SortedTags:
    """What a batch looks up.

    Attributes:
        tags: hashes of `TAG_BITS` bits, ascending.
        rows: the row of each; ascending where tags are equal.
    """

    tags: Integers
    rows: Integers

    @classmethod
    def of(cls, tags: Integers) -> SortedTags:
        """The tags of rows 0, 1, …, which should be spread evenly over the range of tags."""
        return cls(*sorted_with_places(tags))

    @classmethod
    def of_columns(cls, columns: Sequence[pa.Array], rows: int) -> SortedTags:
        """Those of `rows` rows: hashes over some columns; one for all without columns.

        Raises:
            DataError: a column's type cannot be a key.
        """
        if not columns:
            return cls(np.zeros(rows, np.int64), np.arange(rows))
        return cls.of((hash_columns(columns) >> np.uint64(64 - TAG_BITS)).view(np.int64))

    def __len__(self) -> int:
        return len(self.tags)

    def where(self, keep: Bools) -> SortedTags:
        """Those of some of the rows, which are numbered anew.

        >>> SortedTags.of(np.array([7, 3, 7])).where(np.array([False, True, True])).rows.tolist()
        [0, 1]
        """
        if keep.all():
            return self
        kept = keep[self.rows]
        return SortedTags(self.tags.compress(kept), (np.cumsum(keep) - 1)[self.rows.compress(kept)])


class HashLists:
    """Tag → the numbers (below 2³¹) that were added under it, in the order in which they were added."""

    def __init__(self) -> None:
        self._cells = GrowingCells()  # tag → 1 + 2 · its only number, or 2 · the word where its block begins
        self._words: npt.NDArray[np.int32] = np.zeros(1024, np.int32)
        self._used = 1  # the first word is the count of those without a block: 0

    def add(self, tags: SortedTags, numbers: Integers, alive: Bools | None = None) -> None:
        """Add the number of each row under its tag.

        `alive` says, by number, which of all numbers are still meant: others may be dropped; None: all are.
        """
        if not len(tags):
            return
        ends = np.flatnonzero(np.append(tags.tags[1:] != tags.tags[:-1], True)) + 1
        distinct, numbers = tags.tags[ends - 1], numbers[tags.rows]
        self._cells.make_room(len(ends))
        for cells, start, stop in self._cells.split(distinct):
            before = int(ends[start - 1]) if start else 0
            counts = np.diff(ends[start:stop], prepend=before)
            self._add(cells, distinct[start:stop], counts, numbers[before : ends[stop - 1]], alive)

    def _add(self, cells: Cells, tags: Integers, counts: Integers, numbers: Integers, alive: Bools | None) -> None:
        """Add the next `counts[i]` of the numbers under the i-th of some distinct tags."""
        at, found = cells.locate(tags)
        firsts = numbers if len(numbers) == len(tags) else numbers[np.cumsum(counts) - counts]
        references = 2 * firsts + 1
        old = found != 0
        single = (found & 1).astype(np.bool_)
        if alive is not None:
            singles = np.flatnonzero(single)
            forgotten = singles[~alive[found[singles] >> 1]]
            single[forgotten] = False  # a number that is not meant any more gives way
            found[forgotten] = 0
        listed = np.flatnonzero((counts > 1) | (found != 0))
        if len(listed):
            chosen = single[listed]
            has, counts_of = found[listed] >> 1, counts[listed]
            blocks, joining = np.where(chosen, 0, has), np.where(chosen, has, -1)
            added = numbers
            if len(listed) < len(tags):
                kept = np.zeros(len(tags), np.bool_)
                kept[listed] = True
                added = numbers[np.repeat(kept, counts)]
            references[listed] = 2 * self._extended(blocks, joining, counts_of, added, alive)
        if not old.any():
            cells.place(at, tags, references)
            return
        cells.replace(at[old], tags[old], references[old])
        new = ~old
        cells.place(at.compress(new), tags.compress(new), references.compress(new))

    def _extended(
        self, blocks: Integers, joining: Integers, counts: Integers, numbers: Integers, alive: Bools | None
    ) -> Integers:
        """Add the next `counts[i]` of the numbers to a block, after the one that is `joining` (−1: none); where each is then.

        Blocks that begin at 0 are not there yet; only they have numbers that join.
        """
        begins = joining >= 0
        needed = counts + begins
        lengths = self._words[blocks].astype(np.int64)
        full = np.flatnonzero(lengths + needed >= _room(lengths))
        if len(full):
            blocks[full], lengths[full] = self._moved(blocks[full], lengths[full], needed[full], alive)
        self._words[blocks[begins] + 1] = joining[begins]
        lengths += begins
        self._words[ranges(blocks + 1 + lengths, counts)] = numbers
        self._words[blocks] = lengths + counts
        return blocks

    def _moved(
        self, blocks: Integers, lengths: Integers, more: Integers, alive: Bools | None
    ) -> tuple[Integers, Integers]:
        """Move blocks to the end, without what is not alive, with room for `more`; (where each is, how many numbers it has)."""
        held = self._words[ranges(blocks + 1, lengths)]
        if alive is not None:
            kept = alive[held]
            owners = np.repeat(np.arange(len(blocks)), lengths)[kept]
            held, lengths = held[kept], np.bincount(owners, minlength=len(blocks))
        rooms = _room(lengths + more)
        starts = self._used + np.cumsum(rooms) - rooms
        self._used += int(rooms.sum())
        self._words = extended(self._words, self._used, 0)
        self._words[ranges(starts + 1, lengths)] = held
        return starts, lengths

    def find(self, tags: SortedTags) -> Pairs:
        """What was added under the tag of each row."""
        return self.listed(*self.located(tags))

    def located(self, tags: SortedTags) -> tuple[Integers, Integers]:
        """(where the numbers of each row begin, how many they are), to be passed to `listed` before anything is added."""
        every = np.empty(len(tags), np.int64)
        for cells, start, stop in self._cells.split(tags.tags):
            every[start:stop] = cells.locate(tags.tags[start:stop])[1]
        found = np.empty(len(tags), np.int64)
        found[tags.rows] = every
        return self._lists(found)

    def _lists(self, found: Integers) -> tuple[Integers, Integers]:
        """What references, as they are in cells, mean: as `located`."""
        starts = -1 - (found >> 1)  # a number itself, or nothing
        lengths = found & 1
        if self._used > 1:
            lists = np.flatnonzero((found != 0) & (lengths == 0))
            blocks = found[lists] >> 1
            starts[lists], lengths[lists] = blocks + 1, self._words[blocks]
        return starts, lengths

    def listed(self, starts: Integers, lengths: Integers) -> Pairs:
        """The numbers in some lists; `probe` is the position of a list among them."""
        if len(lengths) and lengths.max() <= 1:
            probe = np.flatnonzero(lengths)
            at = starts[probe]
        else:
            probe = np.repeat(np.arange(len(starts)), lengths)
            at = ranges(starts, lengths)
        numbers = -1 - at
        lists = np.flatnonzero(at >= 0)
        numbers[lists] = self._words[at[lists]]
        return Pairs(probe, numbers)

    def renumbered(self, numbers: Integers) -> HashLists:
        """The lists with `numbers[n]` for each number n; those for which it is −1 are left out. Nothing is hashed or compared again."""
        entries = self._cells.entries()
        references = entries & REFERENCE
        held = references >> 1
        blocks = np.flatnonzero(references & 1 == 0)
        held[blocks] = 0
        renamed = numbers[held]
        renamed[blocks] = -1
        left = np.flatnonzero(renamed >= 0)
        made = HashLists()
        made._cells.fill(entries[left] & ~REFERENCE | 2 * renamed[left] + 1)
        if len(blocks):
            pairs = self.listed(*self._lists(references[blocks]))
            renamed = numbers[pairs.numbers]
            tags = SortedTags.of((entries[blocks] >> 32)[pairs.probe]).where(renamed >= 0)
            made.add(tags, renamed.compress(renamed >= 0))
        return made


def _room(lengths: npt.NDArray[np.integer[Any]]) -> Integers:
    """Words of a block with so many numbers: the next power of two that holds their count, too; 0 if there are none.

    >>> _room(np.array([0, 1, 2, 3, 4, 7, 8])).tolist()
    [0, 4, 4, 4, 8, 8, 16]
    """
    _, bits = np.frexp(np.maximum(lengths + 1, _LEAST_WORDS) - 0.5)
    room: Integers = np.where(lengths > 0, 1 << bits.astype(np.int64), 0)
    return room
