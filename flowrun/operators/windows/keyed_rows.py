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
_LARGEST_BYTES = 1 << 30
"""Chunks of a log do not grow beyond that: the offsets of a column of texts are 32 bits wide."""


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
    """Hash → number, over arrays: open addressing with linear probing, all lookups of a call advancing together."""

    def __init__(self) -> None:
        self._resize(1024)

    def _resize(self, size: int) -> None:
        self._mask = size - 1
        self._hashes: Integers = np.zeros(size, np.int64)
        self._numbers: Integers = np.full(size, -1, np.int64)
        self._count = 0

    def find(self, hashes: Integers) -> Integers:
        """The number of each hash, −1 if it is not there."""
        cells = hashes & self._mask
        found: Integers = self._numbers[cells]
        searching = np.flatnonzero((found >= 0) & (self._hashes[cells] != hashes))
        while len(searching):
            cells[searching] = (cells[searching] + 1) & self._mask
            at = cells[searching]
            found[searching] = self._numbers[at]
            searching = searching[(found[searching] >= 0) & (self._hashes[at] != hashes[searching])]
        return found

    def insert(self, hashes: Integers, numbers: Integers) -> None:
        """Add distinct hashes that are not there yet."""
        if 2 * (self._count + len(hashes)) > self._mask:
            used = np.flatnonzero(self._numbers >= 0)
            held = self._hashes[used], self._numbers[used]
            size = self._mask + 1
            while 2 * (len(used) + len(hashes)) >= size:
                size *= 4
            self._resize(size)
            self._place(*held)
        self._place(hashes, numbers)

    def _place(self, hashes: Integers, numbers: Integers) -> None:
        self._count += len(hashes)
        cells = hashes & self._mask
        waiting = np.arange(len(hashes))
        while len(waiting):
            at = cells[waiting]
            free = self._numbers[at] < 0
            claimed = at[free]
            self._numbers[claimed] = numbers[waiting[free]]  # of several that want one cell, the last one gets it
            placed = np.zeros(len(waiting), np.bool_)
            placed[free] = self._numbers[claimed] == numbers[waiting[free]]
            self._hashes[at[placed]] = hashes[waiting[placed]]
            waiting = waiting[~placed]
            cells[waiting] = (cells[waiting] + 1) & self._mask


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
    grown = np.full(max(size, 2 * len(values), 64), fill, np.int64)
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
