"""Rows and keys that are found again without searching all of them: an append-only log of rows, and keys numbered by slots.

A slot is the number of a key: state of a key is an entry of a NumPy array at its slot, or positions of rows in a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.schema import Schema
from flowrun.operators.aggregation.grouping import group_ids
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.state.key_groups import hash_columns

Integers = npt.NDArray[np.int64]

_LITTLE = 1024
_LARGEST_BYTES = 16 << 20
"""Chunks of a log do not grow beyond that: one that is merged holds up all other work. (Offsets of texts are 32 bits wide anyway.)"""
_LEAST_CELLS = 1024
_LOAD = 0.5
_PART_BITS = 4
_PARTS = 1 << _PART_BITS
_CUT_FROM = 512 * 1024
"""Entries from which on a hash table is cut into parts."""


class RowLog:
    """An append-only sequence of rows, addressed by position. Chunks are merged by size tiers: a row is copied O(log n) times.

    Taking rows costs in proportion to the rows taken, whatever the log holds.
    """

    def __init__(self) -> None:
        self._chunks: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: pa.RecordBatch) -> int:
        """Add rows, all of one schema; gives the position of the first."""
        first = self._rows
        if rows.num_rows == 0 and self._chunks:
            return first
        self._chunks.append(rows)
        self._starts.append(first)
        self._rows += rows.num_rows
        merged = len(self._chunks)
        size = rows.num_rows
        size_bytes = rows.nbytes
        while merged > 1 and self._chunks[merged - 2].num_rows <= 2 * size + _LITTLE:
            size_bytes += self._chunks[merged - 2].nbytes
            if size_bytes > _LARGEST_BYTES:
                break
            merged -= 1
            size += self._chunks[merged - 1].num_rows
        if merged < len(self._chunks):
            self._chunks[merged - 1 :] = [pa.concat_batches(self._chunks[merged - 1 :])]
            del self._starts[merged:]
        return first

    def view(self) -> RowLog:
        """The log as it is now; it shares the rows and never changes by itself."""
        view = RowLog()
        view._chunks, view._starts, view._rows = list(self._chunks), list(self._starts), self._rows
        return view

    def take(self, positions: Integers) -> pa.RecordBatch:
        """The rows at some positions, in that order; something must have been appended before."""
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(positions))
        chunk_of = np.searchsorted(np.array(self._starts), positions, side="right") - 1
        if len(self._chunks) <= np.iinfo(np.uint16).max:
            chunk_of = chunk_of.astype(np.uint16)  # sorted in linear time
        order = np.argsort(chunk_of, kind="stable")
        bounds = np.searchsorted(chunk_of[order], np.arange(len(self._chunks) + 1))
        parts = [
            chunk.take(pa.array(positions[order[bounds[i] : bounds[i + 1]]] - start))
            for i, (chunk, start) in enumerate(zip(self._chunks, self._starts, strict=True))
            if bounds[i] < bounds[i + 1]
        ]
        if not parts:
            return self._chunks[0].slice(0, 0)
        taken = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if (order[1:] > order[:-1]).all():
            return taken
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return taken.take(pa.array(back))

    def take_columns(self, positions: Integers, columns: Sequence[int]) -> list[pa.Array]:
        """Some columns of the rows at some positions; something must have been appended before."""
        view = RowLog()
        view._starts, view._rows = self._starts, self._rows
        view._chunks = [c.select(list(columns)) for c in self._chunks]
        return list(view.take(positions).columns)

    def keep(self, positions: Integers) -> None:
        """Keep only these rows, which get the positions 0, 1, … in the order given."""
        if not self._chunks:
            return
        kept = self.take(positions)
        self._chunks, self._starts, self._rows = [kept], [0], kept.num_rows


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """The keys of one batch.

    Attributes:
        local: for each row, the number of its key among the batch's keys, which are numbered by first appearance.
        slots: slot of each of the batch's keys.
    """

    local: Integers
    slots: Integers

    def row_order(self) -> Integers:
        """Positions of the rows, grouped by key and in arrival order within a key."""
        small = len(self.slots) <= np.iinfo(np.uint16).max
        order: Integers = np.argsort(self.local.astype(np.uint16) if small else self.local, kind="stable")
        return order


class KeySlots:
    """Numbers keys 0, 1, …; looks up one entry for each distinct key of a batch, never all keys.

    Keys are found by their 64-bit hash and then compared; the rare keys whose hash another key has are kept in a dict.
    """

    def __init__(self, codec: KeyCodec) -> None:
        self._codec = codec
        self._types = codec.types
        self._index = HashIndex()
        self._log = RowLog()
        self._hashes: Integers = np.zeros(0, np.int64)
        self._collided: dict[Any, int] = {}
        self._count = 0

    @classmethod
    def of(cls, schema: Schema, keys: Sequence[int]) -> KeySlots:
        """Slots for the key columns at these positions.

        Raises:
            DataError: a column's type cannot be a key.
        """
        fields = [schema.fields[k] for k in keys]
        return cls(KeyCodec.of([(f.name, f.type) for f in fields]))

    def __len__(self) -> int:
        return self._count

    def locate(self, columns: Sequence[pa.Array], rows: int, *, add: bool = True) -> LocatedKeys:
        """Slots of the keys of `rows` rows; new keys get the next ones, or −1 unless `add`. Without key columns all rows have slot 0."""
        if not self._types:
            self._count = 1
            return LocatedKeys(np.zeros(rows, np.int64), np.zeros(min(rows, 1), np.int64))
        encoded = self._codec.encode(columns)
        ids, total = group_ids(encoded, rows)
        first = np.full(total, rows, np.int64)
        first[ids[::-1]] = np.arange(rows - 1, -1, -1)
        appearance = np.sort(first[first < rows])
        number = np.empty(total, np.int64)
        number[ids[appearance]] = np.arange(len(appearance))
        distinct = pa.RecordBatch.from_arrays([c.take(pa.array(appearance)) for c in encoded], names=_names(encoded))
        return LocatedKeys(number[ids], self._slots_of(distinct, add))

    def _slots_of(self, distinct: pa.RecordBatch, add: bool) -> Integers:
        hashes = hash_columns(distinct.columns).view(np.int64)
        found = self._index.find(hashes)
        hits = np.flatnonzero(found >= 0)
        if len(hits):
            same = _equal_rows(self._log.take(found[hits]), distinct.take(pa.array(hits)))
            found[hits[~same]] = -1
        missing = np.flatnonzero(found < 0)
        if len(missing) and self._collided:
            values = _comparable(distinct.take(pa.array(missing)))
            found[missing] = [self._collided.get(v, -1) for v in values]
            missing = missing[found[missing] < 0]
        if len(missing) and add:
            found[missing] = np.arange(self._count, self._count + len(missing))
            self._add(distinct.take(pa.array(missing)), hashes[missing])
        return found

    def _add(self, keys: pa.RecordBatch, hashes: Integers) -> None:
        slots = np.arange(self._count, self._count + keys.num_rows)
        self._log.append(keys)
        self._count += keys.num_rows
        self._hashes = extended(self._hashes, self._count, 0)
        self._hashes[slots] = hashes
        _, firsts = np.unique(hashes, return_index=True)
        free = firsts[self._index.find(hashes[firsts]) < 0]
        self._index.insert(hashes[free], slots[free])
        if len(free) < len(hashes):
            others = np.setdiff1d(np.arange(len(hashes)), free)
            values = _comparable(keys.take(pa.array(others)))
            self._collided.update(zip(values, slots[others].tolist(), strict=True))

    def keys_of(self, slots: Integers) -> list[pa.Array]:
        """Key columns of some slots."""
        return _keys_at(self._codec, self._log, slots)

    def view(self) -> KeyList:
        """The keys as they are now."""
        return KeyList(self._codec, self._log.view(), self._count)

    def forget(self, keep: npt.NDArray[np.bool_]) -> Integers:
        """Forget the slots that are not kept; gives the old slots of the remaining ones, which are numbered anew in order."""
        kept = np.flatnonzero(keep)
        self._count = len(kept)
        if self._types:
            renumbered = np.cumsum(keep) - 1
            indexed = np.ones(len(keep), np.bool_)
            indexed[list(self._collided.values())] = False
            self._index = HashIndex()
            self._index.insert(self._hashes[np.flatnonzero(keep & indexed)], renumbered[keep & indexed])
            self._collided = {k: int(renumbered[s]) for k, s in self._collided.items() if keep[s]}
            self._hashes = self._hashes[kept]
            self._log.keep(kept)
        return kept


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys of `KeySlots` at one moment, by slot. Immutable: may be read by another thread."""

    codec: KeyCodec
    log: RowLog
    count: int

    def __len__(self) -> int:
        return self.count

    def keys_of(self, slots: Integers) -> list[pa.Array]:
        """Key columns of some slots."""
        return _keys_at(self.codec, self.log, slots)


