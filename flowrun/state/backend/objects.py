"""Keyed state as Python objects, for functions on rows: a dictionary, and the changes since the last snapshot beside it.

A snapshot takes the dictionary of changes and starts another one, whatever its size; the tables are made of it later. So kept values
never change: nested ones are Arrow scalars, and a list that a snapshot has is copied before it grows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, SegmentedTable, TimeToLive, TtlUpdate
from flowrun.errors import DataError
from flowrun.state.backend.tables import StateTable
from flowrun.state.backend.upsert_log import UpsertLog

Key = tuple[Hashable, ...]


class KeyRows(Protocol):
    """Keys as tuples of plain objects, and as columns."""

    def columns(self, keys: Sequence[Key]) -> list[pa.Array]:
        """The key columns; thread-safe."""
        ...

    def tuples(self, columns: Sequence[pa.Array]) -> list[Key]:
        """The keys of rows."""
        ...


class Cursor:
    """The key whose state handles show, and the processing time of this call (ms, never less than at an earlier call)."""

    __slots__ = ("key", "now")

    def __init__(self) -> None:
        self.key: Key = ()
        self.now = -(2**63)

    def leave(self) -> None:
        """No key is at hand: state of a key cannot be used until there is one."""
        self.key = ()
        del self.key

    def __getattr__(self, name: str) -> NoReturn:
        raise no_key()


def no_key() -> DataError:
    """The error for state of a key that is used where there is no key."""
    return DataError(
        "state of a key was used for a row of the broadcast stream, which has no key",
        hint="context.apply_to_keyed_state(state, function) goes through the keys; or keep it in broadcast state",
    )


class _Deleted:
    """The tombstone of a key."""

    __slots__ = ()


_DELETED = _Deleted()
_MISSING = object()


class ChangeSet:
    """Which items were set or removed since the last snapshot; what came and went in between leaves no trace.

    Attributes:
        changed: item → its value, or a tombstone.
    """

    __slots__ = ("_fresh", "changed")

    def __init__(self) -> None:
        self.changed: dict[Any, Any] = {}
        self._fresh: set[Any] = set()

    def added(self, item: Any, value: Any) -> None:
        """An item that was not there is there."""
        if item not in self.changed:
            self._fresh.add(item)
        self.changed[item] = value

    def removed(self, item: Any) -> None:
        """An item that was there is gone."""
        if item in self._fresh:
            self._fresh.remove(item)
            del self.changed[item]
        else:
            self.changed[item] = _DELETED

    def restored(self, items: dict[Any, Any]) -> None:
        """These items are there, and no snapshot has them yet."""
        self.changed = items
        self._fresh = set(items)

    def take(self) -> tuple[dict[Any, Any], object]:
        """The changes, which are the caller's own from now on, and what is left over: big, so drop it where time does not matter."""
        taken, rest, self.changed, self._fresh = self.changed, self._fresh, {}, set()
        return taken, rest


