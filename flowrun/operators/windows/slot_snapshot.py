"""State tables of operators that keep a number and partial results per key, and how they are read back at any parallelism.

`keys`: key group, key columns, then named int64 columns. `partials`: key group, key columns, the number of the cell, partial columns.
`values_i`: the same with `value` and `seq` for each side table of the layout. The operator state `sequence` is an arrival number
above all in the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flowrun.api.state import KEY_GROUP_COLUMN, OperatorSnapshot, OperatorState, Redistribution
from flowrun.errors import StateError
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import SEQ, VALUE, AggregationEngine
from flowrun.operators.windows.cell_partials import CELL
from flowrun.operators.windows.keyed_rows import Integers, KeySlots
from flowrun.state.key_groups import key_groups_or_zero

KEYS = "keys"
PARTIALS = "partials"
SEQUENCE = "sequence"
NUMBER = "cell"


@dataclass(frozen=True, slots=True)
class SlotTables:
    """Writes and reads the tables of one operator.

    Attributes:
        key_fields: names and Arrow types of the key columns in the tables.
        columns: names of the int64 columns of `keys`.
    """

    engine: AggregationEngine
    key_fields: pa.Schema
    columns: tuple[str, ...]
    max_parallelism: int

    def keyed(self, keys: KeySlots, numbers: Sequence[Integers], slots: Integers) -> dict[str, pa.Table]:
        """The `keys` table of some slots; `numbers` are the int64 columns, one entry a slot."""
        return {KEYS: self._table(keys, slots, [pa.array(n) for n in numbers], self.columns)} if len(slots) else {}

    def partials(self, keys: KeySlots, bundle: Bundle, slots: Integers, numbers: Integers) -> dict[str, pa.Table]:
        """Tables of a bundle of the cells 0 … n − 1, whose slots and cell numbers are given."""
        if len(slots) == 0:
            return {}
        names = (NUMBER, *self.engine.layout.partial_names)
        tables = {PARTIALS: self._table(keys, slots, [pa.array(numbers), *bundle.main.columns[1:]], names)}
        for i, side in enumerate(bundle.sides):
            cells = side.column(0).to_numpy()
            values = [pa.array(numbers[cells]), self.engine.side_values(i, side), side.column(SEQ)]
            tables[f"values_{i}"] = self._table(keys, slots[cells], values, (NUMBER, VALUE, SEQ))
        return tables

    def _table(self, keys: KeySlots, slots: Integers, values: Sequence[pa.Array], names: Sequence[str]) -> pa.Table:
        columns = keys.keys_of(slots)
        groups = key_groups_or_zero(columns, len(slots), self.max_parallelism)
        return pa.Table.from_arrays(
            [pa.array(groups), *columns, *values], names=[KEY_GROUP_COLUMN, *self.key_fields.names, *names]
        )

    def read_keys(self, snapshot: OperatorSnapshot, keys: KeySlots) -> tuple[Integers, list[Integers]]:
        """(slots, the int64 columns) of the `keys` table; the keys become known to `keys`.

        Raises:
            StateError: the table has other columns.
        """
        table = self._checked(snapshot.keyed, KEYS, self.columns)
        if table is None:
            return np.zeros(0, np.int64), [np.zeros(0, np.int64) for _ in self.columns]
        return self._slots(keys, table), [table.column(n).to_numpy() for n in self.columns]

    def read_partials(self, snapshot: OperatorSnapshot, keys: KeySlots) -> tuple[Bundle, Integers, Integers] | None:
        """(bundle of the cells 0 … n − 1 in order of slot and number, slots, numbers), or None if there are none.

        Raises:
            StateError: a table has other columns.
        """
        layout = self.engine.layout
        table = self._checked(snapshot.keyed, PARTIALS, (NUMBER, *layout.partial_names))
        if table is None:
            return None
        slots, numbers = self._slots(keys, table), table.column(NUMBER).to_numpy()
        order = np.lexsort((numbers, slots))
        slots, numbers = slots[order], numbers[order]
        cells = pa.array(np.arange(len(order)))
        rows = table.take(pa.array(order))
        main = pa.RecordBatch.from_arrays(
            [cells, *(rows.column(n) for n in layout.partial_names)], names=[CELL, *layout.partial_names]
        )
        sides = tuple(self._read_side(snapshot, keys, i, slots, numbers) for i in range(len(layout.sides)))
        return Bundle(1, main, sides), slots, numbers

    def _read_side(
        self, snapshot: OperatorSnapshot, keys: KeySlots, index: int, slots: Integers, numbers: Integers
    ) -> pa.RecordBatch:
        table = self._checked(snapshot.keyed, f"values_{index}", (NUMBER, VALUE, SEQ))
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
        columns = table.columns[1 : 1 + len(self.key_fields)]
        located = keys.locate(columns, table.num_rows)
        slots: Integers = located.slots[located.local]
        return slots

    def _checked(self, tables: Mapping[str, pa.Table], name: str, values: Sequence[str]) -> pa.RecordBatch | None:
        table = tables.get(name)
        if table is None:
            return None
        wanted = [KEY_GROUP_COLUMN, *self.key_fields.names, *values]
        if table.schema.names != wanted:
            raise StateError(
                f"state table '{name}' of a window has columns {', '.join(table.schema.names)};"
                f" expected {', '.join(wanted)}",
                hint="the aggregates or keys changed since the snapshot; give the step another uid to start it empty",
            )
        return table.combine_chunks().to_batches()[0] if table.num_rows else None


def sequence_state(sequence: int) -> dict[str, OperatorState]:
    """The operator state that keeps arrival numbers growing over restores."""
    return {SEQUENCE: OperatorState(pa.table({"sequence": pa.array([sequence], pa.int64())}), Redistribution.UNION)}


def read_sequence(snapshot: OperatorSnapshot) -> int:
    """An arrival number above all in the snapshot."""
    state = snapshot.operator.get(SEQUENCE)
    return max((int(v) for v in state.rows.column("sequence").to_pylist()), default=0) if state is not None else 0
