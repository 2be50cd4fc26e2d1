"""Deduplication: one row a key, the first or the last (Apache Flink's `Deduplicate`).

Four forms, each folded over a batch so that a key changes at most once:

* the first by processing time: a row is sent when its key is new, and never taken back; only keys are remembered;
* the last by processing time: the row that came last;
* the last by event time: the row of the greatest time, of equal times the one that came last;
* the first by event time: the row of the least time, of equal times the one that came first. It is sent when the watermark has reached
  its time, so that none can come before it, and never taken back (Flink's `RowTimeDeduplicateKeepFirstRowFunction`). Rows below the
  watermark are late: they are dropped and counted.

In the other forms late rows count like others, as in Flink. A row that equals the one it replaces in all columns is not sent, unless
state has a time to live: then consumers must hear of the key, too. State is gone `ttl_ms` after a key's row was last written.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch, timestamps_from_column
from flowrun.core.semantics import SortKey, TimeDomain
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import required_times
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.key_rows import NOWHERE, NUM_RECORDS_EXPIRED, NUM_STATE_ROWS, WRITTEN, KeyRows
from flowrun.operators.keyed.key_slots import LocatedKeys
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.next_firing import show_next_firing
from flowrun.operators.ranking.factories import EVENT_TIME, ROWS, SENT, DeduplicateFactory
from flowrun.operators.ranking.order import RowOrder, sorted_order
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED, MAX_OUTPUT_ROWS
from flowrun.operators.updating.changes import only_adds
from flowrun.operators.updating.emission import AFTER, BEFORE, INSERT, emit_changes


class DeduplicateOperator(AbstractOperator):
    """Keeps one row a key; see the module."""

    def __init__(self, factory: DeduplicateFactory) -> None:
        self._factory = factory
        time = [SortKey(factory.time)] if factory.time is not None else []
        self._order = RowOrder(factory.input_schema, time)
        self._times: Integers = np.zeros(0, np.int64)  # code of the time of the row of each slot
        self._waiting: Integers = np.zeros(0, np.int64)  # slots whose row was not sent yet, ascending
        self._first_waiting = MAX_TIMESTAMP  # no later than the time of the first of these rows

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        self._rows = KeyRows(
            self._factory.stored_schema,
            self._factory.stored_keys,
            context.max_parallelism,
            counters=self._factory.counters,
            ttl_ms=self._factory.ttl_ms,
        )
        context.metrics.gauge(NUM_RECORDS_EXPIRED, lambda: self._rows.expired)
        context.metrics.gauge(NUM_STATE_ROWS, lambda: len(self._rows))
        self._store = self._rows.store
        if self._factory.waits:
            self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
            show_next_firing(context, self._next_firing, TimeDomain.EVENT)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows."""
        table = None if restored is None else restored.keyed.get(ROWS)
        if table is None or table.num_rows == 0:
            return
        slots, numbers = self._rows.restore(table)
        self._reserve()
        if self._factory.time is not None:
            times = self._store.take_columns(numbers, [self._factory.time])
            self._times[slots] = self._order.codes(times, len(numbers))[0]
        if self._factory.waits:
            self._waiting = np.sort(slots[self._store.counter(SENT)[numbers] == 0])
            if len(self._waiting):
                self._first_waiting = int(self._waiting_times().min())

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that changed since the last snapshot."""
        return OperatorSnapshot(segmented={ROWS: self._rows.snapshot()})

    def _reserve(self) -> None:
        self._times = extended(self._times, self._rows.slots, 0)

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Replace the rows of keys for which a better one came, and send the changes in the order in which keys came."""
        if not only_adds(batch):
            raise InternalError(f"operator {self.context.name}: deduplication got rows that take others back")
        if self._factory.waits:
            batch = self._in_time(batch)
        if batch.num_rows:
            self._fold(batch)
        self._compact()

    def _in_time(self, batch: RecordBatch) -> RecordBatch:
        """The rows that are not late."""
        assert self._factory.time is not None
        times = required_times(batch.columns, self._factory.time, self.context.name)
        instants = times.to_numpy()
        late = instants < self.current_watermark
        self._first_waiting = min(self._first_waiting, int(instants[~late].min(initial=MAX_TIMESTAMP)))
        if not late.any():
            return batch
        self._late.inc(int(np.count_nonzero(late)))
        return batch.take(pa.array(np.flatnonzero(~late)))

    def _fold(self, batch: RecordBatch) -> None:
        factory, now = self._factory, self.context.processing_time.now_ms()
        located = self._rows.locate([batch.columns.column(k) for k in factory.keys], batch.num_rows)
        self._reserve()
        if self._rows.expire(located.slots, now):
            self._waiting = self._waiting[self._rows.numbers(self._waiting) != NOWHERE]
        times = self._order.codes([batch.columns.column(c) for c in self._order.columns], batch.num_rows)[0]
        rows = _best(located, times, last=factory.keep_last)
        numbers = self._rows.numbers(located.slots)
        known = numbers != NOWHERE
        held = self._times[located.slots]
        if factory.waits:  # what was sent stays, although no row can be before it without being late
            sent = self._store.counter(SENT)[numbers[known]] == 1
            held[known] = np.where(sent, np.iinfo(np.int64).min, held[known])
        wins = ~known | (times[rows] >= held if factory.keep_last else times[rows] < held)
        chosen = np.flatnonzero(wins)
        if len(chosen):
            self._replace(batch, rows[chosen], located.slots[chosen], times, now)

    def _replace(self, batch: RecordBatch, rows: Integers, slots: Integers, times: Integers, now: int) -> None:
        """Put rows of the batch in the place of those of their keys, and send the changes."""
        factory, store = self._factory, self._store
        taken = batch.take(pa.array(rows))
        old = self._rows.numbers(slots)
        had = old != NOWHERE
        changed = np.ones(len(rows), np.bool_)
        if had.any() and not factory.ttl_ms and not factory.waits:
            before = store.take(old[had])
            after = taken.columns.filter(pa.array(had))
            changed[had] = ~rows_equal(before.columns, after.columns, before.num_rows)
        stored = taken.columns if factory.stores_rows else taken.columns.select(list(factory.keys))
        event_times = 0 if taken.timestamps is None else taken.timestamps_numpy()
        new = self._rows.replace(slots, stored, **{EVENT_TIME: event_times, WRITTEN: now})
        self._times[slots] = times[rows]
        if factory.waits:
            self._waiting = np.union1d(self._waiting, slots)
        elif factory.stores_rows:
            self._send(old, new, had, changed, timed=batch.timestamps is not None)
        else:
            self.output.emit(self._ranked(taken))

    def _waiting_times(self) -> Integers:
        assert self._factory.time is not None
        columns = self._store.take_columns(self._rows.numbers(self._waiting), [self._factory.time])
        times: Integers = timestamps_from_column(columns[0]).to_numpy()
        return times

    def _next_firing(self) -> int | None:
        return self._first_waiting if len(self._waiting) and self._first_waiting != MAX_TIMESTAMP else None

    def on_watermark(self, timestamp: int) -> None:
        """Send the first rows that the watermark has reached, in order of time."""
        if not len(self._waiting):
            return
        numbers, times = self._rows.numbers(self._waiting), self._waiting_times()
        due = times <= timestamp
        self._first_waiting = int(times[~due].min(initial=MAX_TIMESTAMP))
        if not due.any():
            return
        self._waiting = self._waiting[~due]
        numbers = numbers[due][sorted_order([times[due], numbers[due]])]
        self._store.put(SENT, numbers, 1)
        for start in range(0, len(numbers), MAX_OUTPUT_ROWS):
            part = numbers[start : start + MAX_OUTPUT_ROWS]
            self.output.emit(
                self._ranked(RecordBatch(self._store.take(part), pa.array(self._store.counter(EVENT_TIME)[part])))
            )

    def _send(self, old: Integers, new: Integers, had: Bools, changed: Bools, *, timed: bool) -> None:
        numbers = np.stack([old, new], axis=1).ravel()
        sent = np.stack([changed & had, changed], axis=1).ravel()
        kinds = np.stack([np.full(len(old), BEFORE), np.where(had, AFTER, INSERT)], axis=1).ravel()[sent]
        numbers = numbers[sent]

        def rows(start: int, stop: int) -> RecordBatch:
            part = numbers[start:stop]
            times = pa.array(self._store.counter(EVENT_TIME)[part]) if timed else None
            return self._ranked(RecordBatch(self._store.take(part), times))

        emit_changes(self.output, kinds, rows)

    def _ranked(self, batch: RecordBatch) -> RecordBatch:
        """The rows with their rank, if that is wanted."""
        columns = list(batch.columns.columns)
        if self._factory.rank_column:
            columns.append(pa.array(np.ones(batch.num_rows, np.int64)))
        schema = self._factory.output_schema.arrow
        return RecordBatch(pa.RecordBatch.from_arrays(columns, schema=schema), batch.timestamps)

    # ---- room

    def _compact(self) -> None:
        kept = self._rows.compact().kept
        if kept is not None:
            self._times = self._times[kept]
            if self._factory.waits:
                numbers = self._rows.numbers(np.arange(len(kept)))
                self._waiting = np.flatnonzero(self._store.counter(SENT)[numbers] == 0)


def _best(located: LocatedKeys, times: Integers, *, last: bool) -> Integers:
    """The row of each key of a batch that is first, or last, by time and then arrival."""
    rows, keys = len(located.local), len(located.slots)
    best = np.empty(keys, np.int64)
    ordered = np.arange(rows) if (times[1:] >= times[:-1]).all() else sorted_order([times])
    if not last:
        ordered = ordered[::-1]
    best[located.local[ordered]] = ordered  # of several rows of a key the last one stays
    return best
