"""Keyed state and timers of functions on rows: Python objects a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext
from flowrun.api.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorSnapshot,
    ReducingStateDescriptor,
    SegmentedTable,
    StateDescriptor,
)
from flowrun.core.schema import Field
from flowrun.core.semantics import TimeDomain
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.process.broadcast_state import chosen_state
from flowrun.operators.process.factories import key_columns, timer_table
from flowrun.operators.process.loading import TIMERS
from flowrun.operators.timers import DOMAIN_COLUMN, TIMESTAMP_COLUMN, InternalTimerService, Timer
from flowrun.state.backend.object_handles import (
    ObjectAggregating,
    ObjectList,
    ObjectMap,
    ObjectReducing,
    ObjectState,
    ObjectValue,
)
from flowrun.state.backend.objects import ChangeSet, Cursor, Key, ObjectStore
from flowrun.state.backend.tables import state_table
from flowrun.state.backend.upsert_log import UpsertLog
from flowrun.state.backend.values import ValueType, map_key_type

OnTimer = Callable[[Timer, bool], None]
"""Called for each timer that fires; True: in processing time."""


class ObjectBackend:
    """See `KeyedBackend`.

    Args:
        context: of the operator.
        fields: the key columns.
        place: names the function in messages.
        on_timer: called for each timer that fires; the cursor is at its key.
        grouped_by: so many of the key columns, the first ones, are the key of the stream; None: all.

    Attributes:
        cursor: the key whose state handles show.
        keys: turns keys into columns and back.
        timers: all timers.
    """

    def __init__(
        self,
        context: OperatorContext,
        fields: tuple[Field, ...],
        place: str,
        on_timer: OnTimer,
        grouped_by: int | None = None,
    ) -> None:
        self.cursor = Cursor()
        self.keys = KeyTuples(fields)
        self._columns = key_columns(fields)
        self._place = place
        self._grouped_by = grouped_by
        self._max_parallelism = context.max_parallelism
        self._states: dict[str, ObjectState] = {}
        self._changes = {domain: ChangeSet() for domain in TimeDomain}
        self._timer_table = timer_table(self._columns, context.max_parallelism)
        self._timer_log = UpsertLog(self._timer_table.log_schema, self._timer_table.key)
        self.timers = InternalTimerService(
            self._columns,
            pa.null(),
            context.max_parallelism,
            context.processing_time,
            lambda timer: on_timer(timer, False),
            lambda timer: on_timer(timer, True),
            self._changes,
        )
        self.timers.show_next_firing(context)

    def handle(self, descriptor: StateDescriptor) -> ObjectState:
        """The handle of a state."""
        place = f"state '{descriptor.name}'"
        kind = ValueType(place, descriptor.type, descriptor.python)
        key_type = None
        column: Callable[[list[Any]], pa.Array] = kind.array
        if isinstance(descriptor, ListStateDescriptor):
            lists = pa.list_(descriptor.type.arrow)
            column = lambda kept: kind.array(kept, lists)  # noqa: E731
        elif isinstance(descriptor, MapStateDescriptor):
            key_type = map_key_type(place, descriptor.key_type)
        table = state_table(descriptor, self._columns, self._max_parallelism, self._grouped_by)
        store = ObjectStore(
            table,
            self.keys,
            self.cursor,
            descriptor.ttl,
            column,
            key_type.array if key_type is not None else None,
        )
        handle: ObjectState
        match descriptor:
            case ListStateDescriptor():
                handle = ObjectList(store, self.cursor, kind)
            case MapStateDescriptor():
                assert key_type is not None
                handle = ObjectMap(store, self.cursor, kind, key_type)
            case ReducingStateDescriptor():
                handle = ObjectReducing(store, self.cursor, kind, descriptor.function)
            case AggregatingStateDescriptor():
                handle = ObjectAggregating(store, self.cursor, kind, descriptor.function)
            case _:
                handle = ObjectValue(store, self.cursor, kind)
        self._states[descriptor.name] = handle
        return handle

    def each_key(self, state: Any, function: Callable[[tuple[Any, ...], Any], None]) -> None:
        """Call a function with each key that has something in a state, given by its handle or name, and the handle, which shows it."""
        handle = chosen_state(self._states, state, self._place)
        try:
            for key in handle.held_keys():
                self.cursor.key = key
                function(self.keys.values(key), handle)
        finally:
            self.cursor.leave()

    def advance(self, now: int) -> None:
        """Processing time is `now`."""
        self.cursor.now = now
        for state in self._states.values():
            state.expire()

    @property
    def newest_write(self) -> int:
        """Latest write of state with a time to live."""
        written = [w for s in self._states.values() if (w := s.newest_write) is not None]
        return max(written, default=self.cursor.now)

    @property
    def first_event_timer(self) -> int | None:
        """When the next event-time timer is due."""
        return self.timers.first(TimeDomain.EVENT)

    @property
    def has_timers(self) -> bool:
        """Whether any timer waits."""
        return any(self.timers.count(domain) for domain in TimeDomain)

    def forget_keys(self) -> None:
        """Drop all state and timers."""
        self.timers.forget()
        for state in self._states.values():
            state.forget()

    def advance_watermark(self, timestamp: int) -> None:
        """Fire event-time timers."""
        self.timers.advance_watermark(timestamp)

    def fire_pending(self) -> None:
        """Fire the processing-time timers that wait."""
        self.timers.fire_pending_processing_time()

    def close(self) -> None:
        """Wait for no timer."""
        self.timers.close()

    # ---- snapshots

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """States and timers."""
        for domain, changes in self._changes.items():
            changed, rest = changes.take()
            self._timer_log.append(len(changed), partial(self._timer_rows, changed, domain, rest))
        tables = {name: state.snapshot() for name, state in self._states.items()}
        tables[TIMERS] = self._timer_log.table(sum(self.timers.count(d) for d in TimeDomain))
        return tables

    def _timer_rows(self, changed: Mapping[Timer, Any], domain: TimeDomain, rest: object) -> pa.Table:
        """Called on another thread: reads nothing that changes; `rest` is dropped there."""
        timers = list(changed)
        others = [
            pa.array([t.timestamp for t in timers], pa.int64()),
            pa.array(np.full(len(timers), domain.value, object), pa.string()),
        ]
        deleted = pa.array([v is not True for v in changed.values()], pa.bool_())
        return self._timer_table.segment(self.keys.columns([t.key for t in timers]), others, deleted)

    def restore(self, restored: OperatorSnapshot) -> None:
        """States and timers."""
        for state in self._states.values():
            state.restore(restored)
        table = restored.keyed.get(TIMERS)
        if table is None:
            return
        rows = self._timer_table.restored(table)
        keys = self.keys.tuples(rows.columns[1 : 1 + len(self._columns)])
        times = rows.column(TIMESTAMP_COLUMN).to_pylist()
        domains = rows.column(DOMAIN_COLUMN).to_pylist()
        for key, time, domain in zip(keys, times, domains, strict=True):
            if domain == TimeDomain.EVENT.value:
                self.timers.register_event_time(time, key)
            else:
                self.timers.register_processing_time(time, key)


class KeyTuples:
    """Turns key columns into tuples that can be looked up in a dict, and back. Thread-safe.

    Times and floating numbers become the integers of their bits, so that NaN equals itself; rows and arrays become text.

    Raises:
        DataError: a column's type cannot be a key.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._codec = KeyCodec.of([(f.name, f.type) for f in fields])
        self._types = self._codec.groupable
        self._plain = tuple(_plain_type(t) for t in self._types)
        self._shown_as_kept = self._plain == tuple(f.type.arrow for f in fields)

    def tuples(self, columns: Sequence[pa.Array]) -> list[Key]:
        """The keys of rows."""
        return list(zip(*(_plain_column(c).to_pylist() for c in self._codec.encode(columns)), strict=True))

    def columns(self, keys: Sequence[Key]) -> list[pa.Array]:
        """The key columns."""
        plain = [pa.array([k[i] for k in keys], t) for i, t in enumerate(self._plain)]
        encoded = [c if c.type == t else c.view(t) for c, t in zip(plain, self._types, strict=True)]
        return self._codec.decode(encoded)

    def values(self, key: Key) -> tuple[Any, ...]:
        """What users see of a key."""
        if self._shown_as_kept:
            return key
        return tuple(c[0].as_py() for c in self.columns([key]))


def _plain_column(column: pa.Array) -> pa.Array:
    kind = _plain_type(column.type)
    return column if kind == column.type else column.view(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) or pa.types.is_floating(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    return kind
