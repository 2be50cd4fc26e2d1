"""Every row once for each element of a collection in it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.operators.base import AbstractOperator
from flowrun.operators.rows.children import pieces, with_columns_of
from flowrun.operators.rows.factories import Collection, UnnestFactory


class UnnestOperator(AbstractOperator):
    """Puts the elements of a collection beside their row. As in Flink, rows of an array that are NULL are no elements."""

    def __init__(self, factory: UnnestFactory) -> None:
        self._factory = factory

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send the rows with their elements, in slices if they become many."""
        lengths = self._lengths(batch.columns.column(self._factory.column))
        for part, children in pieces(batch, np.maximum(lengths, 1) if self._factory.outer else lengths):
            self._unnest(part, children)

    def _unnest(self, batch: RecordBatch, children: Integers) -> None:
        if not children.sum():
            return
        column = batch.columns.column(self._factory.column)
        lengths = self._lengths(column)
        parents = np.repeat(np.arange(batch.num_rows), children)
        places = np.arange(len(parents)) - np.repeat(np.cumsum(children) - children, children)
        missing = np.repeat(lengths == 0, children)
        columns = self._elements(column)
        if self._factory.ordinality:
            columns.append(self._places(column))
        if missing.any():
            at = pa.array(np.repeat(np.cumsum(lengths) - lengths, children) + places, mask=missing)
            columns = [c.take(at) for c in columns]
        if not self._factory.keeps_collection:
            batch = self._without_collection(batch)
        self.output.emit(with_columns_of(batch, pa.array(parents), columns, self._factory.output_schema))

    def _without_collection(self, batch: RecordBatch) -> RecordBatch:
        at = self._factory.column
        field = batch.columns.schema.field(at)
        return batch.with_columns(batch.columns.set_column(at, field, pa.nulls(batch.num_rows, field.type)))

    def _lengths(self, column: pa.Array) -> Integers:
        """How many elements each row has."""
        if self._factory.collection is Collection.MULTISET:
            entries = _entries(column)
            return _sums(_repeats(entries), _sizes(column))
        sizes, present = _sizes(column), _present(column)
        return sizes if present is None else _sums(present.to_numpy(False), sizes)

    def _places(self, column: pa.Array) -> pa.Array:
        """The places of all elements in their collections, from 1; rows that are NULL have one, too."""
        present = _present(column)
        sizes = self._lengths(column) if present is None else _sizes(column)
        places = pa.array((np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1).astype(np.int32))
        return places if present is None else places.filter(present)

    def _elements(self, column: pa.Array) -> list[pa.Array]:
        """The columns of all elements, one row's after another's."""
        if self._factory.collection is Collection.ARRAY:
            elements = pc.list_flatten(column)
            if not pa.types.is_struct(elements.type):
                return [elements]
            fields: list[pa.Array] = (elements.drop_null() if elements.null_count else elements).flatten()
            return fields
        entries = _entries(column)
        if self._factory.collection is Collection.MAP:
            pairs: list[pa.Array] = entries.flatten()
            return pairs
        repeated = entries.flatten()[0].take(pa.array(np.repeat(np.arange(len(entries)), _repeats(entries))))
        return repeated.flatten() if pa.types.is_struct(repeated.type) else [repeated]


def _present(column: pa.Array) -> pa.BooleanArray | None:
    """Which items of an array of rows are elements; None: all are, as in every other collection."""
    if not (pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type)):
        return None
    items = pc.list_flatten(column)
    return pc.is_valid(items) if items.null_count else None


def _sums(values: Integers, sizes: Integers) -> Integers:
    """The sum of each of the groups, of the given sizes, that lie one behind the other."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    stops = np.cumsum(sizes)
    sums: Integers = ends[stops] - ends[stops - sizes]
    return sums


def _sizes(column: pa.Array) -> Integers:
    if pa.types.is_map(column.type):
        column = _as_list(column)
    sizes: Integers = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    return sizes


def _as_list(column: pa.MapArray) -> pa.ListArray:
    """A map column as lists of (key, value); NULL stays NULL."""
    entries = pa.struct([pa.field("key", column.type.key_type, False), pa.field("value", column.type.item_type)])
    return column.cast(pa.list_(pa.field("entries", entries, False)))


def _entries(column: pa.MapArray) -> pa.StructArray:
    return pc.list_flatten(_as_list(column))


def _repeats(entries: pa.StructArray) -> Integers:
    repeats: Integers = pc.fill_null(entries.flatten()[1], 0).to_numpy().astype(np.int64)
    positive: Integers = np.maximum(repeats, 0)
    return positive
