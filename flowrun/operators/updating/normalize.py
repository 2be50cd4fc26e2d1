"""Whole changes of upserts, and of changes that may come twice: Apache Flink's ChangelogNormalize (`ProcTimeDeduplicateKeepLastRow` over
a changelog).

The last row of each key is remembered. What adds a row (+I, +U) comes out as +I if its key has none, else as −U and +U, unless it
equals that row; with a time to live it comes out nevertheless, so that consumers hear of the key. −D comes out with the row that is
remembered, whatever else it holds, or not at all if there is none. −U says nothing that is not known.

Unlike other updating operators this one does not fold a batch: each change counts, as versions of a temporal join do, so what comes out
does not depend on how rows come in batches. The change before each one is the one before it of the same key in the batch, or what is
remembered.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Schema
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import NotNullCheck
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.key_rows import NOWHERE, NUM_RECORDS_EXPIRED, NUM_STATE_ROWS, WRITTEN, KeyRows
from flowrun.operators.updating.changes import added
from flowrun.operators.updating.emission import AFTER, BEFORE, DELETE, INSERT, emit_changes
from flowrun.operators.updating.factories import EVENT_TIME, NORMALIZE_COUNTERS, ROWS, ChangelogNormalizeFactory


class ChangelogNormalizeOperator(AbstractOperator):
    """Remembers one row a key; see the module."""

    def __init__(self, factory: ChangelogNormalizeFactory) -> None:
        self._factory = factory

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        keys = Schema(
            tuple(
                replace(f, nullable=f.nullable or i not in self._factory.keys)
                for i, f in enumerate(self._factory.schema)
            )
        )
        self._key_check = NotNullCheck(keys, f"'{context.name}'")
        self._rows = KeyRows(
            self._factory.schema,
            self._factory.keys,
            context.max_parallelism,
            counters=NORMALIZE_COUNTERS,
            ttl_ms=self._factory.ttl_ms,
        )
        context.metrics.gauge(NUM_RECORDS_EXPIRED, lambda: self._rows.expired)
        context.metrics.gauge(NUM_STATE_ROWS, lambda: len(self._rows))

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows."""
        table = None if restored is None else restored.keyed.get(ROWS)
        if table is not None and table.num_rows:
            self._rows.restore(table)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that changed since the last snapshot."""
        return OperatorSnapshot(segmented={ROWS: self._rows.snapshot()})

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send what the changes of a batch do, in the order in which they came."""
        if batch.row_kinds is not None:
            told = batch.row_kinds.to_numpy() != RowKind.UPDATE_BEFORE
            if not told.all():
                batch = batch.take(pa.array(np.flatnonzero(told)))
        if batch.num_rows:
            self._normalize(batch)
        self._rows.compact()

    def _normalize(self, batch: RecordBatch) -> None:
        self._key_check.check(batch.columns)
        now, rows = self.context.processing_time.now_ms(), batch.num_rows
        located = self._rows.locate([batch.columns.column(k) for k in self._factory.keys], rows)
        self._rows.expire(located.slots, now)
        adds = added(batch)
        stored = self._rows.numbers(located.slots)
        held = stored[stored != NOWHERE]
        # One sequence of rows: what is remembered of the batch's keys, then the batch. `before` is the position of what each row replaces.
        known = pa.RecordBatch.from_arrays(self._rows.store.take(held).columns, schema=self._factory.schema.arrow)
        columns = pa.RecordBatch.from_arrays(batch.columns.columns, schema=self._factory.schema.arrow)
        both = pa.concat_batches([known, columns])
        positions = np.where(stored != NOWHERE, np.cumsum(stored != NOWHERE) - 1, NOWHERE)
        order = located.row_order()
        first = np.append(True, np.diff(located.local[order]) != 0)
        initial = positions[located.local[order]]
        after = np.where(adds, np.arange(rows) + len(held), NOWHERE)
        before = _before(order, first, initial, after)
        sends = self._sends(both, before, adds, len(held))
        if not sends[adds].all():  # what is remembered stays, with its event time, where an equal row comes
            after = _kept(order, first, before, after, sends | ~adds)
            before = _before(order, first, initial, after)
        times = None if batch.timestamps is None else batch.timestamps_numpy()
        if times is not None:
            times = np.concatenate([self._rows.store.counter(EVENT_TIME)[held], times])
        last = order[np.append(np.flatnonzero(first)[1:] - 1, rows - 1)]
        written = np.full(len(last), self._factory.ttl_ms > 0)
        written[located.local[sends]] = True  # of the others what is remembered stays as it is
        self._remember(both, times, located.slots[written], after[last[written]], now)
        self._send(both, times, before, adds, sends, len(held))

    def _sends(self, both: pa.RecordBatch, before: Integers, adds: Bools, held: int) -> Bools:
        """Which rows change anything."""
        sends = adds | (before != NOWHERE)
        updates = np.flatnonzero(adds & (before != NOWHERE))
        if len(updates) and not self._factory.ttl_ms:
            old, new = both.take(pa.array(before[updates])), both.take(pa.array(updates + held))
            said = [i for i in range(both.num_columns) if i not in self._factory.clocks]
            sends[updates] = ~rows_equal(old.select(said).columns, new.select(said).columns, len(updates))
        return np.asarray(sends, np.bool_)

    def _remember(
        self, both: pa.RecordBatch, times: Integers | None, slots: Integers, after: Integers, now: int
    ) -> None:
        """Put rows in the place of what was remembered of some keys; −1: nothing is there any more."""
        stays = after != NOWHERE
        event_times = 0 if times is None else times[after[stays]]
        rows = both.take(pa.array(after[stays]))
        self._rows.replace(slots, rows, stays, **{EVENT_TIME: event_times, WRITTEN: now})

    def _send(
        self, both: pa.RecordBatch, times: Integers | None, before: Integers, adds: Bools, sends: Bools, held: int
    ) -> None:
        had = before != NOWHERE
        places = np.stack([before, np.arange(len(before)) + held], axis=1).ravel()
        chosen = np.stack([sends & had, sends & adds], axis=1).ravel()
        kinds = np.stack([np.where(adds, BEFORE, DELETE), np.where(had, AFTER, INSERT)], axis=1).ravel()[chosen]
        places = places[chosen]

        def rows(start: int, stop: int) -> RecordBatch:
            part = places[start:stop]
            return RecordBatch(both.take(pa.array(part)), None if times is None else pa.array(times[part]))

        emit_changes(self.output, kinds, rows)


def _before(order: Integers, first: Bools, initial: Integers, after: Integers) -> Integers:
    """What is remembered of its key when each row comes, as a position; −1: nothing.

    Args:
        order: of the rows by key and arrival.
        first: in that order, whether a row is the first of its key.
        initial: in that order, what was remembered of the key before.
        after: what is remembered once each row has come.
    """
    before = np.empty(len(order), np.int64)
    before[order] = np.where(first, initial, after[np.append(0, order[:-1])])
    return before


def _kept(order: Integers, first: Bools, before: Integers, after: Integers, changes: Bools) -> Integers:
    """What is remembered once each row has come, where rows that change nothing leave what was there."""
    starts = np.where(changes[order] | first, np.arange(len(order)), 0)
    start = order[np.maximum.accumulate(starts)]  # the last row of the key that changed something, or the first
    kept = np.empty(len(order), np.int64)
    kept[order] = np.where(changes[start], after[start], before[start])
    return kept