def _keys_at(codec: KeyCodec, log: RowLog, slots: Integers) -> list[pa.Array]:
    if not codec.types or len(log) == 0:
        return [pa.array([], t.arrow) for t in codec.types]
    return codec.decode(log.take(slots).columns)


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


def _names(columns: Sequence[pa.Array]) -> list[str]:
    return [f"k{i}" for i in range(len(columns))]


def _as_bits(column: pa.Array) -> pa.Array:
    """Floats (canonical ones) as the integers of their bits, so that NaN equals itself."""
    if pa.types.is_float64(column.type):
        return column.view(pa.int64())
    return column.view(pa.int32()) if pa.types.is_float32(column.type) else column


def _equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    same = np.ones(left.num_rows, np.bool_)
    for a, b in zip(map(_as_bits, left.columns), map(_as_bits, right.columns), strict=True):
        equal = pc.equal(a, b)
        if equal.null_count:
            equal = pc.or_(pc.fill_null(equal, False), pc.and_(a.is_null(), b.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _comparable(keys: pa.RecordBatch) -> list[Any]:
    return list(zip(*(_as_bits(c).to_pylist() for c in keys.columns), strict=True))


def extended(values: Integers, size: int, fill: int) -> Integers:
    """The array with room for at least `size` entries, new ones being `fill`; grows by doubling."""
    if len(values) >= size:
        return values
    room = max(size, 2 * len(values), 64)
    grown = (
        np.full(room, fill, np.int64) if fill else np.zeros(room, np.int64)
    )  # zeros cost nothing until they are written
    grown[: len(values)] = values
    return grown


def ranges(starts: Integers, lengths: Integers) -> Integers:
    """The numbers start, start + 1, … of several ranges, one range after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Integers = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers
