"""What a batch brings to its groups, read in one way whether it holds rows or partial results of a local aggregation.

Rows are numbered by group (`ids`, 0 … total − 1 in order of first appearance). Rows that add and rows that remove are reduced apart,
then added and subtracted; partial results carry their sign.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers, Words
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.aggregation.inputs import ArgumentReader
from flowrun.operators.updating.accumulators import Accumulator
from flowrun.operators.updating.changes import added, only_adds
from flowrun.operators.updating.group_layout import ROWS, GroupLayout, ValueList


@record
class SetRows:
    """Rows that change counts of a set of values: group, value, and what is added to each count (rows × counters)."""

    ids: Integers
    values: pa.Array
    deltas: Words


@record
class ListRows:
    """Values that join a list or leave it: group, value, whether it joins; in order of arrival."""

    ids: Integers
    values: pa.Array
    joins: Bools | None


class GroupFeed(Protocol):
    """A batch, read by groups."""

    @property
    def num_rows(self) -> int: ...

    def keys(self) -> list[pa.Array]:
        """The key columns."""
        ...

    def rows(self, ids: Integers, total: int) -> Integers:
        """By how many rows each group grew (or shrank)."""
        ...

    def fold(self, number: int, accumulator: Accumulator, words: Words, ids: Integers) -> Words:
        """The words of an accumulator with the batch folded in; `number` counts the accumulators that are fed with rows."""
        ...

    def set_rows(self, number: int, ids: Integers) -> SetRows:
        """What the batch does to a set of values."""
        ...

    def list_rows(self, values_list: ValueList, ids: Integers) -> ListRows:
        """What the batch does to a list of values that is fed with rows."""
        ...


class RowFeed:
    """Rows of the layout's input schema."""

    def __init__(self, layout: GroupLayout, batch: RecordBatch) -> None:
        self._layout = layout
        self._columns = batch.columns
        self.num_rows = batch.num_rows
        self._adds: Bools | None = None if only_adds(batch) else added(batch)
        self._parts: list[tuple[Integers | None, ArgumentReader, bool]] = []
        if self._adds is None:
            self._parts.append((None, ArgumentReader(batch.columns, 0), True))
        else:
            for adds, marks in ((True, self._adds), (False, ~self._adds)):
                chosen = np.flatnonzero(marks)
                if len(chosen):
                    self._parts.append((chosen, ArgumentReader(batch.columns.take(pa.array(chosen)), 0), adds))

    def keys(self) -> list[pa.Array]:
        """The key columns."""
        return [self._columns.column(k) for k in self._layout.keys]

    def rows(self, ids: Integers, total: int) -> Integers:
        """By how many rows each group grew."""
        if self._adds is None:
            return np.bincount(ids, minlength=total)
        grown: Integers = np.bincount(ids[self._adds], minlength=total) - np.bincount(ids[~self._adds], minlength=total)
        return grown

    def fold(self, number: int, accumulator: Accumulator, words: Words, ids: Integers) -> Words:
        """The words of an accumulator with the rows folded in."""
        for chosen, reader, adds in self._parts:
            partials = accumulator.lift(reader, ids if chosen is None else ids[chosen], len(words))
            words = accumulator.add(words, partials) if adds else accumulator.subtract(words, partials)
        return words

    def set_rows(self, number: int, ids: Integers) -> SetRows:
        """The rows that pass a filter of the set."""
        values_set = self._layout.sets[number]
        values = _flat(self._columns.column(values_set.argument))
        counted = np.ones((self.num_rows, len(values_set.filters)), np.int64)
        for i, filter_ in enumerate(values_set.filters):
            if filter_ is not None:
                counted[:, i] = _mask(self._columns.column(filter_))
        if values.null_count and not values_set.keeps_nulls:
            counted[values.is_null().to_numpy(zero_copy_only=False)] = 0
        if self._adds is not None:
            counted[~self._adds] *= -1
        chosen = counted.any(axis=1)
        if chosen.all():
            return SetRows(ids, values, counted)
        return SetRows(ids[chosen], values.filter(pa.array(chosen)), counted[chosen])

    def list_rows(self, values_list: ValueList, ids: Integers) -> ListRows:
        """The rows that pass the filter of the list."""
        values = _flat(self._columns.column(values_list.argument))
        chosen = np.ones(self.num_rows, np.bool_)
        if values_list.filter is not None:
            chosen = _mask(self._columns.column(values_list.filter))
        if not values_list.keeps_nulls and values.null_count:
            chosen &= values.is_valid().to_numpy(zero_copy_only=False)
        if chosen.all():
            return ListRows(ids, values, self._adds)
        joins = None if self._adds is None else self._adds[chosen]
        return ListRows(ids[chosen], values.filter(pa.array(chosen)), joins)


class PartialFeed:
    """Partial rows of the layout's transport schema."""

    def __init__(self, layout: GroupLayout, batch: RecordBatch) -> None:
        self._layout = layout
        self._columns = batch.columns
        self._arrays: list[pa.Array] = batch.columns.columns  # once: Arrow makes objects for all of them each time
        self.num_rows = batch.num_rows
        first = len(layout.keys)
        self._rows: pa.Array = batch.columns.column(ROWS)
        self._at = first + 1

    def keys(self) -> list[pa.Array]:
        """The key columns."""
        return list(self._arrays[: len(self._layout.keys)])

    def rows(self, ids: Integers, total: int) -> Integers:
        """By how many rows each group grew."""
        grown = np.zeros(total, np.int64)
        np.add.at(grown, ids, pc.fill_null(self._rows, 0).to_numpy())
        return grown

    def fold(self, number: int, accumulator: Accumulator, words: Words, ids: Integers) -> Words:
        """The words of an accumulator with the partial results added; accumulators are asked in their order."""
        del number
        width = len(accumulator.fields)
        partials = self._arrays[self._at : self._at + width]
        self._at += width
        return accumulator.add(words, accumulator.merge(partials, ids, len(words)))

    def set_rows(self, number: int, ids: Integers) -> SetRows:
        """The partial rows that carry a value of the set; sets are asked in their order, after the accumulators."""
        values_set = self._layout.sets[number]
        values = self._columns.column(self._at)
        counts = self._arrays[self._at + 1 : self._at + 1 + len(values_set.filters)]
        self._at += 1 + len(counts)
        deltas = np.column_stack([pc.fill_null(c, 0).to_numpy() for c in counts])
        chosen = deltas.any(axis=1)
        if chosen.all():
            return SetRows(ids, values, deltas)
        return SetRows(ids[chosen], values.filter(pa.array(chosen)), deltas[chosen])

    def list_rows(self, values_list: ValueList, ids: Integers) -> ListRows:
        """Lists are not aggregated before the shuffle."""
        raise TypeError("partial rows have no lists")


def summed_by(ids: Integers, deltas: Words, total: int) -> Words:
    """The sums of rows of words by group."""
    if len(deltas) == total and (ids[1:] > ids[:-1]).all():
        return deltas
    sums = np.zeros((total, deltas.shape[1]), np.int64)
    for i in range(deltas.shape[1]):
        np.add.at(sums[:, i], ids, np.ascontiguousarray(deltas[:, i]))
    return sums


def _mask(column: pa.Array) -> Bools:
    mask: Bools = np.array(pc.fill_null(column, False).to_numpy(zero_copy_only=False), np.bool_)
    return mask


def _flat(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
