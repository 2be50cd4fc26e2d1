"""Partial results as tables: one main table with the accumulators and one table of values for each aggregate that needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record

_SHORT = np.iinfo(np.uint16).max


@record
class Bundle:
    """Partial results of some groups.

    Every table starts with the same group columns (encoded keys, possibly preceded by others such as a window's end). A group may
    occur in several rows of `main` until it is merged; a group of a side table always occurs in `main` too.

    Attributes:
        groups: number of leading group columns.
        main: group columns, then partial columns.
        sides: group columns, then `value` and `seq` (arrival number); one table per `PartialLayout.sides`.
    """

    groups: int
    main: pa.RecordBatch
    sides: tuple[pa.RecordBatch, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of all tables."""
        return int(self.main.num_rows) + sum(int(s.num_rows) for s in self.sides)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return int(self.main.nbytes) + sum(int(s.nbytes) for s in self.sides)

    @property
    def keys(self) -> list[pa.Array]:
        """Group columns of the main table."""
        columns: list[pa.Array] = self.main.columns
        return columns[: self.groups]

    def with_leading(self, name: str, value: int) -> Bundle:
        """The same rows with a constant int64 group column in front."""
        return Bundle(
            self.groups + 1,
            _with_constant(self.main, name, value),
            tuple(_with_constant(s, name, value) for s in self.sides),
        )

    def regrouped(self, name: str, main: Integers, sides: Sequence[Integers]) -> Bundle:
        """The same rows with one other group column instead of all."""
        return Bundle(
            1,
            _regrouped(self.main, self.groups, name, main),
            tuple(_regrouped(t, self.groups, name, c) for t, c in zip(self.sides, sides, strict=True)),
        )

    def ordered_by_leading(self) -> Bundle:
        """The main rows in order of the first group column (int64); rows of side tables stay where they are."""
        values = self.main.column(0).to_numpy()
        if not (values[1:] < values[:-1]).any():
            return self
        return Bundle(self.groups, self.main.take(pa.array(np.argsort(values, kind="stable"))), self.sides)

    def split_leading(self) -> list[tuple[int, Bundle]]:
        """(value of the first group column, rows without it) for each value, ascending; row order is kept within a value."""
        tables = [dict(_split(t)) for t in (self.main, *self.sides)]
        empty = [_drop_first(t.slice(0, 0)) for t in (self.main, *self.sides)]
        values = tables[0] if not self.sides else {value for table in tables for value in table}
        split = []
        for value in sorted(values):
            main, *sides = (t.get(value, e) for t, e in zip(tables, empty, strict=True))
            split.append((value, Bundle(self.groups - 1, main, tuple(sides))))
        return split

    def unpinned(self, tolerated_bytes: int) -> Bundle:
        """The same rows, copied if they keep much larger buffers alive (they are a small slice of something)."""
        if all(t.get_total_buffer_size() <= 2 * t.nbytes + tolerated_bytes for t in (self.main, *self.sides)):
            return self
        return Bundle(self.groups, _copied(self.main), tuple(_copied(s) for s in self.sides))

    def with_rows(self, keep: Bools) -> Bundle:
        """The rows of a mask, in a bundle that has rows in one table only."""
        if keep.all():
            return self
        chosen = pa.array(keep)
        tables = [t.filter(chosen) if t.num_rows else t for t in (self.main, *self.sides)]
        return Bundle(self.groups, tables[0], tuple(tables[1:]))

    def filter(self, keep: Bools, sides: Sequence[Bools] = ()) -> Bundle:
        """The main rows and side rows of the given masks."""
        return Bundle(
            self.groups,
            self.main.filter(pa.array(keep)),
            tuple(s.filter(pa.array(m)) for s, m in zip(self.sides, sides, strict=True)),
        )


def concat_bundles(bundles: Sequence[Bundle]) -> Bundle:
    """The rows of all bundles, in order; at least one, all of one layout."""
    if len(bundles) == 1:
        return bundles[0]
    first = bundles[0]
    return Bundle(
        first.groups,
        pa.concat_batches([b.main for b in bundles]),
        tuple(pa.concat_batches([b.sides[i] for b in bundles]) for i in range(len(first.sides))),
    )


def _regrouped(batch: pa.RecordBatch, groups: int, name: str, column: Integers) -> pa.RecordBatch:
    names = [name, *batch.schema.names[groups:]]
    return pa.RecordBatch.from_arrays([pa.array(column), *batch.columns[groups:]], names=names)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows)))


def _with_constant(batch: pa.RecordBatch, name: str, value: int) -> pa.RecordBatch:
    constant = pa.array(np.full(batch.num_rows, value, np.int64))
    return pa.RecordBatch.from_arrays([constant, *batch.columns], names=[name, *batch.schema.names])


def _drop_first(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns[1:], names=batch.schema.names[1:])


def _split(batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    if batch.num_rows == 0:
        return []
    values: npt.NDArray[Any] = batch.column(0).to_numpy()
    rest = _drop_first(batch)
    if values[0] == values[-1] and (values == values[0]).all():
        return [(int(values[0]), rest)]
    if (values[1:] < values[:-1]).any():
        order = np.argsort(_narrow(values), kind="stable")
        values, rest = values[order], rest.take(pa.array(order))
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    stops = [*starts[1:].tolist(), len(values)]
    return [
        (int(values[start]), rest.slice(start, stop - start))
        for start, stop in zip(starts.tolist(), stops, strict=True)
    ]


def _narrow(values: Integers) -> npt.NDArray[Any]:
    """Values of the same order in 16 bits if they have few steps: NumPy sorts those by radix, in linear time."""
    offsets = values - values.min()
    most = int(offsets.max())
    step = 1 if most <= _SHORT else int(np.gcd.reduce(offsets))
    return (offsets // step).astype(np.uint16) if most // step <= _SHORT else values
