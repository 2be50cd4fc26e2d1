"""One row a primary key of rows that the query does not keep apart by it: ON CONFLICT DO ERROR and DO NOTHING, after Apache Flink's
`WatermarkCompactingSinkMaterializer` (FLIP-558).

Changes wait until the watermark is beyond the one that their sender had when it sent them, which a column behind the rows says. All that
has to do with one row of the sources then is there, from whichever subtask it comes: an insertion and its retraction cancel each other
out, in any order. What is left is put to the row that was sent. If none is there any more, it is deleted; one is inserted or replaces
it; of several different ones DO ERROR fails the job, DO NOTHING keeps the one that was sent or else came first, and forgets the others.
Equal rows are one row, which is there as long as one of them is. A row that goes and is not there is passed over.

Unlike in Flink, where the row that was sent goes and several come at once, DO NOTHING sends the first of them; changes of several
watermarks that are due at once count as one, so that a conflict that has gone by then fails no job.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch
from flowrun.errors import DataError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import describe_row
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.key_rows import NOWHERE, NUM_RECORDS_EXPIRED, NUM_STATE_ROWS, WRITTEN, KeyRows
from flowrun.operators.updating.changes import added, change_batch
from flowrun.operators.updating.emission import emit_changes
from flowrun.operators.updating.factories import CHANGES, COPIES, ROWS, ROWS_COUNTERS, ConflictResolutionFactory
from flowrun.operators.updating.waiting_changes import WaitingChanges

_ROWS_SHOWN = 3


class ConflictResolutionOperator(AbstractOperator):
    """Remembers the row of each key that was sent, and the changes that wait; see the module."""

    def __init__(self, factory: ConflictResolutionFactory) -> None:
        self._factory = factory

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        schema, keys = self._factory.schema, self._factory.keys
        self._rows = KeyRows(schema, keys, context.max_parallelism, counters=ROWS_COUNTERS, ttl_ms=self._factory.ttl_ms)
        context.metrics.gauge(NUM_RECORDS_EXPIRED, lambda: self._rows.expired)
        context.metrics.gauge(NUM_STATE_ROWS, lambda: len(self._rows))
        self._waiting = WaitingChanges(schema, keys, context.max_parallelism)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back rows and changes."""
        if restored is None:
            return
        table = restored.keyed.get(CHANGES)
        if table is not None and table.num_rows:
            self._waiting.restore(table)
        table = restored.keyed.get(ROWS)
        if table is not None and table.num_rows:
            self._rows.restore(table)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """What changed since the last snapshot."""
        return OperatorSnapshot(segmented={ROWS: self._rows.snapshot(), CHANGES: self._waiting.snapshot()})

    # ---- changes

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Let changes wait."""
        *columns, marks = batch.columns.columns
        rows = pa.RecordBatch.from_arrays(columns, schema=self._factory.schema.arrow)
        self._waiting.add(rows, added(batch), marks.to_numpy())

    def on_watermark(self, timestamp: int) -> None:
        """Resolve what has come before it."""
        self._resolve(timestamp)

    def finish(self) -> None:
        """Resolve what came behind the last watermark of bounded input."""
        if self.current_watermark == MAX_TIMESTAMP:
            self._resolve(None)

    def _resolve(self, watermark: int | None) -> None:
        if not len(self._waiting):
            return
        rows, copies = self._waiting.take_due(watermark)
        if rows.num_rows:
            self._apply(rows, copies)
        self._rows.compact()

    def _apply(self, rows: pa.RecordBatch, copies: Integers) -> None:
        """Put changes to what is remembered.

        Args:
            rows: different ones, in the order in which they came.
            copies: how many of each come, or go.
        """
        now, keys = self.context.processing_time.now_ms(), self._factory.keys
        located = self._rows.locate([rows.column(k) for k in keys], rows.num_rows)
        self._rows.expire(located.slots, now)
        stored = self._rows.numbers(located.slots)
        had = stored != NOWHERE
        before = self._rows.store.take(stored[had])
        place = np.where(had, np.cumsum(had) - 1, NOWHERE)[located.local]  # in `before`, for each row
        there = np.flatnonzero(place != NOWHERE)
        same = np.zeros(rows.num_rows, np.bool_)
        same[there] = rows_equal(
            before.take(pa.array(place[there])).columns, rows.take(pa.array(there)).columns, len(there)
        )
        count = np.zeros(len(stored), np.int64)
        count[had] = self._rows.store.counter(COPIES)[stored[had]]
        count[located.local[same]] += copies[same]
        stays = count > 0
        comes = np.flatnonzero((copies > 0) & ~same)
        if self._factory.fails:
            self._check(rows, located.local, comes, stays, before, place)
        first = np.full(len(stored), NOWHERE)
        first[located.local[comes][::-1]] = comes[::-1]
        first[stays] = NOWHERE
        self._replace(located.slots, stored, stays, count, rows, copies, first, now)
        has = stays | (first != NOWHERE)
        changed = ~stays & (had | has)
        self._send(before, had, changed, rows, first)

    def _replace(
        self,
        slots: Integers,
        stored: Integers,
        stays: Bools,
        count: Integers,
        rows: pa.RecordBatch,
        copies: Integers,
        first: Integers,
        now: int,
    ) -> None:
        """Remember what is there now of some keys: the row that was, where it `stays`, or the `first` of those that come."""
        store = self._rows.store
        kept = stored[stays]
        changed = store.counter(COPIES)[kept] != count[stays]
        store.put(COPIES, kept[changed], count[stays][changed])
        if self._factory.ttl_ms:
            store.put(WRITTEN, kept, now)
        new = first[~stays]
        chosen = new[new != NOWHERE]
        self._rows.replace(
            slots[~stays],
            rows.take(pa.array(chosen)),
            new != NOWHERE,
            **{COPIES: copies[chosen], WRITTEN: now},
        )

    def _send(self, before: pa.RecordBatch, had: Bools, changed: Bools, rows: pa.RecordBatch, first: Integers) -> None:
        """Send the changes of the keys that have another row now, or none."""
        old = before.filter(pa.array(changed[had]))
        new = rows.take(pa.array(first[first != NOWHERE]))
        changes = change_batch(old, had[changed], new, first[changed] != NOWHERE)
        if changes is None:
            return
        kinds = np.zeros(changes.num_rows, np.int8) if changes.row_kinds is None else changes.row_kinds.to_numpy()
        columns = changes.columns
        emit_changes(self.output, kinds, lambda start, stop: RecordBatch(columns.slice(start, stop - start)))

    def _check(
        self,
        rows: pa.RecordBatch,
        local: Integers,
        comes: Integers,
        stays: Bools,
        before: pa.RecordBatch,
        place: Integers,
    ) -> None:
        """Raise `DataError` if a key has several different rows; names the one of which a row came first."""
        several = np.bincount(local[comes], minlength=len(stays)) + stays > 1
        if not several.any():
            return
        found = comes[several[local[comes]]][0]
        key = local[found]
        mine = comes[local[comes] == key]
        shown = [describe_row(rows, int(i)) for i in mine[:_ROWS_SHOWN]]
        number = len(mine)
        if stays[key]:
            shown, number = [describe_row(before, int(place[found])), *shown[: _ROWS_SHOWN - 1]], number + 1
        more = f" and {number - len(shown)} more" if number > len(shown) else ""
        table = self._factory.table
        names = ", ".join(rows.schema.names[k] for k in self._factory.keys)
        raise DataError(
            f"sink '{table}': the query has {number} different rows for the primary key "
            f"{describe_row(rows.select(list(self._factory.keys)), int(found))}, which is an error with ON CONFLICT DO ERROR: "
            f"{', '.join(shown)}{more}",
            hint=f"write one row for each {names} (GROUP BY, a condition), declare what tells the rows apart as PRIMARY KEY of '{table}', "
            "or keep one of them: ON CONFLICT DO NOTHING the first, DO DEDUPLICATE the last",
        )
