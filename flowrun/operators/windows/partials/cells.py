"""Partial results of cells, numbered groups of rows, and a log of them: what count and global windows keep of their rows.

A cell is what an operator says it is, e.g. the rows 100–199 of a key. Partial results come from the aggregation engine, whose only
key is the cell's number; a hidden last aggregate is the newest event time, that of a result row.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.aggregate import Accumulator, AggregateKernel, BoundAggregate
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, DataType
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.layout import PartialLayout
from flowrun.operators.keyed.integers import ranges
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.keyed.state_arrays import extended


def _only_column(columns: Sequence[pa.Array], _: DataType) -> pa.Array:
    return columns[0]


_NEWEST = AggregateKernel("MAX", BIGINT, BIGINT, (Accumulator("max", "max", "max", BIGINT),), _only_column)
CELL = "k0"


def with_times(schema: Schema) -> tuple[Schema, BoundAggregate]:
    """The schema with a column for the rows' event times at its end, and the aggregate that keeps the newest of them."""
    time = _unlike("event_time", schema)
    return Schema((*schema.fields, Field(time, BIGINT))), BoundAggregate(time, _NEWEST, len(schema))


class CellAggregator:
    """Aggregates rows by cell. Stateless."""

    def __init__(self, schema: Schema, aggregates: Sequence[BoundAggregate]) -> None:
        timed, newest = with_times(schema)
        with_cells = Schema((*timed.fields, Field(_unlike("cell", timed), BIGINT)))
        self.layout = PartialLayout.of(with_cells, (len(timed),), (*aggregates, newest))
        self.engine = AggregationEngine(self.layout)
        self._names = with_cells.names

    def lift(self, batch: RecordBatch, cells: Integers, total: int, sequence: int) -> Bundle:
        """Partial results of the cells 0 … total − 1, in that order; each has at least one row.

        Args:
            batch: rows of the schema.
            cells: cell of each row.
            total: number of cells.
            sequence: arrival number of the first row.
        """
        times = batch.timestamps if batch.timestamps is not None else pa.nulls(batch.num_rows, pa.int64())
        columns = [*batch.columns.columns, times, pa.array(cells)]
        rows = pa.RecordBatch.from_arrays(columns, names=self._names)
        return in_cell_order(self.engine.lift(rows, sequence, reduce=total < batch.num_rows))

    def merge(self, bundles: Sequence[Bundle]) -> Bundle:
        """One partial result a cell, in order of the cells; of two rows of a cell the one that arrived earlier comes first."""
        return in_cell_order(self.engine.merge(concat_bundles(bundles), in_arrival_order=True))

    def running(self, bundle: Bundle, group_starts: Integers) -> Bundle:
        """For each cell, the merge of it with all cells before it in its group; groups are ranges of cells.

        By doubling the distance (Hillis and Steele's scan): log₂(longest group) merges of all cells.

        Args:
            bundle: the cells 0 … n − 1.
            group_starts: first cell of the group of each cell.
        """
        numbers = np.arange(bundle.main.num_rows)
        distance = 1
        while (receiving := numbers - distance >= group_starts).any():
            givers = numbers[receiving] - distance
            earlier = select_cells(bundle, givers, numbers[receiving])
            bundle = self.merge([earlier, bundle])
            distance *= 2
        return bundle


def _unlike(name: str, schema: Schema) -> str:
    while name in schema.names:
        name += "_"
    return name


def in_cell_order(bundle: Bundle) -> Bundle:
    """The same rows, main and side tables sorted by cell."""
    return Bundle(1, _sorted(bundle.main), tuple(_sorted(s) for s in bundle.sides))


def _sorted(table: pa.RecordBatch) -> pa.RecordBatch:
    cells = table.column(0).to_numpy()
    if (cells[1:] >= cells[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(cells, kind="stable")))


def select_cells(bundle: Bundle, cells: Integers, numbers: Integers) -> Bundle:
    """Some cells of a bundle of the cells 0 … n − 1, each possibly several times, under new numbers."""
    main = _renumbered(bundle.main.take(pa.array(cells)), numbers)
    sides = []
    for side in bundle.sides:
        own = side.column(0).to_numpy()
        starts = np.searchsorted(own, cells)
        lengths = np.searchsorted(own, cells, side="right") - starts
        sides.append(_renumbered(side.take(pa.array(ranges(starts, lengths))), np.repeat(numbers, lengths)))
    return Bundle(1, main, tuple(sides))


def _renumbered(table: pa.RecordBatch, numbers: Integers) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers), *table.columns[1:]], names=table.schema.names)


class PartialLog:
    """Partial results by position, found and replaced without touching the others; dead ones go when `keep` is called."""

    def __init__(self, layout: PartialLayout) -> None:
        self._clear(len(layout.sides))

    def _clear(self, sides: int) -> None:
        self._main = RowLog()
        self._sides = [RowLog() for _ in range(sides)]
        self._starts: list[Integers] = [np.zeros(0, np.int64)] * sides
        self._lengths: list[Integers] = [np.zeros(0, np.int64)] * sides

    def __len__(self) -> int:
        return len(self._main)

    def view(self) -> PartialLog:
        """The log as it is now. It shares the rows, and arrays that are only ever written behind their end."""
        view = copy.copy(self)
        view._main, view._sides = self._main.view(), [s.view() for s in self._sides]
        view._starts, view._lengths = list(self._starts), list(self._lengths)
        return view

    def append(self, bundle: Bundle) -> int:
        """Add the cells 0, 1, … of a bundle in cell order; gives the position of the first."""
        rows = bundle.main.num_rows
        first = self._main.append(bundle.main)
        for i, side in enumerate(bundle.sides):
            lengths = np.bincount(side.column(0).to_numpy(), minlength=rows)
            start = self._sides[i].append(side)
            self._starts[i] = extended(self._starts[i], first + rows, 0)
            self._lengths[i] = extended(self._lengths[i], first + rows, 0)
            self._starts[i][first : first + rows] = start + np.cumsum(lengths) - lengths
            self._lengths[i][first : first + rows] = lengths
        return first

    def gather(self, positions: Integers, cells: Integers) -> Bundle:
        """The partial results at some positions, as parts of the given cells (several may be of one cell)."""
        main = _renumbered(self._main.take(positions), cells)
        sides = []
        for log, starts, lengths in zip(self._sides, self._starts, self._lengths, strict=True):
            own = lengths[positions]
            sides.append(_renumbered(log.take(ranges(starts[positions], own)), np.repeat(cells, own)))
        return Bundle(1, main, tuple(sides))

    def keep(self, positions: Integers) -> None:
        """Keep only some partial results, which get the positions 0, 1, …"""
        if not len(self):
            return
        kept = self.gather(positions, np.arange(len(positions)))
        self._clear(len(self._sides))
        self.append(kept)
