"""The handles of keyed state for functions on rows: each shows the part of a store that belongs to the current key."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from flowrun.api.state import AggregateFunction, OperatorSnapshot, SegmentedTable
from flowrun.state.backend.objects import Cursor, Key, ObjectStore
from flowrun.state.backend.values import ValueType

_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "min": min, "max": max}


class ObjectState:
    """What all handles share: expiry and snapshots of their store."""

    def __init__(self, store: ObjectStore, cursor: Cursor, type: ValueType) -> None:
        self._store = store
        self._cursor = cursor
        self._type = type
        self._convert = type.store
        self._load = type.load

    def clear(self) -> None:
        """Remove the key's state."""
        self._store.remove(self._cursor.key)

    def held_keys(self) -> list[Key]:
        """The keys that have something."""
        return list(self._store.values)

    def expire(self) -> None:
        """Remove what has expired."""
        self._store.expire()

    def forget(self) -> None:
        """Remove the state of all keys."""
        self._store.forget()

    def snapshot(self) -> SegmentedTable:
        """The state's table."""
        return self._store.snapshot()

    def restore(self, restored: OperatorSnapshot) -> None:
        """Take back the state's table."""
        self._store.restore(restored, self._type.stored)

    @property
    def newest_write(self) -> int | None:
        """See `ObjectStore.newest_write`."""
        return self._store.newest_write


class ObjectValue(ObjectState):
    """A `ValueState`."""

    def value(self) -> Any:
        """The value, or None."""
        kept = self._store.read(self._cursor.key)
        return kept if self._load is None else self._load(kept)

    def update(self, value: Any) -> None:
        """Replace the value; None removes it."""
        if value is None:
            self._store.remove(self._cursor.key)
        else:
            self._store.put(self._cursor.key, self._convert(value))


class ObjectReducing(ObjectValue):
    """An `AppendingState` that keeps one value."""

    def __init__(
        self, store: ObjectStore, cursor: Cursor, type: ValueType, function: Callable[[Any, Any], Any] | str
    ) -> None:
        super().__init__(store, cursor, type)
        self._function = _REDUCTIONS[function] if isinstance(function, str) else function

    def get(self) -> Any:
        """The combination of all that was added."""
        return self.value()

    def add(self, value: Any) -> None:
        """Combine with one more value."""
        value = self._convert(value)
        before = self.value()
        if before is not None:
            loaded = value if self._load is None else self._load(value)
            value = self._convert(self._function(before, loaded))
        self._store.put(self._cursor.key, value)


class ObjectAggregating(ObjectState):
    """An `AppendingState` that keeps an accumulator."""

    def __init__(
        self, store: ObjectStore, cursor: Cursor, type: ValueType, function: AggregateFunction[Any, Any, Any]
    ) -> None:
        super().__init__(store, cursor, type)
        self._function = function

    def _accumulator(self) -> Any:
        kept = self._store.read(self._cursor.key)
        return kept if self._load is None else self._load(kept)

    def get(self) -> Any:
        """The result, or None."""
        accumulator = self._accumulator()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Take in one more value."""
        accumulator = self._accumulator()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._store.put(self._cursor.key, self._convert(self._function.add(value, accumulator)))


class ObjectList(ObjectState):
    """A `ListState`."""

    def __init__(self, store: ObjectStore, cursor: Cursor, type: ValueType) -> None:
        super().__init__(store, cursor, type)
        self._own: set[Key] = set()

    def get(self) -> Sequence[Any]:
        """The elements."""
        kept = self._store.read(self._cursor.key)
        if kept is None:
            return []
        return list(kept) if self._load is None else [self._load(v) for v in kept]

    def add(self, value: Any) -> None:
        """Append an element."""
        value = self._convert(value)
        key = self._cursor.key
        kept = self._store.values.get(key)
        if kept is not None and key in self._own:
            kept.append(value)
        else:  # a list that a snapshot has never changes
            kept = [value] if kept is None else [*kept, value]
            self._own.add(key)
        self._store.put(key, kept)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the list."""
        kept = [self._convert(v) for v in values]
        if not kept:
            self.clear()
            return
        self._own.add(self._cursor.key)
        self._store.put(self._cursor.key, kept)

    def clear(self) -> None:
        """Remove the list."""
        self._own.discard(self._cursor.key)
        super().clear()

    def forget(self) -> None:
        """Remove all lists."""
        self._own.clear()
        super().forget()

    def expire(self) -> None:
        """Remove lists that have expired."""
        self._store.on_remove = self._own.discard
        super().expire()

    def snapshot(self) -> SegmentedTable:
        """The state's table; the lists are shared with it."""
        self._own = set()
        return super().snapshot()

    def restore(self, restored: OperatorSnapshot) -> None:
        """Take back the lists."""
        type = self._type
        self._store.restore(restored, lambda lists: [type.stored(v.values) for v in lists])


class ObjectMap(ObjectState):
    """A `MapState`."""

    def __init__(self, store: ObjectStore, cursor: Cursor, type: ValueType, key_type: ValueType) -> None:
        super().__init__(store, cursor, type)
        self._key_type = key_type
        self._convert_key = key_type.store
        self._maps: dict[Key, dict[Any, None]] = {}
        store.on_remove = self._forget

    def held_keys(self) -> list[Key]:
        """The keys that have entries."""
        return list(self._maps)

    def get(self, key: Any) -> Any:
        """The value of an entry, or None."""
        kept = self._store.read((self._cursor.key, self._convert_key(key)))
        return kept if self._load is None else self._load(kept)

    def put(self, key: Any, value: Any) -> None:
        """Add or replace an entry."""
        key = self._convert_key(key)
        owner = self._cursor.key
        item = (owner, key)
        if item not in self._store.values:
            self._maps.setdefault(owner, {})[key] = None
        self._store.put(item, None if value is None else self._convert(value))

    def remove(self, key: Any) -> None:
        """Remove an entry."""
        item = (self._cursor.key, self._convert_key(key))
        if item in self._store.values:
            self._forget(item)
            self._store.remove(item)

    def _forget(self, item: Any) -> None:
        owner, key = item
        entries = self._maps[owner]
        del entries[key]
        if not entries:
            del self._maps[owner]

    def __contains__(self, key: object) -> bool:
        return (self._cursor.key, self._convert_key(key)) in self._store.values

    def __len__(self) -> int:
        return len(self._maps.get(self._cursor.key, ()))

    def __bool__(self) -> bool:
        return True  # a handle; its map may be empty

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The entries."""
        owner = self._cursor.key
        load = self._load
        for key in list(self._maps.get(owner, ())):
            kept = self._store.read((owner, key))
            yield key, kept if load is None else load(kept)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._maps.get(self._cursor.key, ())))

    def clear(self) -> None:
        """Remove all entries."""
        owner = self._cursor.key
        for key in self._maps.pop(owner, ()):
            self._store.remove((owner, key))

    def restore(self, restored: OperatorSnapshot) -> None:
        """Take back the entries."""
        convert = self._convert_key
        self._store.restore(restored, self._type.stored, lambda keys: [convert(k) for k in self._key_type.stored(keys)])
        for owner, key in self._store.values:
            self._maps.setdefault(owner, {})[key] = None
