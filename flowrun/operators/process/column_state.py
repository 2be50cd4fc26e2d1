"""Keyed state and timers of functions on batches: columns over numbered keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.keyed_state import Positions, Values
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
from flowrun.core.arrays import Bools, Integers
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.types import BIGINT
from flowrun.operators.first_timer import FirstTimer
from flowrun.operators.keyed.key_slots import KeySlots, LocatedKeys
from flowrun.operators.next_firing import show_next_firing
from flowrun.operators.process.broadcast_state import chosen_state
from flowrun.operators.process.column_handles import (
    ColumnAggregating,
    ColumnList,
    ColumnReducing,
    ColumnState,
    ColumnValue,
)
from flowrun.operators.process.column_map import ColumnMap
from flowrun.operators.process.column_timers import ColumnTimers
from flowrun.operators.process.current import CurrentKeys, as_column
from flowrun.operators.process.factories import key_columns, timer_table
from flowrun.operators.process.loading import TIMERS
from flowrun.operators.timers import DOMAIN_COLUMN, TIMESTAMP_COLUMN
from flowrun.state.backend.tables import state_table
from flowrun.state.backend.upsert_log import UpsertLog

OnTimers = Callable[[Integers, Integers, bool], None]
"""Called with slots (each once) and times of the timers that fire; True: in processing time."""

_SLACK_KEYS = 1 << 16


class ColumnBackend:
    """See `KeyedBackend`.

    Args:
        context: of the operator.
        fields: the key columns.
        on_timers: called for timers that fire.
        grouped_by: so many of the key columns, the first ones, are the key of the stream; None: all.

    Attributes:
        current: the keys that handles show.
    """

    def __init__(
        self,
        context: OperatorContext,
        fields: tuple[Field, ...],
        on_timers: OnTimers,
        grouped_by: int | None = None,
    ) -> None:
        self.current = CurrentKeys()
        self._context = context
        self._grouped_by = grouped_by
        self._columns = key_columns(fields)
        self._key_names = [f.name for f in fields]
        self._keys = KeySlots.of(Schema(fields), range(len(fields)))
        self._states: dict[str, ColumnState | ColumnMap] = {}
        self._timers = {domain: ColumnTimers() for domain in TimeDomain}
        for domain, timers in self._timers.items():
            show_next_firing(context, timers.glance, domain)
        self._timer_table = timer_table(self._columns, context.max_parallelism)
        self._timer_log = UpsertLog(self._timer_table.log_schema, self._timer_table.key)
        self._on_timers = on_timers
        self._now = 0
        processing = self._timers[TimeDomain.PROCESSING]
        self._wait = FirstTimer(context.processing_time, processing.first, self._fire_processing_time)
        self._rows_since_check = 0

    def handle(self, descriptor: StateDescriptor) -> ColumnState | ColumnMap:
        """The handle of a state."""
        table = state_table(descriptor, self._columns, self._context.max_parallelism, self._grouped_by)
        parts = (table, self.current)
        handle: ColumnState | ColumnMap
        match descriptor:
            case ListStateDescriptor():
                handle = ColumnList(descriptor, *parts)
            case MapStateDescriptor():
                handle = ColumnMap(descriptor, *parts)
            case ReducingStateDescriptor():
                handle = ColumnReducing(descriptor, *parts, descriptor.function)
            case AggregatingStateDescriptor():
                handle = ColumnAggregating(descriptor, *parts, descriptor.function)
            case _:
                handle = ColumnValue(descriptor, *parts)
        self._states[descriptor.name] = handle
        return handle

    def locate(self, columns: Sequence[pa.Array], rows: int) -> LocatedKeys:
        """The keys of a batch, which handles show from now on."""
        located = self._keys.locate(columns, rows)
        self._rows_since_check += rows
        for state in self._states.values():
            state.reserve(len(self._keys))
        self.current.slots, self.current.local = located.slots, located.local
        return located

    def keys_of(self, slots: Integers) -> list[pa.Array]:
        """Key columns of slots."""
        return self._keys.keys_of(slots)

    # ---- time

    def advance(self, now: int) -> None:
        """Processing time is `now`; room is made between batches."""
        self._now = now
        for state in self._states.values():
            state.expire(now)
        self._compact()

    @property
    def newest_write(self) -> int:
        """Latest write of state with a time to live."""
        written = [w for s in self._states.values() if (w := s.newest_write) is not None]
        return max(written, default=self._now)

    def register(self, domain: TimeDomain, timestamps: Values, keys: Positions | None, place: str) -> None:
        """Register timers of the current keys."""
        self._timers[domain].register(*self._timer_columns(timestamps, keys, place))
        if domain is TimeDomain.PROCESSING:
            self._wait.rearm()

    def delete(self, domain: TimeDomain, timestamps: Values, keys: Positions | None, place: str) -> None:
        """Forget timers of the current keys."""
        self._timers[domain].delete(*self._timer_columns(timestamps, keys, place))
        if domain is TimeDomain.PROCESSING:
            self._wait.rearm()

    def _timer_columns(self, timestamps: Values, keys: Positions | None, place: str) -> tuple[Integers, Integers]:
        slots = self.current.slots_of(keys, place)
        column = as_column(timestamps, BIGINT, place, len(slots))
        if column.null_count:
            slots = slots[column.is_valid().to_numpy(zero_copy_only=False)]
            column = column.drop_null()
        return slots, column.to_numpy()

    @property
    def first_event_timer(self) -> int | None:
        """When the next event-time timer is due."""
        return self._timers[TimeDomain.EVENT].first()

    @property
    def has_timers(self) -> bool:
        """Whether any timer waits."""
        return any(timers.count for timers in self._timers.values())

    def forget_keys(self) -> None:
        """Drop all state and timers."""
        slots = len(self._keys)
        for state in self._states.values():
            state.reserve(slots)
            state.drop_all()
        for timers in self._timers.values():
            timers.indexed.entries.drop_all()
        self._keep(np.zeros(slots, np.bool_))

    def advance_watermark(self, timestamp: int) -> None:
        """Fire event-time timers."""
        timers = self._timers[TimeDomain.EVENT]
        timers.fire(timestamp, lambda slots, times: self._fire(slots, times, False))

    def fire_pending(self) -> None:
        """Fire the processing-time timers that wait now, not those that they register."""
        timers = self._timers[TimeDomain.PROCESSING]
        with self._wait.firing():
            timers.fire(2**63 - 1, lambda slots, times: self._fire(slots, times, True), again=False)

    def _fire_processing_time(self, timestamp: int) -> None:
        timers = self._timers[TimeDomain.PROCESSING]
        timers.fire(timestamp, lambda slots, times: self._fire(slots, times, True))

    def _fire(self, slots: Integers, times: Integers, processing: bool) -> None:
        self.current.slots, self.current.local = slots, np.arange(len(slots))
        for state in self._states.values():
            state.reserve(len(self._keys))
        self._on_timers(slots, times, processing)

    def all_keys(self, state: Any, function: Callable[[pa.RecordBatch, Any], None], place: str) -> None:
        """Call a function with all keys that have something in a state, given by its handle or name, and the handle, which shows them."""
        handle = chosen_state(self._states, state, place)
        slots = handle.slots()
        if len(slots) == 0:
            return
        for each in self._states.values():
            each.reserve(len(self._keys))
        self.current.slots, self.current.local = slots, np.arange(len(slots))
        try:
            function(pa.RecordBatch.from_arrays(self.keys_of(slots), names=self._key_names), handle)
        finally:
            self.current.leave()

    def close(self) -> None:
        """Wait for no timer."""
        self._wait.close()

    # ---- room

    def _compact(self) -> None:
        """Forget keys without state and timers, if they are many."""
        if self._wait.is_firing:
            return
        for timers in self._timers.values():
            timers.compact()
        slots = len(self._keys)
        if slots <= _SLACK_KEYS or self._rows_since_check < slots // 4:
            return
        self._rows_since_check = 0  # looking at all keys is paid by the rows that came since
        for state in self._states.values():
            state.reserve(slots)
        needed = np.zeros(slots, np.bool_)
        for state in self._states.values():
            needed |= state.needed(slots)
        for timers in self._timers.values():
            needed |= timers.indexed.needed_slots(slots)
        if slots <= 2 * int(np.count_nonzero(needed)) + _SLACK_KEYS:
            return
        self._keep(needed)

    def _keep(self, needed: Bools) -> None:
        """Forget the keys at all other slots, which have no state."""
        slots = len(self._keys)
        kept = self._keys.forget(needed)
        for state in self._states.values():
            state.keep(kept, slots)
        for timers in self._timers.values():
            timers.renumber_slots(kept, slots)
        self.current.clear()

    # ---- snapshots

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """States and timers."""
        keys = self._keys.view()
        tables = {name: state.snapshot(keys) for name, state in self._states.items()}
        for domain, timers in self._timers.items():
            captured, owners, entries = timers.indexed.capture()

            def rows(captured=captured, owners=owners, entries=entries, domain=domain) -> pa.Table:  # type: ignore[no-untyped-def]
                changed = captured.made()
                times = entries.keys_of(changed.numbers)[1]
                domains = pa.array([domain.value]).take(pa.array(np.zeros(len(times), np.int64)))
                owned = keys.keys_of(owners[changed.numbers])
                return self._timer_table.segment(owned, [times, domains], changed.deleted)

            self._timer_log.append(captured.count, rows)
        tables[TIMERS] = self._timer_log.table(sum(t.count for t in self._timers.values()))
        return tables

    def restore(self, restored: OperatorSnapshot) -> None:
        """States and timers."""
        for state in self._states.values():
            rows = state.rows_of(restored)
            if rows is not None and rows.num_rows:
                state.restore(rows, self._restored_slots(rows))
                state.expire(self._now, thorough=True)
        table = restored.keyed.get(TIMERS)
        if table is None or not table.num_rows:
            return
        rows = self._timer_table.restored(table)
        slots, times = self._restored_slots(rows), rows.column(TIMESTAMP_COLUMN).to_numpy()
        domains = rows.column(DOMAIN_COLUMN).to_numpy(zero_copy_only=False)
        for domain, timers in self._timers.items():
            mine = domains == domain.value
            timers.register(slots[mine], times[mine])
        self._wait.rearm()

    def _restored_slots(self, rows: pa.RecordBatch) -> Integers:
        located = self._keys.locate(rows.columns[1 : 1 + len(self._columns)], rows.num_rows)
        for state in self._states.values():
            state.reserve(len(self._keys))
        slots: Integers = located.of_rows
        return slots
