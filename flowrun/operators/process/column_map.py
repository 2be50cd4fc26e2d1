"""The handle of map state for functions on batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Positions, Values
from flowrun.api.state import MapStateDescriptor, OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.errors import DataError
from flowrun.operators.keyed.key_slots import KeyList
from flowrun.operators.process.current import CurrentKeys, as_column
from flowrun.operators.process.indexed_entries import IndexedEntries
from flowrun.state.backend.tables import StateTable
from flowrun.state.backend.upsert_log import UpsertLog
from flowrun.state.backend.values import map_key_type


class ColumnMap:
    """A `MapColumn`."""

    def __init__(self, descriptor: MapStateDescriptor, table: StateTable, current: CurrentKeys) -> None:
        self._place = f"state '{descriptor.name}'"
        map_key_type(self._place, descriptor.key_type)
        self._type = descriptor.type
        self._key_type = descriptor.key_type
        self.table = table
        self._current = current
        self._indexed = IndexedEntries(descriptor.key_type, table.values[0].type, descriptor.ttl)
        self._entries = self._indexed.entries
        self._log = UpsertLog(table.log_schema, table.key)

    def _numbers(self, map_keys: Values, keys: Positions | None, *, add: bool) -> Integers:
        positions = self._current.positions(keys, self._place)
        column = as_column(map_keys, self._key_type, f"{self._place}: map keys", len(positions))
        if column.null_count:
            raise DataError(f"{self._place}: a map key is NULL", hint="leave such rows out, or fill them")
        return self._indexed.numbers(self._current.slots[positions], column, add=add)

    def get(self, map_keys: Values, keys: Positions | None = None) -> pa.Array:
        """The values of entries."""
        numbers = self._numbers(map_keys, keys, add=False)
        known = numbers >= 0
        if known.all():
            return self._entries.get(numbers)
        found = self._entries.get(numbers[known])
        return found.take(pa.array(np.cumsum(known) - 1, mask=~known))

    def contains(self, map_keys: Values, keys: Positions | None = None) -> Bools:
        """Which entries are there."""
        numbers = self._numbers(map_keys, keys, add=False)
        known: Bools = numbers >= 0
        known[known] = self._entries.alive(numbers[known])
        return known

    def put(self, map_keys: Values, values: Values, keys: Positions | None = None) -> None:
        """Add or replace entries."""
        numbers = self._numbers(map_keys, keys, add=True)
        column = as_column(values, self._type, self._place, len(numbers))
        self._entries.put(numbers, column)

    def remove(self, map_keys: Values, keys: Positions | None = None) -> None:
        """Remove entries."""
        numbers = self._numbers(map_keys, keys, add=False)
        self._entries.drop(numbers[numbers >= 0])

    def items(self, where: Positions | None = None) -> tuple[Integers, pa.Array, pa.Array]:
        """All entries of the chosen keys."""
        numbers, positions = self._of(where)
        return positions, self._indexed.further(numbers), self._entries.get(numbers)

    def clear(self, where: Positions | None = None) -> None:
        """Remove all entries of the chosen keys."""
        self._entries.drop(self._of(where)[0])

    def _of(self, where: Positions | None) -> tuple[Integers, Integers]:
        """(numbers of the entries of the chosen keys, positions of their keys), by position."""
        current = self._current
        wanted = np.arange(len(current.slots))
        if where is not None:
            wanted = np.unique(current.chosen(where, self._place))
        numbers = self._entries.all_alive()
        owners = self._indexed.owners(numbers)
        position = np.full(max(int(owners.max(initial=-1)), int(current.slots.max(initial=-1))) + 1, -1, np.int64)
        position[current.slots[wanted]] = wanted
        found = position[owners]
        mine = np.flatnonzero(found >= 0)
        order = mine[np.argsort(found[mine], kind="stable")]
        return numbers[order], found[order]

    # ---- for the backend

    def slots(self) -> Integers:
        """Slots of the keys that have entries."""
        found: Integers = np.unique(self._indexed.owners(self._entries.all_alive()))
        return found

    def drop_all(self) -> None:
        """Remove the entries of all keys."""
        self._entries.drop_all()

    def reserve(self, slots: int) -> None:
        """Entries have numbers of their own."""

    def expire(self, now: int, *, thorough: bool = False) -> None:
        """Processing time is `now`."""
        self._entries.expire(now, thorough=thorough)
        self._indexed.compact()

    @property
    def newest_write(self) -> int | None:
        """Latest write of state with a time to live."""
        return self._entries.newest_write

    def needed(self, slots: int) -> Bools:
        """Which slots must stay."""
        return self._indexed.needed_slots(slots)

    def keep(self, kept: Integers, slots: int) -> None:
        """Slots were renumbered."""
        self._indexed.renumber_slots(kept, slots)

    def snapshot(self, keys: KeyList) -> SegmentedTable:
        """The table; `keys` are the keys as they are now."""
        captured, owners, entries = self._indexed.capture()

        def rows() -> pa.Table:
            changed = captured.made()
            others = [entries.keys_of(changed.numbers)[1], *changed.columns]
            return self.table.segment(keys.keys_of(owners[changed.numbers]), others, changed.deleted)

        self._log.append(captured.count, rows)
        return self._log.table(self._entries.live)

    def rows_of(self, restored: OperatorSnapshot) -> pa.RecordBatch | None:
        """The state's rows in a snapshot."""
        table = restored.keyed.get(self.table.name)
        return None if table is None else self.table.restored(table)

    def restore(self, rows: pa.RecordBatch, slots: Integers) -> None:
        """Take back the rows of the table, whose keys have these slots."""
        first = 1 + len(self.table.keys)
        numbers = self._indexed.numbers(slots, rows.column(first), add=True)
        written = self.table.written(rows)
        self._entries.restore(numbers, rows.column(first + 1), written)