class ObjectStore:
    """The values of one state by item: the key, or for maps (key, map key).

    Args:
        table: its table.
        keys: what turns keys into columns.
        cursor: gives the time.
        ttl: of the state.
        entries: for maps: makes a column of map keys.
        column: makes a column of kept values.
    """

    def __init__(
        self,
        table: StateTable,
        keys: KeyRows,
        cursor: Cursor,
        ttl: TimeToLive | None,
        column: Callable[[list[Any]], pa.Array],
        entries: Callable[[list[Any]], pa.Array] | None = None,
    ) -> None:
        self.values: dict[Any, Any] = {}
        self.on_remove: Callable[[Any], None] | None = None
        self._table = table
        self._keys = keys
        self._cursor = cursor
        self._ttl_ms = ttl.ttl_ms if ttl is not None else 0
        self._on_read = ttl is not None and ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self._column = column
        self._entries = entries
        self._changes = ChangeSet()
        self._written: OrderedDict[Any, int] = OrderedDict()
        self._log = UpsertLog(table.log_schema, table.key)

    @property
    def name(self) -> str:
        """Of the state."""
        return self._table.name

    def read(self, item: Any) -> Any:
        """The value of an item, or None."""
        value = self.values.get(item)
        if self._on_read and item in self.values:
            self._set(item, value)
        return value

    def put(self, item: Any, value: Any) -> None:
        """Set the value of an item."""
        if item in self.values:
            self._set(item, value)
            return
        self.values[item] = value
        self._changes.added(item, value)
        if self._ttl_ms:
            self._set(item, value)

    def _set(self, item: Any, value: Any) -> None:
        self.values[item] = value
        if self._ttl_ms:
            now = self._cursor.now
            self._written[item] = now
            self._written.move_to_end(item)
            self._changes.changed[item] = (value, now)
        else:
            self._changes.changed[item] = value

    def remove(self, item: Any) -> None:
        """Remove an item, if it is there."""
        if self.values.pop(item, _MISSING) is _MISSING:
            return
        self._changes.removed(item)
        if self._ttl_ms:
            self._written.pop(item, None)

    def expire(self) -> None:
        """Remove entries that were last written too long ago."""
        if not self._ttl_ms:
            return
        limit = self._cursor.now - self._ttl_ms
        written = self._written
        while written:
            item, when = next(iter(written.items()))
            if when > limit:
                return
            if self.on_remove is not None:
                self.on_remove(item)
            self.remove(item)

    def forget(self) -> None:
        """Remove everything."""
        for item in list(self.values):
            if self.on_remove is not None:
                self.on_remove(item)
            self.remove(item)

    # ---- snapshots

    def snapshot(self) -> SegmentedTable:
        """The table; takes constant time."""
        changed, rest = self._changes.take()
        self._log.append(len(changed), lambda: self._rows(changed, rest))
        return self._log.table(len(self.values))

    def _rows(self, changed: Mapping[Any, Any], rest: object) -> pa.Table:
        """Called on another thread: reads nothing that changes; `rest` is dropped there."""
        items = list(changed)
        states = list(changed.values())
        deleted = [s is _DELETED for s in states]
        others: list[pa.Array] = []
        if self._entries is not None:
            others.append(self._entries([i[1] for i in items]))
            items = [i[0] for i in items]
        if self._ttl_ms:
            states = [(None, None) if d else s for s, d in zip(states, deleted, strict=True)]
            others.append(self._column([s[0] for s in states]))
            others.append(pa.array([s[1] for s in states], pa.int64()))
        else:
            others.append(self._column([None if d else s for s, d in zip(states, deleted, strict=True)]))
        return self._table.segment(self._keys.columns(items), others, pa.array(deleted, pa.bool_()))

    def restore(
        self,
        restored: OperatorSnapshot,
        stored: Callable[[pa.Array], list[Any]],
        entries: Callable[[pa.Array], list[Any]] | None = None,
    ) -> None:
        """Take back the table, if the snapshot has it; what has expired by now stays away."""
        table = restored.keyed.get(self.name)
        if table is None:
            return
        rows = self._table.restored(table)
        width = len(self._table.keys)
        items: Iterable[Any] = self._keys.tuples(rows.columns[1 : 1 + width])
        if entries is not None:
            items = zip(items, entries(rows.column(1 + width)), strict=True)
        values = stored(rows.column(1 + width + len(self._table.entry)))
        pairs = list(zip(items, values, strict=True))
        written = self._table.written(rows)
        if written is not None:
            self._restore_times(pairs, written.to_pylist())
        else:
            self.values = dict(pairs)
            self._changes.restored(dict(pairs))

    def _restore_times(self, pairs: list[tuple[Any, Any]], written: list[int | None]) -> None:
        """In order of writing. State that had no time to live before begins to live now."""
        times = [self._cursor.now if w is None else w for w in written]
        changed = {}
        for position in sorted(range(len(pairs)), key=times.__getitem__):
            item, value = pairs[position]
            self.values[item] = value
            self._written[item] = times[position]
            changed[item] = (value, times[position])
        self._changes.restored(changed)

    @property
    def newest_write(self) -> int | None:
        """When state was last written, ms; None if it has no time to live or nothing is there."""
        return next(reversed(self._written.values())) if self._written else None
