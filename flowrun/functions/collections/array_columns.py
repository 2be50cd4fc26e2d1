"""List columns as flat values with counts: what the array kernels compute on, without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.functions.contract import Datum
from flowrun.functions.vectors import as_array

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]


@record
class FlatLists:
    """The elements of all rows in order.

    Attributes:
        values: elements of the non-NULL lists.
        counts: elements of each row (0 for NULL).
        valid: which rows are not NULL.
    """

    values: pa.Array
    counts: Int64Array
    valid: BoolArray

    @classmethod
    def of(cls, datum: Datum, rows: int) -> FlatLists:
        """A list or map column (or constant) taken apart; slices and NULL rows are normalised away. A map's values are its entries."""
        column = as_array(datum, rows)
        if pa.types.is_map(column.type):
            entry = pa.struct([pa.field("key", column.type.key_type, False), pa.field("value", column.type.item_type)])
            column = column.cast(pa.list_(entry)) if len(column) else pa.array([], pa.list_(entry))
        lengths = pc.list_value_length(column)
        counts = pc.fill_null(lengths, 0).to_numpy().astype(np.int64)
        return cls(column.flatten(), counts, pc.is_valid(column).to_numpy(zero_copy_only=False))

    @property
    def starts(self) -> Int64Array:
        """Where each row's elements start in `values`; one more entry than rows, the last is the number of elements."""
        starts = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts, out=starts[1:])
        return starts

    @property
    def parents(self) -> Int64Array:
        """The row of each element."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def places(self) -> Int64Array:
        """The position of each element in its row, from 0."""
        return np.arange(len(self.values)) - self.starts[self.parents]

    def kept(self, keep: BoolArray, type: pa.DataType) -> pa.Array:
        """The lists with only the elements where `keep` is set."""
        counts = np.bincount(self.parents[keep], minlength=len(self.counts))
        return lists(self.values.filter(pa.array(keep)), counts, self.valid, type)

    def reordered(self, order: Int64Array, type: pa.DataType) -> pa.Array:
        """The lists with their elements (positions in `values`, row by row) in another order."""
        return lists(self.values.take(pa.array(order)), self.counts, self.valid, type)


def lists(values: pa.Array, counts: Int64Array, valid: BoolArray, type: pa.DataType) -> pa.Array:
    """A list column of flat values; rows that are not valid are NULL and must have count 0."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    mask = None if valid.all() else pa.array(~valid)
    built = pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)
    return built if built.type == type else built.cast(type)


def codes(columns: Sequence[pa.Array]) -> list[Int64Array]:
    """For each column, integers that are equal where the values are; NULL equals NULL, also across columns."""
    together = pa.concat_arrays(list(columns))
    if pa.types.is_nested(together.type):
        seen: dict[str, int] = {}
        numbers = np.array([seen.setdefault(repr(v), len(seen)) for v in together.to_pylist()], np.int64)
    else:
        encoded = pc.dictionary_encode(together, null_encoding="encode")
        numbers = encoded.indices.to_numpy().astype(np.int64)
    return list(np.split(numbers, np.cumsum([len(c) for c in columns])[:-1]))


def first_of_each(parents: Int64Array, numbers: Int64Array) -> BoolArray:
    """Marks the first element of each (row, code) pair."""
    first = np.zeros(len(parents), bool)
    if len(parents):
        _, places = np.unique(parents * (int(numbers.max()) + 1) + numbers, return_index=True)
        first[places] = True
    return first


def joined(parts: Sequence[FlatLists]) -> FlatLists:
    """Row by row, the elements of all parts one after the other; NULL if any part is NULL."""
    valid = np.logical_and.reduce([p.valid for p in parts])
    values = pa.concat_arrays([p.values for p in parts])
    parents = np.concatenate([p.parents for p in parts])
    order = np.argsort(parents, kind="stable")
    order = order[valid[parents[order]]]
    counts = np.where(valid, np.sum([p.counts for p in parts], axis=0), 0)
    return FlatLists(values.take(pa.array(order)), counts, valid)
