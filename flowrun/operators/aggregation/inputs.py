"""What the accumulators read from raw rows: arguments under their filters, as numbers to sum, and arrival numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers
from flowrun.operators.aggregation.dense import Reduction
from flowrun.operators.aggregation.layout import PartialColumn


class ArgumentReader:
    """Reads and masks argument columns of one batch; each (argument, filter) once."""

    def __init__(self, columns: pa.RecordBatch, sequence: int) -> None:
        self._columns = columns
        self._rows: int = columns.num_rows
        self._first = sequence
        self._seq: pa.Array | None = None
        self._read: dict[tuple[int | None, int | None], pa.Array] = {}
        self._only: pa.Array | None = None

    @classmethod
    def over(cls, values: pa.Array, seq: pa.Array) -> ArgumentReader:
        """A reader whose every argument is `values`, with known arrival numbers."""
        reader = cls(pa.RecordBatch.from_arrays([values], names=["value"]), 0)
        reader._only, reader._seq = values, seq
        return reader

    def argument(self, position: int | None, filter_: int | None) -> pa.Array:
        """The argument, NULL where the filter is not true; without an argument, true where the filter is, else NULL."""
        if self._only is not None:
            return self._only
        if filter_ is None:
            assert position is not None
            return _flat(self._columns.column(position))
        identity = (position, filter_)
        if identity not in self._read:
            mask = pc.fill_null(self._columns.column(filter_), False)
            values = mask if position is None else _flat(self._columns.column(position))
            self._read[identity] = pc.if_else(mask, values, pa.scalar(None, values.type))
        return self._read[identity]

    def passing(self, filter_: int | None) -> pa.Array | None:
        """Which rows the filter lets pass; None: all."""
        return None if filter_ is None else pc.fill_null(self._columns.column(filter_), False)

    def summands(self, partial: PartialColumn) -> pa.Array:
        """The argument as numbers of the accumulator's kind."""
        values = self.argument(partial.argument, partial.filter)
        if partial.partial == "sum_of_squares":
            values = pc.cast(values, pa.float64())
            return pc.multiply(values, values)
        target = partial.type.arrow
        if pa.types.is_floating(target):
            return values if pa.types.is_float64(values.type) else pc.cast(values, pa.float64())
        if pa.types.is_decimal(target):
            same = pa.types.is_decimal(values.type) and values.type.scale == target.scale
            return values if same else pc.cast(values, target)
        return values

    def sequence_of(self, values: pa.Array | None) -> pa.Array:
        """Arrival numbers, NULL where `values` is."""
        if self._seq is None:
            self._seq = pa.array(np.arange(self._first, self._first + self._rows, dtype=np.int64))
        if values is None or not values.null_count:
            return self._seq
        return pc.if_else(values.is_valid(), self._seq, pa.scalar(None, pa.int64()))

    def reductions(self, partial: PartialColumn) -> list[Reduction]:
        """What folds the rows of a group into the accumulator (sums of plain values have a `SumPlan` instead)."""
        if partial.argument is None and partial.filter is None:
            return [Reduction("count_all")]
        values = self.argument(partial.argument, partial.filter)
        match partial.partial:
            case "count_all" | "count":
                return [Reduction("count", values)]
            case "sum_of_squares":
                return [Reduction("sum", self.summands(partial))]
            case "first" | "last":
                arrival = Reduction("min" if partial.partial == "first" else "max", self.sequence_of(values))
                return [Reduction(partial.partial, values), arrival]
            case _:
                return [Reduction(partial.partial, values)]

    def single(self, partial: PartialColumn) -> tuple[pa.Array, pa.Array]:
        """(accumulator, companion) of every row by itself."""
        nothing = pa.nulls(self._rows, pa.int64())
        if partial.argument is None and partial.filter is None:
            return pa.array(np.ones(self._rows, np.int64)), nothing
        values = self.argument(partial.argument, partial.filter)
        match partial.partial:
            case "count_all" | "count":
                if not values.null_count:
                    return pa.array(np.ones(self._rows, np.int64)), nothing
                return pc.cast(values.is_valid(), pa.int64()), nothing
            case "sum" | "sum_of_squares":
                return self.summands(partial), nothing
            case "first" | "last":
                return values, self.sequence_of(values)
            case _:
                return values, nothing


def positions_by_arrival(seq: pa.Array) -> Integers:
    """The rows that have an arrival number, in order of it."""
    valid = np.flatnonzero(seq.is_valid().to_numpy(zero_copy_only=False))
    numbers = pc.fill_null(seq, 0).to_numpy()[valid]
    order: Integers = valid[np.argsort(numbers, kind="stable")]
    return order


def _flat(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
