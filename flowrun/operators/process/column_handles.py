"""The handles of keyed state for functions on batches: each shows the columns of a state for the keys of the current batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.keyed_state import Positions, Values
from flowrun.api.state import AggregateFunction, OperatorSnapshot, SegmentedTable, StateDescriptor
from flowrun.core.arrays import Bools, Integers
from flowrun.core.types import array as array_of
from flowrun.errors import DataError
from flowrun.operators.keyed.integers import ranges
from flowrun.operators.keyed.key_slots import KeyList
from flowrun.operators.process.current import CurrentKeys, as_column, combined, last_of_each, stable_order
from flowrun.operators.process.entries import Changed, Entries, NumericValues, entry_values
from flowrun.state.backend.tables import StateTable
from flowrun.state.backend.upsert_log import UpsertLog

_REDUCTIONS: Mapping[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "sum": pc.add_checked,
    "min": pc.min_element_wise,
    "max": pc.max_element_wise,
}


class ColumnState:
    """What the handles with one entry a key share. The entry's number is the key's slot."""

    def __init__(self, descriptor: StateDescriptor, table: StateTable, current: CurrentKeys) -> None:
        self._place = f"state '{descriptor.name}'"
        self._type = descriptor.type
        self._table = table
        self._current = current
        self._entries = Entries(entry_values(table.values[0].type), descriptor.ttl)
        self._log = UpsertLog(table.log_schema, table.key)

    def clear(self, where: Positions | None = None) -> None:
        """Remove the state of the chosen keys."""
        self._entries.drop(self._current.slots_of(where, self._place))

    # ---- for the backend

    def drop_all(self) -> None:
        """Remove the state of all keys."""
        self._entries.drop_all()

    def reserve(self, slots: int) -> None:
        """Make room for the keys with the slots 0 … slots − 1."""
        self._entries.reserve(slots)

    def expire(self, now: int, *, thorough: bool = False) -> None:
        """Processing time is `now`."""
        self._entries.expire(now, thorough=thorough)

    def slots(self) -> Integers:
        """Slots of the keys that have something."""
        return self._entries.all_alive()

    @property
    def newest_write(self) -> int | None:
        """Latest write of state with a time to live."""
        return self._entries.newest_write

    def needed(self, slots: int) -> Bools:
        """Which slots must stay."""
        return self._entries.needed()

    def keep(self, kept: Integers, slots: int) -> None:
        """Of so many slots the `kept` ones are 0, 1, … now."""
        self._entries.keep(kept)

    def snapshot(self, keys: KeyList) -> SegmentedTable:
        """The table; `keys` are the keys as they are now."""
        captured = self._entries.capture()
        self._log.append(captured.count, lambda: self._rows(captured.made(), keys))
        return self._log.table(self._entries.live)

    def _rows(self, changed: Changed, keys: KeyList) -> pa.Table:
        """Called on another thread: reads nothing that changes."""
        return self._table.segment(keys.keys_of(changed.numbers), changed.columns, changed.deleted)

    def restore(self, rows: pa.RecordBatch, slots: Integers) -> None:
        """Take back the rows of the table, whose keys have these slots."""
        first = 1 + len(self._table.keys) + len(self._table.entry)
        written = self._table.written(rows)
        self._entries.restore(slots, rows.column(first), written)

    @property
    def table(self) -> StateTable:
        """The shape of the table."""
        return self._table

    def rows_of(self, restored: OperatorSnapshot) -> pa.RecordBatch | None:
        """The state's rows in a snapshot."""
        table = restored.keyed.get(self._table.name)
        return None if table is None else self._table.restored(table)


class ColumnValue(ColumnState):
    """A `ValueColumn`."""

    def get(self) -> pa.Array:
        """The value of each key."""
        return self._entries.get(self._current.slots)

    def numpy(self, default: Any) -> npt.NDArray[Any]:
        """The value of each key as NumPy."""
        store = self._entries.values
        if not isinstance(store, NumericValues):
            raise DataError(f"{self._place} is {self._type}, which NumPy has no arrays for", hint="use get()")
        slots = self._current.slots
        self._entries.read(slots)
        values = store.numpy(slots)
        there = self._entries.alive(slots)
        if not there.all():
            values[~there] = default
        return values

    def update(self, values: Values, where: Positions | None = None) -> None:
        """Replace values."""
        slots = self._current.slots_of(where, self._place)
        column = as_column(values, self._type, self._place, len(slots))
        if column.null_count:
            last = last_of_each(slots)
            slots, column = slots[last], column.take(pa.array(last))
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            self._entries.drop(slots[~valid])
            slots, column = slots[valid], column.drop_null()
        self._entries.put(slots, column)


