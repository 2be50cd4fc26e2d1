"""The newest row of each key of a table, kept up to date by changes.

All rows of a key that were added and not removed are kept; the last of them is the key's row. A key has more than one such row only if
the changes come from several keys upstream, as when a query that groups by `id` writes a table whose key is `name`: when the newest row
is removed, the one before it is the newest again. Flink's SinkUpsertMaterializer serves the same purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers, UInt64s
from flowrun.errors import DataError
from flowrun.state.key_groups import hash_columns

_LEAST_FOLD = 65_536


class NewestRows:
    """Rows by key. Changes are gathered, and applied when there are as many of them as rows, or when a method asks for rows.

    Args:
        schema: the columns of the rows.
        keys: positions of the key columns.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[int]) -> None:
        self._schema = schema
        self._keys = tuple(keys)
        self._alive = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
        self._changes: list[pa.RecordBatch] = []
        self._removes: list[Bools] = []
        self._waiting = 0

    def add(self, rows: pa.RecordBatch, removes: Bools | None) -> None:
        """Apply changes in order: rows are added, or, where `removes` is true, removed."""
        self._changes.append(rows)
        self._removes.append(np.zeros(rows.num_rows, np.bool_) if removes is None else removes)
        self._waiting += rows.num_rows
        if self._waiting >= max(_LEAST_FOLD, self._alive.num_rows):
            self._fold()

    def alive(self) -> pa.RecordBatch:
        """All rows that were added and not removed, in the order in which they came. Added to an empty table, they make the same table."""
        self._fold()
        return self._alive

    def newest(self) -> pa.RecordBatch:
        """The newest row of each key, in the order in which they came."""
        rows = self.alive()
        ids = key_numbers(rows.columns, self._keys)
        last = np.zeros(int(ids.max()) + 1 if len(ids) else 0, np.int64)
        last[ids] = np.arange(len(ids))  # if a key occurs several times, the last assignment counts
        return rows if len(last) == len(ids) else rows.take(pa.array(np.sort(last)))

    def _fold(self) -> None:
        if not self._waiting:
            return
        changes, self._changes = self._changes, []
        removes = np.concatenate([np.zeros(self._alive.num_rows, np.bool_), *self._removes])
        self._removes, self._waiting = [], 0
        rows = pa.concat_batches([self._alive, *changes])
        self._alive = rows if not removes.any() else rows.take(pa.array(_remaining(rows, self._keys, removes)))


def _remaining(rows: pa.RecordBatch, keys: Sequence[int], removes: Bools) -> Integers:
    """Ascending positions of the added rows that are not removed; a removal takes away the oldest of the equal rows, as in Flink."""
    contents = numbers_of(_pairs(key_numbers(rows.columns, keys), content_hashes(rows.columns)))
    adds = np.flatnonzero(~removes)
    left = np.bincount(contents[adds], minlength=int(contents.max()) + 1)
    left -= np.bincount(contents[removes], minlength=len(left))
    order = adds[np.argsort(contents[adds], kind="stable")]
    of = contents[order]
    age = np.searchsorted(of, of, side="right") - np.arange(len(of))  # 1 for the youngest of equal rows
    return np.sort(order[age <= left[of]])


def _pairs(keys: Integers, hashes: UInt64s) -> UInt64s:
    pairs: UInt64s = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ hashes
    return pairs


def numbers_of(values: UInt64s) -> Integers:
    """The number of each value: 0, 1, … for the distinct values in the order in which they first occur.

    >>> numbers_of(np.array([7, 3, 7], np.uint64)).tolist()
    [0, 1, 0]
    """
    encoded = pa.array(values).dictionary_encode()
    numbers: Integers = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def key_numbers(columns: Sequence[pa.Array], keys: Sequence[int]) -> Integers:
    """The number of each row's key: 0, 1, … for the distinct keys. Keys of the same hash are compared.

    >>> key_numbers([pa.array(["a", "b", "a"])], [0]).tolist()
    [0, 1, 0]
    """
    key_columns = [columns[k] for k in keys]
    numbers = numbers_of(content_hashes(key_columns))
    if not len(numbers):
        return numbers
    first = np.zeros(int(numbers.max()) + 1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    representative = pa.array(first[numbers])
    same = np.ones(len(numbers), np.bool_)
    for column in key_columns:
        if not pa.types.is_nested(column.type):
            equal = pc.equal(column, column.take(representative))
            same &= pc.fill_null(equal, True).to_numpy(zero_copy_only=False)
    if same.all():
        return numbers
    exact: dict[object, int] = {}
    values = zip(*(c.to_pylist() for c in key_columns), strict=True)
    return np.fromiter((exact.setdefault(repr(v), len(exact)) for v in values), np.int64, len(numbers))


def content_hashes(columns: Sequence[pa.Array]) -> UInt64s:
    """A hash of each row over all columns, whatever their types."""
    try:
        return hash_columns(columns)
    except DataError:  # values of type MAP have no hash: they are rare, and hashed as text
        return hash_columns([_spelled(c) for c in columns])


def _spelled(column: pa.Array) -> pa.Array:
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([repr(v) for v in column.to_pylist()], pa.string())
