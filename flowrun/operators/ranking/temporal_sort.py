"""Sorting a stream by time (Apache Flink's `RowTimeSortOperator` and `ProcTimeSortOperator`).

In event time rows wait until the watermark passes them and come out by time, then by the other keys, then in order of arrival. A row that
is not after the last time that came out is late: it is dropped and counted. In processing time, rows are in order of time by nature: those
that come within one millisecond are sorted by the other keys; without other keys all rows go through at once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution, SegmentedTable
from flowrun.core.arrays import Integers
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch, timestamps_from_column
from flowrun.core.semantics import TimeDomain
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import required_times
from flowrun.operators.ranking.factories import ROWS, TemporalSortFactory
from flowrun.operators.ranking.order import RowOrder, sorted_order
from flowrun.operators.ranking.row_runs import Run, WaitingTable, concat_runs
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED, MAX_OUTPUT_ROWS
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.updating.changes import only_adds

SENT = "sent"
"""Name of the operator state with the last time that came out."""
_MERGED_RUNS = 64


class TemporalSortOperator(AbstractOperator):
    """Sorts rows as time passes; see the module. Runs in one subtask.

    In event time every run is in order of time, so that what is due of it is a prefix.
    """

    def __init__(self, factory: TemporalSortFactory) -> None:
        self._factory = factory
        self._processing = factory.domain is TimeDomain.PROCESSING
        # in processing time the first key is the clock, which arrival follows
        self._order = RowOrder(factory.input_schema, factory.order[1:] if self._processing else factory.order)
        self._time = factory.order[0].column
        self._runs: list[Run] = []
        self._sequence = 0
        self._sent = MIN_TIMESTAMP
        self._next_firing: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        self._clock = FiringClock(self._factory.domain, context, self._advance, lambda: self._next_firing)
        self._clock.show_next_firing(self._next_event_firing)
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        self._table = WaitingTable(ROWS, self._factory.input_schema, (), context.max_parallelism)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows that wait."""
        if restored is None:
            return
        if SENT in restored.operator:
            self._sent = max([MIN_TIMESTAMP, *restored.operator[SENT].rows.column(SENT).to_pylist()])
        table = restored.keyed.get(ROWS)
        for run in self._table.read(table) if table is not None else ():
            self._sequence = max(self._sequence, int(run.numbers[-1]) + 1)
            self._runs.append(run if self._processing else self._by_time(run))
        if self._runs:
            self._next_firing = self.context.processing_time.now_ms()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that wait, each run as the segment that it was before unless a part of it has gone."""
        table = SegmentedTable(self._table.columns, tuple(run.segment(self._table) for run in self._runs))
        sent = pa.table({SENT: pa.array([self._sent], pa.int64())})
        return OperatorSnapshot(operator={SENT: OperatorState(sent, Redistribution.UNION)}, segmented={ROWS: table})

    def open(self) -> None:
        """Wait for what was restored."""
        self._clock.rearm()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._clock.close()

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Let rows wait."""
        if not only_adds(batch):
            raise InternalError(f"operator {self.context.name}: sorting by time got rows that take others back")
        if self._processing and not self._order.keys:
            self.output.emit(RecordBatch(batch.columns, batch.timestamps))
            return
        run = Run(batch.columns, np.arange(self._sequence, self._sequence + batch.num_rows))
        self._sequence += batch.num_rows
        if self._processing:
            if self._next_firing is None:
                self._next_firing = self.context.processing_time.now_ms() + 1
        else:
            late = required_times(batch.columns, self._time, self.context.name).to_numpy() <= self._sent
            if late.any():
                self._late.inc(int(np.count_nonzero(late)))
                run = run.take(np.flatnonzero(~late))
            run = self._by_time(run)
        if len(run):
            self._runs.append(run)
        if len(self._runs) > _MERGED_RUNS:
            self._merge_little()
        self._clock.rearm()

    def _times(self, run: Run) -> Integers:
        times: Integers = timestamps_from_column(run.rows.column(self._time)).to_numpy()
        return times

    def _by_time(self, run: Run) -> Run:
        times = self._times(run)
        return run if (times[1:] >= times[:-1]).all() else run.take(sorted_order([times]))

    def _merge_little(self) -> None:
        """Put the younger half of the runs together."""
        half = len(self._runs) // 2
        whole = concat_runs(self._runs[half:])
        self._runs[half:] = [whole if self._processing else self._by_time(whole)]

    # ---- firing

    def _next_event_firing(self) -> int | None:
        return min((int(self._times(run)[0]) for run in list(self._runs)), default=None)

    def on_watermark(self, timestamp: int) -> None:
        """Send the rows that the watermark has passed."""
        self._clock.on_watermark(timestamp)

    def finish(self) -> None:
        """Send what processing time has left at the regular end of the input."""
        self._clock.finish(self.current_watermark)

    def _advance(self, time: int) -> None:
        """Send the rows that are due at `time`: the watermark; in processing time all."""
        due: list[Run] = []
        rest: list[Run] = []
        for run in self._runs:
            cut = len(run) if self._processing else int(np.searchsorted(self._times(run), time, side="right"))
            if cut:
                due.append(run.slice(0, cut))
            if cut < len(run):
                rest.append(run.slice(cut, len(run)) if cut else run)
        self._runs, self._next_firing = rest, None
        if due:
            self._send(concat_runs(due))

    def _send(self, run: Run) -> None:
        if not self._processing:
            times = self._times(run)
            self._sent = max(self._sent, int(times.max()))
        columns = [run.rows.column(c) for c in self._order.columns]
        # runs may have been merged: their numbers, not their places, say what came first
        order = sorted_order([*self._order.values(columns, len(run)), run.numbers])
        for start in range(0, len(order), MAX_OUTPUT_ROWS):
            part = order[start : start + MAX_OUTPUT_ROWS]
            rows = run.rows.take(pa.array(part))
            self.output.emit(RecordBatch(rows, None if self._processing else pa.array(times[part])))
