"""The join of each left row with the version that its key had on the right at the row's time (FOR SYSTEM_TIME AS OF).

In event time, after Apache Flink's `TemporalRowTimeJoinOperator`: left rows wait until the watermark (the smaller of both inputs) has
passed their time, then all versions up to that time are known, and come out in order of time. +I and +U on the right begin a version
at the row's time, −D ends the key's last one, −U says nothing new. Of the versions that the watermark has passed only the newest of
each key is kept: a left row that is later than the watermark finds that one, if it is not too new for the row. A deletion that the
watermark has passed is forgotten with its key.

In processing time the version is the one that holds when the left row comes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, RowKind, timestamps_from_column
from flowrun.core.semantics import TimeDomain
from flowrun.operators.base import AbstractOperator
from flowrun.operators.joins.condition import MAX_PAIRS, PairCondition, pair_chunks, paired
from flowrun.operators.joins.factories import LEFT, RIGHT, VERSIONS, WAITING, WAITING_COUNTERS, TemporalJoinFactory
from flowrun.operators.joins.interval_queue import TimeQueue
from flowrun.operators.joins.interval_side import TIME_COLUMN
from flowrun.operators.joins.outer import left_joined
from flowrun.operators.joins.temporal_versions import Versions
from flowrun.operators.joins.unmatched import unmatched_counters
from flowrun.operators.keyed.key_rows import NOWHERE
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.next_firing import show_next_firing
from flowrun.operators.timed.event_rows import NULL_KEY_RECORDS_DROPPED


class TemporalJoinOperator(AbstractOperator):
    """Joins left rows with versions; see the module."""

    inputs = 2

    def __init__(self, factory: TemporalJoinFactory) -> None:
        self._factory = factory
        self._event = factory.domain is TimeDomain.EVENT
        self._condition = PairCondition(factory.condition, factory.name, factory.errors)
        self._schema = factory.output_schema.arrow

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        factory = self._factory
        self._versions = Versions(factory.schemas[RIGHT], factory.keys[RIGHT], context.max_parallelism)
        self._rows = RowStore(
            factory.schemas[LEFT], factory.keys[LEFT], context.max_parallelism, counters=WAITING_COUNTERS, by_key=False
        )
        self._waiting = TimeQueue()
        self._unmatched, _ = unmatched_counters(context.metrics)
        self._null_keys = context.metrics.counter(NULL_KEY_RECORDS_DROPPED)
        if self._event:
            show_next_firing(context, self._waiting.first, TimeDomain.EVENT)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back versions and waiting rows."""
        if restored is None:
            return
        self._versions.restore(restored.keyed.get(VERSIONS), timed=self._event)
        waiting = restored.keyed.get(WAITING)
        if waiting is not None and waiting.num_rows:
            numbers = self._rows.restore(waiting)
            self._waiting.add(self._rows.counter(TIME_COLUMN)[: len(numbers)].copy(), numbers)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """What changed of versions and waiting rows."""
        tables = {VERSIONS: self._versions.snapshot()}
        if self._event:
            tables[WAITING] = self._rows.snapshot_table()
        return OperatorSnapshot(segmented=tables)

    def open(self) -> None:
        """Compile the condition."""
        self._condition.open(self.context, self.output)

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Keep versions; keep left rows until the watermark passes them, or join them at once in processing time."""
        if input_index == RIGHT:
            self._add_versions(batch)
        elif self._event:
            self._wait(batch)
        else:
            keys = [batch.columns.column(k) for k in self._factory.keys[LEFT]]
            self._emit_joined(batch, self._versions.current(keys, batch.num_rows))

    def _add_versions(self, batch: RecordBatch) -> None:
        """Versions without NULL in their keys or times: others match nothing."""
        factory = self._factory
        usable = _valid(batch.columns, factory.keys[RIGHT])
        deletes = np.zeros(batch.num_rows, np.bool_)
        if batch.row_kinds is not None:
            kinds = batch.row_kinds.to_numpy()
            usable &= kinds != RowKind.UPDATE_BEFORE
            deletes = kinds == RowKind.DELETE
        if self._event and factory.right_time is not None:
            usable &= _valid(batch.columns, (factory.right_time,))
        if not usable.all():
            chosen = np.flatnonzero(usable)
            if not len(chosen):
                return
            batch, deletes = batch.take(pa.array(chosen)), deletes[chosen]
        if self._event and factory.right_time is not None:
            times = timestamps_from_column(batch.columns.column(factory.right_time)).to_numpy()
            self._versions.add(batch.columns, times, deletes)
        else:
            self._versions.replace(batch.columns, deletes)
            self._versions.compact()

    def _wait(self, batch: RecordBatch) -> None:
        factory = self._factory
        times = timestamps_from_column(batch.columns.column(factory.left_time))
        if times.null_count:  # no version holds at no time
            if factory.outer:
                untimed = batch.filter(times.is_null())
                self._emit_joined(untimed, np.full(untimed.num_rows, NOWHERE, np.int64))
            batch, times = batch.filter(times.is_valid()), times.drop_null()
        if not factory.outer:
            matchable = _valid(batch.columns, factory.keys[LEFT])
            if not matchable.all():
                self._null_keys.inc(len(matchable) - int(np.count_nonzero(matchable)))
                mask = pa.array(matchable)
                batch, times = batch.filter(mask), times.filter(mask)
        if not batch.num_rows:
            return
        instants = times.to_numpy()
        numbers = self._rows.append(batch.columns, **{TIME_COLUMN: instants})
        self._waiting.add(instants, numbers)

    def on_watermark(self, timestamp: int) -> None:
        """Join the left rows that the watermark has passed, in order of time; then forget versions that nobody asks for any more."""
        if not self._event:
            return
        numbers = self._waiting.pop(timestamp)
        passed = self._versions.pass_by(timestamp)
        if len(numbers):
            keys = self._rows.take_columns(numbers, self._factory.keys[LEFT])
            slots = self._versions.slots_of(keys, len(numbers))
            times = self._rows.counter(TIME_COLUMN)[numbers]
            held = self._versions.as_of(passed, slots, times)
            for part in pair_chunks(len(numbers), MAX_PAIRS):
                due = self._rows.take(numbers[part])
                self._emit_joined(RecordBatch(due, pa.array(times[part])), held[part])
            self._rows.remove(numbers)
        self._versions.settle(passed)
        self._versions.compact()
        moved = self._rows.compact()
        if moved is not None:
            self._waiting.renumber(moved)

    def _emit_joined(self, batch: RecordBatch, held: Integers) -> None:
        """Send left rows with the versions of these numbers (−1: none) as far as the condition holds."""
        at = np.flatnonzero(held != NOWHERE)
        versions = self._versions.rows(held[at])
        if len(at) and not self._condition.is_trivial:
            rows = batch.columns if len(at) == batch.num_rows else batch.columns.take(pa.array(at))
            passing = self._condition.passing(paired(rows, versions, self._schema))
            if len(passing) < len(at):
                at, versions = at[passing], versions.take(pa.array(passing))
        self._unmatched.inc(batch.num_rows - len(at))
        if self._factory.outer:
            self.output.emit(batch.with_columns(left_joined(batch.columns, versions, at, self._schema)))
        elif len(at):
            rows = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
            self.output.emit(rows.with_columns(paired(rows.columns, versions, self._schema)))


def _valid(rows: pa.RecordBatch, columns: tuple[int, ...]) -> Bools:
    """For each row whether none of the columns is NULL."""
    valid = np.ones(rows.num_rows, np.bool_)
    for position in columns:
        column = rows.column(position)
        if column.null_count:
            valid &= pc.is_valid(column).to_numpy(zero_copy_only=False)
    return valid