class ColumnReducing(ColumnValue):
    """An `AppendingColumn` that keeps one value a key."""

    def __init__(
        self,
        descriptor: StateDescriptor,
        table: StateTable,
        current: CurrentKeys,
        function: Callable[[Any, Any], Any] | str,
    ) -> None:
        super().__init__(descriptor, table, current)
        self._reduce = _REDUCTIONS[function] if isinstance(function, str) else function

    def _combine(self, left: pa.Array, right: pa.Array) -> pa.Array:
        return as_column(self._reduce(left, right), self._type, self._place, len(left))

    def add(self, values: Values, keys: Positions | None = None) -> None:
        """Combine with further values; NULLs are left out."""
        positions = self._current.positions(keys, self._place)
        column = as_column(values, self._type, self._place, len(positions))
        if column.null_count:
            positions = positions[column.is_valid().to_numpy(zero_copy_only=False)]
            column = column.drop_null()
        self._merge(*combined(positions, column, self._combine))

    def _merge(self, positions: Integers, column: pa.Array) -> None:
        """Combine what is there with one more value for each of some keys."""
        slots = self._current.slots[positions]
        there = self._entries.alive(slots)
        if there.any():
            old = self._entries.get(slots[there])
            column = _replaced(column, there, self._combine(old, column.filter(pa.array(there))))
        self._entries.put(slots, column)


class ColumnAggregating(ColumnReducing):
    """An `AppendingColumn` that keeps an accumulator a key."""

    def __init__(
        self,
        descriptor: StateDescriptor,
        table: StateTable,
        current: CurrentKeys,
        function: AggregateFunction[Any, Any, Any],
    ) -> None:
        super().__init__(descriptor, table, current, function.merge)
        self._function = function

    def get(self) -> pa.Array:
        """The result of each key."""
        accumulators = super().get()
        if not accumulators.null_count:
            return self._function.get_result(accumulators)
        there = accumulators.is_valid().to_numpy(zero_copy_only=False)
        results = self._function.get_result(accumulators.drop_null())
        return results.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def add(self, values: Values, keys: Positions | None = None) -> None:
        """Take in further values."""
        positions = self._current.positions(keys, self._place)
        if len(values) != len(positions):
            raise DataError(f"{self._place}: got {len(values)} values for {len(positions)} keys")
        if len(positions) == 0:
            return
        empty = pa.array([self._function.create_accumulator()], self._type.arrow)
        fresh = empty.take(pa.array(np.zeros(len(positions), np.int64)))
        values = values if isinstance(values, pa.Array) else pa.array(values)
        column = as_column(self._function.add(values, fresh), self._type, self._place, len(positions))
        self._merge(*combined(positions, column, self._combine))


class ColumnList(ColumnState):
    """A `ListColumn`."""

    def get(self) -> pa.Array:
        """The list of each key."""
        return self._entries.get(self._current.slots)

    def add(self, values: Values, keys: Positions | None = None) -> None:
        """Append elements to the lists of their keys."""
        positions = self._current.positions(keys, self._place)
        if len(positions) == 0:
            return
        column = as_column(values, self._type, self._place, len(positions))
        order = stable_order(positions)
        sorted_positions = positions[order]
        starts_of = np.flatnonzero(np.concatenate([[True], sorted_positions[1:] != sorted_positions[:-1]]))
        distinct, counts = sorted_positions[starts_of], np.diff(np.append(starts_of, len(order)))
        slots = self._current.slots[distinct]
        old = self._entries.get(slots)
        lengths = pc.fill_null(old.value_lengths(), 0).to_numpy().astype(np.int64)
        elements = pa.concat_arrays([old.flatten(), column.take(pa.array(order))])
        starts = np.empty(2 * len(slots), np.int64)
        sizes = np.empty(2 * len(slots), np.int64)
        starts[0::2] = np.cumsum(lengths) - lengths
        starts[1::2] = lengths.sum() + np.cumsum(counts) - counts
        sizes[0::2], sizes[1::2] = lengths, counts
        offsets = np.concatenate([[0], np.cumsum(lengths + counts)]).astype(np.int32)
        joined = elements.take(pa.array(ranges(starts, sizes)))
        kind = self._table.values[0].type
        self._entries.put(slots, pa.ListArray.from_arrays(pa.array(offsets), joined, type=kind))

    def update(self, lists: Values, where: Positions | None = None) -> None:
        """Replace lists."""
        slots = self._current.slots_of(where, self._place)
        column = as_column(lists, array_of(self._type), self._place, len(slots))
        last = last_of_each(slots)
        slots, column = slots[last], column.take(pa.array(last))
        filled = pc.fill_null(pc.greater(column.value_lengths(), 0), False)
        there = filled.to_numpy(zero_copy_only=False)
        self._entries.drop(slots[~there])
        self._entries.put(slots[there], column.filter(filled))


def _replaced(column: pa.Array, mask: Bools, replacements: pa.Array) -> pa.Array:
    """The column with the entries under the mask replaced; of any type."""
    sources = np.arange(len(column))
    sources[mask] = len(column) + np.arange(len(replacements))
    return pa.concat_arrays([column, replacements]).take(pa.array(sources))
