"""OVER over rows that only come (Apache Flink's `OverAggregate` operators).

In event time rows wait until the watermark passes them; then the rows of all partitions that are due are put in order (partition, time,
arrival) behind the earlier rows that their frames still need, evaluated together, and sent by time. In processing time rows are evaluated
at once, a batch being one instant. What stays of the past:

* for frames with a bound the rows that a later frame may reach: so many of each partition, or those of so much time before its last;
* for frames without a bound what the aggregates amount to (`progress`), and for DISTINCT the values seen. Aggregates that need all of
  their values keep all rows;
* for LAG so many rows.

Late rows are dropped and counted as in Flink: with a bounded frame those that are not after the last row of their partition that was sent;
without a bound those that the watermark has passed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.semantics import FrameUnit, TimeDomain
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import required_times
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.next_firing import show_next_firing
from flowrun.operators.over.due_rows import DueRows, Rows
from flowrun.operators.over.evaluation import AggregateEvaluator, Carry, finished
from flowrun.operators.over.factories import ROWS, SENT, TIME, AppendOverFactory
from flowrun.operators.over.place_functions import place_result
from flowrun.operators.over.progress import OverProgress
from flowrun.operators.over.sequence import Sequence
from flowrun.operators.ranking.order import sorted_order
from flowrun.operators.ranking.slot_lists import SlotLists
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED, MAX_OUTPUT_ROWS
from flowrun.operators.updating.changes import only_adds

_BEFORE = -(1 << 62)


class AppendOverOperator(AbstractOperator):
    """Evaluates OVER calls row by row in order of time; see the module."""

    def __init__(self, factory: AppendOverFactory) -> None:
        self._factory = factory
        self._slots = KeySlots.of(factory.input_schema, factory.keys)
        self._history = SlotLists()
        self._due = DueRows()
        self._last: Integers = np.zeros(0, np.int64)  # by slot, time of the last row that was sent
        self._sweep_at = 1 << 16

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        if factory.time is not None:
            show_next_firing(context, self._due.first, TimeDomain.EVENT)
        self._store = RowStore(
            factory.input_schema, factory.keys, context.max_parallelism, counters=(TIME, SENT), by_key=False
        )
        self._progress = (
            OverProgress(factory, self._slots, context.max_parallelism)
            if factory.progress_columns is not None
            else None
        )

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows, and what the past amounts to."""
        if restored is None:
            return
        table = restored.keyed.get(ROWS)
        if table is not None and table.num_rows:
            self._restore_rows(table)
        if self._progress is not None:
            slots, last = self._progress.restore(restored)
            self._reserve()
            self._last[slots] = np.maximum(self._last[slots], last)

    def _restore_rows(self, table: pa.Table) -> None:
        numbers = self._store.restore(table)
        located = self._slots.locate(self._store.take_columns(numbers, self._factory.keys), len(numbers))
        self._reserve()
        slots, times = located.of_rows, self._store.counter(TIME)[numbers]
        sent = self._store.counter(SENT)[numbers] > 0
        self._due.add(Rows(numbers[~sent], slots[~sent], times[~sent]))
        order = np.flatnonzero(sent)[sorted_order([slots[sent], times[sent]])]
        distinct, counts = np.unique(slots[order], return_counts=True)
        self._history.put(distinct, counts, numbers[order])
        np.maximum.at(self._last, slots[sent], times[sent])

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that changed since the last snapshot."""
        progress = self._progress.snapshot() if self._progress is not None else {}
        return OperatorSnapshot(segmented={ROWS: self._store.snapshot_table(), **progress})

    def _reserve(self) -> None:
        self._history.reserve(len(self._slots))
        self._last = extended(self._last, len(self._slots), _BEFORE)

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Let rows wait for the watermark; in processing time evaluate them now."""
        factory = self._factory
        if not only_adds(batch):
            raise InternalError(f"operator {self.context.name}: an append-only OVER got rows that take others back")
        located = self._slots.locate([batch.columns.column(k) for k in factory.keys], batch.num_rows)
        self._reserve()
        slots = located.of_rows
        if factory.time is None:
            times = np.full(batch.num_rows, self.context.processing_time.now_ms(), np.int64)
            times = np.maximum(times, self._last[slots])  # the clock may step back, rows may not
            rows = self._remember(batch.columns, slots, times)
            self._fire(rows)
            return
        times = required_times(batch.columns, factory.time, self.context.name).to_numpy()
        past = self._last[slots] if factory.frame.preceding is not None else self.current_watermark
        late = times <= past
        columns = batch.columns
        if late.any():
            self._late.inc(int(np.count_nonzero(late)))
            kept = np.flatnonzero(~late)
            columns, slots, times = columns.take(pa.array(kept)), slots[kept], times[kept]
        if columns.num_rows:
            self._due.add(self._remember(columns, slots, times))

    def _remember(self, columns: pa.RecordBatch, slots: Integers, times: Integers) -> Rows:
        counters: dict[str, Integers | int] = {TIME: times, SENT: 0}
        return Rows(self._store.append(columns, **counters), slots, times)

    def on_watermark(self, timestamp: int) -> None:
        """Evaluate and send the rows that the watermark has passed."""
        due = self._due.take(timestamp) if self._factory.time is not None else None
        if due is not None:
            self._fire(due)

    # ---- evaluation

    def _fire(self, due: Rows) -> None:
        """Evaluate rows, send them by time, and keep of the past what later frames need."""
        due = due.take(sorted_order([due.slots, due.times, due.numbers]))
        slots, owners = np.unique(due.slots, return_inverse=True)
        sequence, numbers, times = self._sequence(due, slots, owners)
        first_new = sequence.targets[np.searchsorted(owners, np.arange(len(slots)))]
        results = self._evaluate(sequence, slots, first_new, due)
        self._send(due, results)
        self._keep(sequence, slots, numbers, times)
        last = np.searchsorted(owners, np.arange(len(slots)), side="right") - 1
        self._last[slots] = due.times[last]
        self._make_room()

    def _sequence(self, due: Rows, slots: Integers, owners: Integers) -> tuple[Sequence, Integers, Integers]:
        """(the due rows behind the history of their partitions; row numbers; times)."""
        old_owners, old = self._history.get(slots)
        all_owners = np.concatenate([old_owners, owners])
        order = sorted_order([all_owners])
        numbers = np.concatenate([old, due.numbers])[order]
        times = np.concatenate([self._store.counter(TIME)[old], due.times])[order]
        sorted_owners = all_owners[order]
        steps = np.ones(len(order), np.int64)
        steps[1:] = (sorted_owners[1:] != sorted_owners[:-1]) | (times[1:] != times[:-1])
        columns: dict[int, pa.Array] = {}

        def column(position: int) -> pa.Array:
            if position not in columns:
                columns[position] = self._store.take_columns(numbers, [position])[0]
            return columns[position]

        targets = np.flatnonzero(order >= len(old))
        return Sequence(sorted_owners, np.cumsum(steps), times, targets, column), numbers, times

    def _evaluate(self, sequence: Sequence, slots: Integers, first_new: Integers, due: Rows) -> list[pa.Array]:
        factory = self._factory
        frames = sequence.frames(factory.frame, first_new if factory.carries else None)
        progress = self._progress
        carry: Carry | None = None
        rows_before = ranks_before = np.zeros(len(slots), np.int64)
        if progress is not None:
            rows_before, ranks_before = progress.places(slots)
        if progress is not None and factory.carries:
            carry = progress.carry(slots, sequence, self._slots.keys_of(slots))
        evaluator = AggregateEvaluator(factory.input_schema, sequence, frames, carry)
        last = np.searchsorted(sequence.owners[sequence.targets], np.arange(len(slots)), side="right") - 1
        results: list[pa.Array] = []
        kept: list[list[pa.Array]] = []
        for place, aggregate in enumerate(factory.aggregates):
            if aggregate.kernel.collect is not None:
                results.append(evaluator.collected(aggregate))
                kept.append([])
                continue
            accumulators = evaluator.accumulators(place, aggregate)
            results.append(finished(aggregate, accumulators))
            kept.append([a.take(pa.array(last)) for a in accumulators])
        if progress is not None:
            counts = np.diff(np.append(np.searchsorted(due.slots, slots), len(due)))
            orders = sequence.ties[sequence.ends] - sequence.ties[first_new] + 1
            accumulated = kept if factory.carries else []
            keys = self._slots.keys_of(slots)
            progress.replace(slots, keys, accumulated, rows_before + counts, ranks_before + orders, due.times[last])
        counted_from = first_new if progress is not None else sequence.starts
        results += [place_result(c, sequence, counted_from, rows_before, ranks_before) for c in factory.places]
        return [results[i] for i in factory.result_order]

    def _send(self, due: Rows, results: list[pa.Array]) -> None:
        factory = self._factory
        order = sorted_order([due.times, due.numbers])
        width = len(factory.output_schema) - len(results)
        for start in range(0, len(order), MAX_OUTPUT_ROWS):
            part = order[start : start + MAX_OUTPUT_ROWS]
            taken = pa.array(part)
            columns = self._store.take_columns(due.numbers[part], range(width))
            columns += [r.take(taken) for r in results]
            rows = pa.RecordBatch.from_arrays(columns, schema=factory.output_schema.arrow)
            times = None if factory.time is None else pa.array(due.times[part])
            self.output.emit(RecordBatch(rows, times))

    # ---- the past

    def _keep(self, sequence: Sequence, slots: Integers, numbers: Integers, times: Integers) -> None:
        """Make the history of partitions of the rows that a later frame may reach; forget the others."""
        factory = self._factory
        from_end = sequence.ends[sequence.owners] - np.arange(len(sequence))
        kept = from_end < factory.kept_rows
        frame = factory.frame
        if frame.unit is FrameUnit.RANGE and frame.preceding is not None:
            kept |= times >= times[sequence.ends][sequence.owners] - frame.preceding
        if factory.keeps_all:
            kept = np.ones(len(sequence), np.bool_)
        self._store.remove(numbers[~kept])
        new = sequence.targets[kept[sequence.targets]]
        self._store.put(SENT, numbers[new], 1)
        self._history.put(slots, np.bincount(sequence.owners[kept], minlength=len(slots)), numbers[kept])

    def _make_room(self) -> None:
        self._sweep()
        moved = self._store.compact()
        if moved is not None:
            self._due.renumber(moved)
            self._history.renumber(moved)
        if self._progress is not None:
            self._progress.compact()

    def _sweep(self) -> None:
        """Forget rows of partitions that got none for so long that their frames are over, once state has doubled.

        As Apache Flink, which cleans up half as much again after the end of a frame: a row that late would miss them.
        """
        frame = self._factory.frame
        if frame.unit is not FrameUnit.RANGE or frame.preceding is None or len(self._store) < self._sweep_at:
            return
        time = self.context.processing_time.now_ms() if self._factory.time is None else self.current_watermark
        slots = np.arange(len(self._slots))
        old = slots[
            (self._last[slots] < time - frame.preceding - frame.preceding // 2 - 1) & (self._last[slots] > _BEFORE)
        ]
        owners, numbers = self._history.get(old)
        # the last row stays: it tells which rows are late
        last = np.append(owners[1:] != owners[:-1], True)
        if len(numbers):
            self._store.remove(numbers[~last])
            self._history.put(old[owners[last]], np.ones(int(last.sum()), np.int64), numbers[last])
        self._sweep_at = max(1 << 16, 2 * len(self._store))
