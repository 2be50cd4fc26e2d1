"""Broadcast state: a map that each subtask has whole, changed only where rows of the broadcast stream are processed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.keyed_state import Values
from flowrun.api.state import MapStateDescriptor, OperatorState, Redistribution
from flowrun.core.arrays import Bools
from flowrun.errors import DataError, StateError, did_you_mean
from flowrun.operators.process.current import as_column
from flowrun.state.backend.values import ValueType, map_key_type

T = TypeVar("T")

KEY_COLUMN, VALUE_COLUMN = "map_key", "value"


class BroadcastAccess:
    """Whether the rows at hand are those of the broadcast stream; `method` is the function's method for these."""

    __slots__ = ("method", "writable")

    def __init__(self, method: str) -> None:
        self.method = method
        self.writable = False


def chosen_state(states: Mapping[str, T], state: object, place: str) -> T:
    """A keyed state that a function names, by its handle or its name.

    Raises:
        DataError: it is none of them; `place` names the function.
    """
    found = next((handle for name, handle in states.items() if state is handle or state == name), None)
    if found is None:
        raise DataError(
            f"{place}: apply_to_keyed_state got {state!r}, which is no state of a key",
            hint=did_you_mean(str(state), states) or f"its states of keys: {', '.join(states) or 'none'}",
        )
    return found


class BroadcastMap:
    """A `BroadcastState`. Keys and values are kept as plain objects that never change.

    Args:
        owner: names the function.
        descriptor: of the state.
        access: says when it may be changed.
    """

    def __init__(self, owner: str, descriptor: MapStateDescriptor, access: BroadcastAccess) -> None:
        self._owner = owner
        self._place = place = f"state '{descriptor.name}'"
        self._access = access
        self._key_type = map_key_type(place, descriptor.key_type)
        self._type = ValueType(place, descriptor.type, descriptor.python)
        self._kept: dict[Any, Any] = {}
        self._table: pa.Table | None = None

    @property
    def types(self) -> tuple[ValueType, ValueType]:
        """Of keys and values."""
        return self._key_type, self._type

    @property
    def place(self) -> str:
        """Names the state in messages."""
        return self._place

    def get(self, key: Any) -> Any:
        """The value of an entry, or None."""
        kept = self._kept.get(self._key_type.store(key))
        return kept if self._type.load is None else self._type.load(kept)

    def __contains__(self, key: object) -> bool:
        return self._key_type.store(key) in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def __bool__(self) -> bool:
        return True  # a handle; its map may be empty

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._kept))

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The entries."""
        load = self._type.load
        for key, kept in list(self._kept.items()):
            yield key, kept if load is None else load(kept)

    def put(self, key: Any, value: Any) -> None:
        """Add or replace an entry."""
        self._change()
        self._kept[self._key_type.store(key)] = None if value is None else self._type.store(value)

    def remove(self, key: Any) -> None:
        """Remove an entry."""
        self._change()
        self._kept.pop(self._key_type.store(key), None)

    def clear(self) -> None:
        """Remove all entries."""
        self._change()
        self._kept = {}

    def _change(self) -> None:
        if not self._access.writable:
            raise DataError(
                f"{self._place} is the same on all subtasks, and is changed by {self._access.method} only",
                hint=f"change it in {self._access.method}; keep what belongs to a key or subtask in state of its own",
            )
        self._table = None

    # ---- as columns

    @property
    def table(self) -> pa.Table:
        """All entries; the same object while nothing changes."""
        if self._table is None:
            columns = [self._key_type.array(list(self._kept)), self._type.array(list(self._kept.values()))]
            self._table = pa.table(columns, names=[KEY_COLUMN, VALUE_COLUMN])
        return self._table

    def snapshot(self) -> OperatorState:
        """The entries as rows."""
        return OperatorState(self.table, Redistribution.BROADCAST)

    def restore(self, rows: pa.Table) -> None:
        """Take back rows.

        Raises:
            StateError: they are of other types.
        """
        if not rows.schema.equals(self.table.schema):
            held = ", ".join(f"{f.name}: {f.type}" for f in rows.schema)
            raise StateError(
                f"{self._place} of {self._owner} is a map from {self._key_type.type} to {self._type.type}, the snapshot has ({held})",
                hint="declare the state with its former types, or give the step another uid",
            )
        keys = (self._key_type.store(k) for k in self._key_type.stored(rows[KEY_COLUMN].combine_chunks()))
        self._kept = dict(zip(keys, self._type.stored(rows[VALUE_COLUMN].combine_chunks()), strict=True))
        self._table = None


class BroadcastColumns:
    """A `BroadcastColumn` over a map."""

    def __init__(self, kept: BroadcastMap) -> None:
        self._map = kept
        self._key_type, self._type = kept.types

    def _positions(self, map_keys: Values) -> pa.Array:
        """Of each key its place in the table, or NULL."""
        place = f"{self._map.place}: map keys"
        column = as_column(map_keys, self._key_type.type, place, len(map_keys))
        known = self._map.table[KEY_COLUMN].combine_chunks()
        if self._key_type.type.is_approximate:
            column, known = pc.add(column, 0.0), pc.add(known, 0.0)  # -0.0 is 0.0
        return pc.index_in(column, value_set=known)

    def get(self, map_keys: Values) -> pa.Array:
        """The values of entries."""
        return self._map.table[VALUE_COLUMN].combine_chunks().take(self._positions(map_keys))

    def contains(self, map_keys: Values) -> Bools:
        """Which entries are there."""
        there: Bools = self._positions(map_keys).is_valid().to_numpy(zero_copy_only=False)
        return there

    def __len__(self) -> int:
        return len(self._map)

    def __bool__(self) -> bool:
        return True

    def items(self) -> tuple[pa.Array, pa.Array]:
        """All entries."""
        table = self._map.table
        return table[KEY_COLUMN].combine_chunks(), table[VALUE_COLUMN].combine_chunks()

    def put(self, map_keys: Values, values: Values) -> None:
        """Add or replace entries."""
        keys = self._stored_keys(map_keys)
        column = as_column(values, self._type.type, self._map.place, len(keys))
        for key, value in zip(keys, self._type.stored(column), strict=True):  # as few as rules are
            self._map.put(key, value)

    def remove(self, map_keys: Values) -> None:
        """Remove entries."""
        for key in self._stored_keys(map_keys):
            self._map.remove(key)

    def clear(self) -> None:
        """Remove all entries."""
        self._map.clear()

    def _stored_keys(self, map_keys: Values) -> list[Any]:
        place = f"{self._map.place}: map keys"
        column = as_column(map_keys, self._key_type.type, place, len(map_keys))
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(f"{place}: the key of row {row} is NULL", row=row, hint="leave such rows out, or fill them")
        return self._key_type.stored(column)
