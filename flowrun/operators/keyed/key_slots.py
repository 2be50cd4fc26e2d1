"""Keys numbered by slots, found again without searching all of them.

A slot is the number of a key: state of a key is an entry of a NumPy array at its slot, or positions of rows in a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.aggregation.numbering import by_appearance, first_rows
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.hash_index import HashIndex
from flowrun.operators.keyed.integers import Integers, extended
from flowrun.operators.keyed.row_log import RowLog
from flowrun.state.key_groups import hash_columns


@record
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
        ids, total = by_appearance(encoded, rows)
        if total < rows:
            firsts = pa.array(first_rows(ids, total))
            encoded = [c.take(firsts) for c in encoded]
        return LocatedKeys(ids, self._slots_of(pa.RecordBatch.from_arrays(encoded, names=_names(encoded)), add))

    def _slots_of(self, distinct: pa.RecordBatch, add: bool) -> Integers:
        hashes = hash_columns(distinct.columns).view(np.int64)
        found = self._index.find(hashes)
        hits = np.flatnonzero(found >= 0)
        clash = False
        if len(hits):
            stored = self._log.take(found[hits])
            same = rows_equal(stored.columns, _rows(distinct, hits).columns, len(hits))
            clash = not same.all()
            found[hits[~same]] = -1
        missing = np.flatnonzero(found < 0)
        if len(missing) and self._collided:
            values = _comparable(distinct.take(pa.array(missing)))
            found[missing] = [self._collided.get(v, -1) for v in values]
            missing = missing[found[missing] < 0]
        if len(missing) and add:
            found[missing] = np.arange(self._count, self._count + len(missing))
            self._add(
                distinct.take(pa.array(missing)), hashes[missing], clash
            )  # a copy: it keeps no larger buffers alive
        return found

    def _add(self, keys: pa.RecordBatch, hashes: Integers, clash: bool) -> None:
        """Keys get the next slots. `clash`: other keys may have hashes of theirs."""
        slots = np.arange(self._count, self._count + keys.num_rows)
        self._log.append(keys)
        self._count += keys.num_rows
        self._hashes = extended(self._hashes, self._count, 0)
        self._hashes[slots] = hashes
        ordered = np.sort(hashes)
        if not clash and (ordered[1:] != ordered[:-1]).all():
            self._index.insert(hashes, slots)
            return
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


@record
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


def _rows(keys: pa.RecordBatch, positions: Integers) -> pa.RecordBatch:
    """Rows at ascending positions."""
    return keys if len(positions) == keys.num_rows else keys.take(pa.array(positions))


def _names(columns: Sequence[pa.Array]) -> list[str]:
    return [f"k{i}" for i in range(len(columns))]


def _as_bits(column: pa.Array) -> pa.Array:
    """Floats (canonical ones) as the integers of their bits, so that NaN equals itself."""
    if pa.types.is_float64(column.type):
        return column.view(pa.int64())
    return column.view(pa.int32()) if pa.types.is_float32(column.type) else column


def _comparable(keys: pa.RecordBatch) -> list[Any]:
    return list(zip(*(_as_bits(c).to_pylist() for c in keys.columns), strict=True))
