"""The state tables of partial results: their columns, their rows made from bundles, and bundles made from their rows.

`partials` has a row for each partial result: key group, key columns, then int64 columns that say what it is part of (the end of a slice,
the bounds of a session), then the partial columns. Each side table of the layout is a table with `value` and `seq` (arrival number)
instead of partial columns. Names and types follow from the aggregation alone, never from data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot, StateSegment, keyed_schema
from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import SEQ, VALUE, AggregationEngine
from flowrun.operators.aggregation.layout import PartialLayout
from flowrun.operators.keyed.restored_tables import check_keys, restored_batches
from flowrun.state.key_groups import key_groups_or_zero

PARTIALS = "partials"


def partial_schemas(layout: PartialLayout, bounds: Sequence[str]) -> dict[str, pa.Schema]:
    """Name of each state table → its columns; `bounds` are the int64 columns that follow the keys.

    All partial columns are nullable, so that a state without some of them can be restored: NULL is what an aggregate has seen
    when it has seen no row.
    """
    keys = layout.state_keys
    fixed = [pa.field(n, pa.int64(), nullable=False) for n in bounds]
    columns = [pa.field(n, t) for n, t in zip(layout.partial_names, layout.partial_types, strict=True)]
    schemas = {PARTIALS: keyed_schema(keys, [*fixed, *columns])}
    for side, name in zip(layout.sides, layout.side_names, strict=True):
        value = pa.field(VALUE, side.type.arrow)
        schemas[name] = keyed_schema(keys, [*fixed, value, pa.field(SEQ, pa.int64(), nullable=False)])
    return schemas


@record(slots=False)
class PartialTables:
    """Writes and reads the tables of one operator. Immutable and thread-safe: segments are materialised on other threads."""

    engine: AggregationEngine
    max_parallelism: int
    bounds: tuple[str, ...] = ()

    @cached_property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """Name of each table → its columns."""
        return partial_schemas(self.engine.layout, self.bounds)

    def segments(self, bundles: Sequence[Bundle], constants: Sequence[int]) -> tuple[tuple[str, StateSegment], ...]:
        """(table, segment) for each table in which the bundles have rows. Bundles are grouped by the keys alone.

        Args:
            bundles: they never change.
            constants: values of `bounds`, the same for all rows.
        """
        made = [(PARTIALS, StateSegment(partial(self._constant_rows, PARTIALS, None, bundles, constants)))]
        for index, name in enumerate(self.engine.layout.side_names):
            if any(b.sides[index].num_rows for b in bundles):
                made.append((name, StateSegment(partial(self._constant_rows, name, index, bundles, constants))))
        return tuple(made)

    def _constant_rows(
        self, name: str, side: int | None, bundles: Sequence[Bundle], constants: Sequence[int]
    ) -> pa.Table:
        bundle = concat_bundles(bundles)
        table = bundle.main if side is None else bundle.sides[side]
        filled = [pa.array(np.full(table.num_rows, value, np.int64)) for value in constants]
        keys = len(self.engine.key_names)
        return self._table(name, side, table.columns[:keys], [*filled, *table.columns[keys:]])

    def rows(self, name: str, side: int | None, table: pa.RecordBatch) -> pa.Table:
        """Rows of a table from a bundle's main table, or side table, that is grouped by keys and `bounds`."""
        keys = len(self.engine.key_names)
        return self._table(name, side, table.columns[:keys], table.columns[keys:])

    def _table(self, name: str, side: int | None, groups: Sequence[pa.Array], values: list[pa.Array]) -> pa.Table:
        if side is not None:
            values = [*values[:-2], self.engine.decode_side_values(side, values[-2]), values[-1]]
        keys = self.engine.decode_keys(groups)
        numbers = key_groups_or_zero(keys, len(values[0]), self.max_parallelism)
        return pa.Table.from_arrays([pa.array(numbers), *keys, *values], schema=self.schemas[name])

    # ---- back

    def read(self, snapshot: OperatorSnapshot) -> Bundle:
        """One bundle of everything; its leading group columns are `bounds`.

        Raises:
            StateError: a table has not the columns that these aggregates need, or was made with other keys.
        """
        parts = [self._bundle(self._columns(b, PARTIALS), ()) for b in self._batches(snapshot, PARTIALS)]
        main = pa.concat_batches([p.main for p in parts]) if parts else self._nothing.main
        sides = []
        for index, name in enumerate(self.engine.layout.side_names):
            batches = [self._side(index, self._columns(b, name)) for b in self._batches(snapshot, name)]
            sides.append(pa.concat_batches(batches) if batches else self._nothing.sides[index])
        return Bundle(len(self.bounds) + len(self.engine.key_names), main, tuple(sides))

    def read_parts(self, snapshot: OperatorSnapshot) -> Iterator[tuple[npt.NDArray[np.int32], Bundle]]:
        """(key group of each row, bundle with the rows in its main table or in one side table) piece by piece.

        A group may be in a side table of another piece than the one that has it in `main`: put them together before use. Rows of
        one group are in order of arrival if the aggregates depend on it: files keep no order but that of the keys.

        Raises:
            StateError: as `read`.
        """
        nothing = self._nothing
        batches = self._batches(snapshot, PARTIALS)
        for batch in self._by_arrival(list(batches)) if self.engine.layout.is_ordered else batches:
            yield _groups(batch), self._bundle(self._columns(batch, PARTIALS), nothing.sides)
        for index, name in enumerate(self.engine.layout.side_names):
            for batch in self._batches(snapshot, name):
                sides = list(nothing.sides)
                sides[index] = self._side(index, self._columns(batch, name))
                yield _groups(batch), Bundle(nothing.groups, nothing.main, tuple(sides))

    def _by_arrival(self, batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
        if not batches:
            return ()
        whole = pa.concat_batches(batches)
        arrivals = [
            pc.fill_null(whole.column(p.companion), -1).to_numpy() for p in self.engine.layout.partials if p.is_ordered
        ]
        # partial results of one group cover rows that do not interleave, so any of their arrival numbers orders them
        return (whole.take(pa.array(np.argsort(np.maximum.reduce(arrivals), kind="stable"))),)

    @cached_property
    def _nothing(self) -> Bundle:
        keys = list(zip(self.engine.key_names, self.engine.group_types, strict=True))
        leading = [*((n, pa.int64()) for n in self.bounds), *keys]
        layout = self.engine.layout
        main = pa.schema([*leading, *zip(layout.partial_names, layout.partial_types, strict=True)])
        kinds = [
            c.groupable[0] if s.distinct else s.type.arrow
            for s, c in zip(layout.sides, layout.value_codecs, strict=True)
        ]
        sides = [pa.schema([*leading, (VALUE, kind), (SEQ, pa.int64())]) for kind in kinds]
        return Bundle(len(leading), _empty(main), tuple(_empty(s) for s in sides))

    def _bundle(self, columns: list[pa.Array], sides: Sequence[pa.RecordBatch]) -> Bundle:
        layout, first = self.engine.layout, len(self.bounds) + len(self.engine.key_names)
        for i, name in enumerate(layout.partial_names):
            columns[first + i] = layout.without_nulls(name, columns[first + i])
        main = pa.RecordBatch.from_arrays(columns, names=self._nothing.main.schema.names)
        return Bundle(first, main, tuple(sides))

    def _side(self, index: int, columns: list[pa.Array]) -> pa.RecordBatch:
        columns[-2] = self.engine.encode_side_values(index, columns[-2])
        return pa.RecordBatch.from_arrays(columns, names=self._nothing.sides[index].schema.names)

    def _columns(self, batch: pa.RecordBatch, name: str) -> list[pa.Array]:
        """Bounds, group columns, values."""
        key_count, bounds = len(self.engine.layout.keys), len(self.bounds)
        keys = batch.columns[1 : 1 + key_count]
        check_keys(name, batch.columns[0], keys, self.max_parallelism)
        rest = batch.columns[1 + key_count :]
        return [*rest[:bounds], *self.engine.encode_keys(keys, batch.num_rows), *rest[bounds:]]

    def _batches(self, snapshot: OperatorSnapshot, name: str) -> Iterator[pa.RecordBatch]:
        table = snapshot.keyed.get(name)
        if table is not None:
            yield from restored_batches(name, table, self.schemas[name])


def _groups(batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
    groups: npt.NDArray[np.int32] = pc.cast(batch.column(KEY_GROUP_COLUMN), pa.int32()).to_numpy()
    return groups


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
