"""One window per key for ever: its aggregate at the end of bounded input, or at every interval of time.

`GlobalWindowOperator` fires once, when the watermark reaches its maximum (event time) or the input has ended (processing time);
rows after that are late and dropped. `ContinuousGlobalWindowOperator` is Apache Flink's global window with a continuous trigger: the
first row of a key sets its first firing to the end of the interval that the row is in; from then on it fires at every interval,
except that a firing without a new row since the last one, which would only repeat it, is left out. At the end of the input the keys
with new rows fire. After a restore the keys of an old subtask that was ahead in event time wait until this one has caught up.

Firings by count are `CountWindowOperator`'s. A result's event time is the newest of its rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch
from flowrun.core.record import record
from flowrun.core.semantics import TimeDomain
from flowrun.operators.aggregation.engine import AggregationEngine, concat_bundles
from flowrun.operators.aggregation.reduction import ReductionSampler
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.key_slots import KeyList, KeySlots, LocatedKeys
from flowrun.operators.keyed.lazy_tables import lazy_tables, no_tables
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.timed.assigners import Times
from flowrun.operators.timed.event_rows import (
    LATE_RECORDS_DROPPED,
    MAX_OUTPUT_ROWS,
    RowArrivals,
    RowIntake,
    process_at_multiples,
)
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.windows.counts.count_window import NOWHERE, CountWindowOperator
from flowrun.operators.windows.counts.factories import GlobalWindowFactory
from flowrun.operators.windows.partials.cell_tables import KEYS, SlotTables, read_sequence, sequence_state
from flowrun.operators.windows.partials.cells import CellAggregator, PartialLog
from flowrun.operators.windows.partials.merged_parts import MergedParts
from flowrun.operators.windows.partials.part_log import SegmentCollector
from flowrun.operators.windows.partials.partial_tables import PartialTables
from flowrun.operators.windows.progress import PROGRESS, Progress
from flowrun.operators.windows.results import keyed_results
from flowrun.state.key_groups import key_groups_or_zero

_PINNED_BYTES = 64 * 1024
_SPARE_ROWS = 64 * 1024
_NEVER = MIN_TIMESTAMP


class GlobalWindowOperator(AbstractOperator):
    """Aggregates all rows of a key; see the module."""

    def __init__(self, factory: GlobalWindowFactory) -> None:
        self._factory = factory
        self._engine = AggregationEngine(factory.layout)
        self._names = factory.layout.input_schema.names
        self._partials = MergedParts()
        self._sampler = ReductionSampler()
        self._sequence = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, None)
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        self._tables = PartialTables(self._engine, context.max_parallelism)

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back partial results."""
        if restored is None:
            return
        self._sequence = read_sequence(restored)
        for _, part in self._tables.read_parts(restored):
            self._partials.append_ahead(part, MIN_TIMESTAMP)
        self._partials.settle(MIN_TIMESTAMP)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to partial results."""
        collector = SegmentCollector(self._tables)
        collector.add(self._partials.blocks())
        return OperatorSnapshot(operator=sequence_state(self._sequence), segmented=collector.collected())

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Fold rows into partial results."""
        batch = self._intake.grouped_rows(batch)
        if self._factory.domain is TimeDomain.EVENT and self.current_watermark == MAX_TIMESTAMP:
            self._late.inc(batch.num_rows)
            return
        if batch.num_rows == 0:
            return
        times = batch.timestamps if batch.timestamps is not None else pa.nulls(batch.num_rows, pa.int64())
        rows = pa.RecordBatch.from_arrays([*batch.columns.columns, times], names=self._names)
        reduce = self._sampler.worthwhile(batch.num_rows)
        part = self._engine.lift(rows, self._sequence, reduce=reduce)
        if reduce:
            self._sampler.observe(batch.num_rows, part.main.num_rows)
        self._sequence += batch.num_rows
        self._partials.append(part if reduce else part.unpinned(_PINNED_BYTES), self._engine)

    def on_watermark(self, timestamp: int) -> None:
        """Fire at the end of event time."""
        if timestamp == MAX_TIMESTAMP and self._factory.domain is TimeDomain.EVENT:
            self._fire()

    def finish(self) -> None:
        """Fire at the regular end of the input."""
        if self._factory.domain is TimeDomain.PROCESSING and self.current_watermark == MAX_TIMESTAMP:
            self._fire()

    def _fire(self) -> None:
        parts, self._partials = self._partials.parts(), MergedParts()
        if not parts:
            return
        merged = self._engine.merge(concat_bundles(parts), in_arrival_order=True)
        keys = self._engine.decode_keys(merged.keys)
        for result in keyed_results(self._factory.output_schema, keys, self._engine.finish(merged)):
            self.output.emit(result)


