"""State tables of operators that keep numbers and partial results per key, and how they are read back at any parallelism.

`keys`: key group, key columns, then named int64 columns. `partials`: key group, key columns, the number of the cell, partial columns.
A table with `value` and `seq` instead of partial columns for each side table of the layout. The operator state `sequence` is an
arrival number above all in the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution, keyed_schema
from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import SEQ, VALUE, AggregationEngine
from flowrun.operators.aggregation.layout import PartialLayout, state_key_fields
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.keyed.restored_tables import restored_rows
from flowrun.operators.windows.partials.cells import CELL
from flowrun.operators.windows.partials.partial_tables import PARTIALS
from flowrun.state.key_groups import key_groups_or_zero

KEYS = "keys"
SEQUENCE = "sequence"
NUMBER = "cell"


def slot_schemas(
    layout: PartialLayout, schema: Schema, keys: Sequence[int], columns: Sequence[str]
) -> dict[str, pa.Schema]:
    """Name of each state table → its columns.

    Args:
        layout: of the partial results, whose only key is the cell's number.
        schema: columns of the operator's input.
        keys: positions of the key columns in it.
        columns: names of the int64 columns of `keys`.
    """
    fields = state_key_fields([schema.fields[k] for k in keys], layout.partial_names)
    number = pa.field(NUMBER, pa.int64(), nullable=False)
    partials = [pa.field(n, t) for n, t in zip(layout.partial_names, layout.partial_types, strict=True)]
    schemas = {
        KEYS: keyed_schema(fields, [pa.field(n, pa.int64(), nullable=False) for n in columns]),
        PARTIALS: keyed_schema(fields, [number, *partials]),
    }
    for name, side in zip(layout.side_names, layout.sides, strict=True):
        values = [number, pa.field(VALUE, side.type.arrow), pa.field(SEQ, pa.int64(), nullable=False)]
        schemas[name] = keyed_schema(fields, values)
    return schemas


@record(slots=False)
class SlotTables:
    """Writes and reads the tables of one operator. Immutable and thread-safe.

    Attributes:
        schemas: as `slot_schemas` gives them.
        key_count: number of key columns.
    """

    engine: AggregationEngine
    schemas: dict[str, pa.Schema]
    key_count: int
    max_parallelism: int

    def keys(self, keys: KeyList, numbers: Sequence[Integers], slots: Integers) -> pa.Table:
        """The `keys` table of some slots; `numbers` are the int64 columns, one entry a slot."""
        return self._table(KEYS, keys, slots, [pa.array(n) for n in numbers])

    def partials(self, keys: KeyList, bundle: Bundle | None, slots: Integers, numbers: Integers) -> dict[str, pa.Table]:
        """The other tables, of a bundle of the cells 0 … n − 1, whose slots and cell numbers are given; None: empty tables."""
        if bundle is None:
            return {name: schema.empty_table() for name, schema in self.schemas.items() if name != KEYS}
        tables = {PARTIALS: self._table(PARTIALS, keys, slots, [pa.array(numbers), *bundle.main.columns[1:]])}
        for i, (name, side) in enumerate(zip(self.engine.layout.side_names, bundle.sides, strict=True)):
            cells = side.column(0).to_numpy()
            values = [pa.array(numbers[cells]), self.engine.side_values(i, side), side.column(SEQ)]
            tables[name] = self._table(name, keys, slots[cells], values)
        return tables

    def _table(self, name: str, keys: KeyList, slots: Integers, values: Sequence[pa.Array]) -> pa.Table:
        columns = keys.keys_of(slots)
        groups = key_groups_or_zero(columns, len(slots), self.max_parallelism)
        return pa.Table.from_arrays([pa.array(groups), *columns, *values], schema=self.schemas[name])

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return tuple(self.schemas[KEYS].names[1 + self.key_count :])

    def read_keys(self, snapshot: OperatorSnapshot, keys: KeySlots) -> tuple[Integers, list[Integers]]:
        """(slots, the int64 columns) of the `keys` table; the keys become known to `keys`.

        Raises:
            StateError: the table has other columns.
        """
        table = self._restored(snapshot, KEYS)
        if table is None:
            return np.zeros(0, np.int64), [np.zeros(0, np.int64) for _ in self._columns]
        return self._slots(keys, table), [table.column(n).to_numpy() for n in self._columns]

    def read_partials(self, snapshot: OperatorSnapshot, keys: KeySlots) -> tuple[Bundle, Integers, Integers] | None:
        """(bundle of the cells 0 … n − 1 in order of slot and number, slots, numbers), or None if there are none.

        Raises:
            StateError: a table has other columns.
        """
        layout = self.engine.layout
        table = self._restored(snapshot, PARTIALS)
        if table is None:
            return None
        slots, numbers = self._slots(keys, table), table.column(NUMBER).to_numpy()
        order = np.lexsort((numbers, slots))
        slots, numbers = slots[order], numbers[order]
        cells = pa.array(np.arange(len(order)))
        rows = table.take(pa.array(order))
        main = pa.RecordBatch.from_arrays(
            [cells, *(layout.without_nulls(n, rows.column(n)) for n in layout.partial_names)],
            names=[CELL, *layout.partial_names],
        )
        sides = tuple(self._read_side(snapshot, keys, i, slots, numbers) for i in range(len(layout.sides)))
        return Bundle(1, main, sides), slots, numbers

    def _read_side(
        self, snapshot: OperatorSnapshot, keys: KeySlots, index: int, slots: Integers, numbers: Integers
    ) -> pa.RecordBatch:
        table = self._restored(snapshot, self.engine.layout.side_names[index])
        if table is None:
            kind = self.engine.encode_side_values(index, pa.array([], self.engine.layout.sides[index].type.arrow)).type
            columns = [pa.array([], pa.int64()), pa.array([], kind), pa.array([], pa.int64())]
            return pa.RecordBatch.from_arrays(columns, names=[CELL, VALUE, SEQ])
        distinct = np.unique(np.concatenate([numbers, table.column(NUMBER).to_numpy()]))
        ranks = np.searchsorted(distinct, table.column(NUMBER).to_numpy())
        own = self._slots(keys, table) * len(distinct) + ranks
        cells = np.searchsorted(slots * len(distinct) + np.searchsorted(distinct, numbers), own)
        order = np.argsort(cells, kind="stable")
        taken = pa.array(order)
        values = self.engine.encode_side_values(index, table.column(VALUE).take(taken))
        return pa.RecordBatch.from_arrays(
            [pa.array(cells[order]), values, table.column(SEQ).take(taken)], names=[CELL, VALUE, SEQ]
        )

    def _slots(self, keys: KeySlots, table: pa.RecordBatch) -> Integers:
        return keys.locate(table.columns[1 : 1 + self.key_count], table.num_rows).of_rows

    def _restored(self, snapshot: OperatorSnapshot, name: str) -> pa.RecordBatch | None:
        return restored_rows(name, snapshot, self.schemas[name], self.key_count, self.max_parallelism)


def sequence_state(sequence: int) -> dict[str, OperatorState]:
    """The operator state that keeps arrival numbers growing over restores."""
    return {SEQUENCE: OperatorState(pa.table({"sequence": pa.array([sequence], pa.int64())}), Redistribution.UNION)}


def read_sequence(snapshot: OperatorSnapshot) -> int:
    """An arrival number above all in the snapshot."""
    state = snapshot.operator.get(SEQUENCE)
    return max((int(v) for v in state.rows.column("sequence").to_pylist()), default=0) if state is not None else 0