class ContinuousGlobalWindowOperator(AbstractOperator):
    """Fires the aggregate of all rows of a key at every interval; see the module."""

    def __init__(self, factory: GlobalWindowFactory, every_ms: int) -> None:
        self._factory = factory
        self._every = every_ms
        self._aggregator = CellAggregator(factory.input_schema, factory.aggregates)
        self._log = PartialLog(self._aggregator.layout)
        self._slots = KeySlots.of(factory.input_schema, factory.keys)
        self._heads: Integers = np.zeros(0, np.int64)
        self._next: Integers = np.zeros(0, np.int64)
        self._changed: Integers = np.zeros(0, np.int64)
        self._kept = 0
        self._sequence = 0
        self._progress = Progress()
        self._next_firing: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        self._clock = FiringClock(factory.domain, context, self._advance, lambda: self._next_firing)
        self._clock.show_next_firing()
        intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, None)
        self._arrivals = RowArrivals(intake, self._clock)
        schemas = factory.state_schemas()
        self._tables = SlotTables(self._aggregator.engine, schemas, len(factory.keys), context.max_parallelism)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back partial results and the times of the next firings."""
        if restored is None:
            return
        self._sequence = read_sequence(restored)
        self._progress = Progress.read(restored).within(self.context.key_groups)
        slots, (following, changed) = self._tables.read_keys(restored, self._slots)
        self._make_room()
        self._next[slots], self._changed[slots] = following, changed
        read = self._tables.read_partials(restored, self._slots)
        if read is not None:
            bundle, owners, _ = read
            self._heads[owners] = self._log.append(bundle) + np.arange(len(owners))
            self._kept = len(self._log)
        self._plan()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """Partial results and the times of the next firings as they are now."""
        count = len(self._slots)
        held = _HeldAggregates(
            self._tables,
            self._slots.view(),
            self._log.view(),
            self._heads[:count].copy(),
            self._next[:count].copy(),
            self._changed[:count].copy(),
        )
        tables = lazy_tables(self._tables.schemas, held.tables) if count else no_tables(self._tables.schemas)
        progress = self._progress.advanced(self.context.key_groups, self.current_watermark, self._sequence)
        return OperatorSnapshot(
            operator={**sequence_state(self._sequence), PROGRESS: progress.as_state()}, segmented=tables
        )

    def open(self) -> None:
        """Wait for what was restored."""
        self._clock.rearm()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._clock.close()

    # ---- rows

    @property
    def passes_watermarks(self) -> bool:
        """Those between the intervals change nothing."""
        return True

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Merge rows into the partial results of their keys, and fire between rows where a watermark does that."""
        process_at_multiples(self, batch, self._every, self._process_rows)

    def _process_rows(self, batch: RecordBatch) -> None:
        """What this costs depends on the batch's keys only."""
        batch, times = self._arrivals.arrive(batch)
        if batch.num_rows == 0:
            return
        if not self._clock.is_processing and self.current_watermark == MAX_TIMESTAMP:
            self._late.inc(batch.num_rows)
            return
        located = self._slots.locate([batch.columns.column(k) for k in self._factory.keys], batch.num_rows)
        self._make_room()
        self._merge(batch, located)
        self._schedule(located, times)
        self._clock.rearm()

    def _merge(self, batch: RecordBatch, located: LocatedKeys) -> None:
        slots = located.slots
        bundle = self._aggregator.lift(batch, located.local, len(slots), self._sequence)
        self._sequence += batch.num_rows
        held = np.flatnonzero(self._heads[slots] != NOWHERE)
        if len(held):
            bundle = self._aggregator.merge([self._log.gather(self._heads[slots[held]], held), bundle])
        self._heads[slots] = self._log.append(bundle) + np.arange(len(slots))
        if len(self._log) > 2 * self._kept + _SPARE_ROWS:
            self._collect()

    def _schedule(self, located: LocatedKeys, times: Times) -> None:
        slots = located.slots
        now = times[:1] if self._clock.is_processing else self._reached(slots)
        firsts = np.empty(len(slots), np.int64)
        firsts[located.local[::-1]] = np.arange(len(times) - 1, -1, -1)
        following = self._next[slots]
        new = following == _NEVER
        first_times = times[firsts]
        following[new] = (first_times - first_times % self._every + self._every)[new]
        quiet = ~new & (self._changed[slots] == 0) & (following <= now)
        behind = np.broadcast_to(now, following.shape)[quiet] - following[quiet]
        following[quiet] += (behind // self._every + 1) * self._every
        self._next[slots], self._changed[slots] = following, 1
        first = int(following.min())
        self._next_firing = first if self._next_firing is None else min(self._next_firing, first)

    # ---- time

    def on_watermark(self, timestamp: int) -> None:
        """Fire what is due by event time."""
        self._clock.on_watermark(timestamp)

    def finish(self) -> None:
        """Fire what processing time has left open at the regular end of the input."""
        self._clock.finish(self.current_watermark)

    def _advance(self, time: int) -> None:
        if self._next_firing is None or time < self._next_firing:
            return
        count = len(self._slots)
        due = np.flatnonzero((self._changed[:count] == 1) & (self._next[:count] <= time))
        if not self._clock.is_processing and self._progress.most >= time:
            due = due[self._restored(due) < time]
        due = due[np.argsort(self._next[due], kind="stable")]
        self._changed[due] = 0
        # the next firing is at the first interval after this one; a later row moves it to the first one after the time it finds
        self._next[due] += self._every
        for start in range(0, len(due), MAX_OUTPUT_ROWS):
            part = due[start : start + MAX_OUTPUT_ROWS]
            bundle = self._log.gather(self._heads[part], np.arange(len(part)))
            results = self._aggregator.engine.finish(bundle)
            for result in keyed_results(self._factory.output_schema, self._slots.keys_of(part), results):
                self.output.emit(result)
        if self._factory.purging:
            self._heads[due] = NOWHERE
        self._plan()

    def _restored(self, slots: Integers) -> Integers:
        """Event time that the old subtask of each key had reached."""
        groups = key_groups_or_zero(self._slots.keys_of(slots), len(slots), self.context.max_parallelism)
        return self._progress.fired_of(groups)

    def _reached(self, slots: Integers) -> Integers:
        """Event time of each key: this subtask's, or that of the key's old subtask if it was ahead."""
        own: Integers = np.full(len(slots), self.current_watermark, np.int64)
        return own if self._progress.most <= self.current_watermark else np.maximum(own, self._restored(slots))

    def _plan(self) -> None:
        count = len(self._slots)
        waiting = self._next[:count][self._changed[:count] == 1]
        self._next_firing = int(waiting.min()) if len(waiting) else None

    # ---- room

    def _make_room(self) -> None:
        self._heads = extended(self._heads, len(self._slots), NOWHERE)
        self._next = extended(self._next, len(self._slots), _NEVER)
        self._changed = extended(self._changed, len(self._slots), 0)

    def _collect(self) -> None:
        held = np.flatnonzero(self._heads != NOWHERE)
        self._log.keep(self._heads[held])
        self._heads[held] = np.arange(len(held))
        self._kept = len(held)


@record
class _HeldAggregates:
    """The state of a subtask at one moment. Immutable: another thread writes it."""

    state_tables: SlotTables
    keys: KeyList
    log: PartialLog
    heads: Integers
    next: Integers
    changed: Integers

    def tables(self) -> dict[str, pa.Table]:
        """The state tables."""
        tables = {KEYS: self.state_tables.keys(self.keys, [self.next, self.changed], np.arange(len(self.next)))}
        held = np.flatnonzero(self.heads != NOWHERE)
        bundle = self.log.gather(self.heads[held], np.arange(len(held))) if len(held) else None
        return tables | self.state_tables.partials(self.keys, bundle, held, np.zeros(len(held), np.int64))


def global_window_operator(factory: GlobalWindowFactory) -> StreamOperator:
    """The operator for the window's rule: it fires by count, by interval, or once at the end."""
    if factory.counted is not None:
        return CountWindowOperator(factory.counted)
    if factory.rule is not None and factory.rule.every_ms is not None:
        return ContinuousGlobalWindowOperator(factory, factory.rule.every_ms)
    return GlobalWindowOperator(factory)
