"""Top-N of windows: the rows of each window and partition whose rank is within bounds, sent once, when the window closes.

Rows wait by the end of their window. While a window is open its rows are thinned out now and then: those beyond the last rank that counts
are dropped once they are most of what the window holds. In event time a window closes when the watermark reaches its end − 1; rows that
come later are dropped and counted. In processing time it closes `PROCESSING_TIME_GRACE_MS` after its end, so that the results of
processing-time windows, which are sent when their window is over, find it open. Rows come out by window, and in a window by partition
(in the order in which their first rows came) and rank. Their event time is the window's end − 1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch, timestamps_from_column
from flowrun.errors import InternalError
from flowrun.operators.aggregation.grouping import numbered_groups
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.base import AbstractOperator
from flowrun.operators.ranking.factories import ROWS, WindowRankFactory
from flowrun.operators.ranking.order import RowOrder, differs_from_previous, sorted_order
from flowrun.operators.ranking.ranks import ranks
from flowrun.operators.ranking.row_runs import Run, WaitingTable, append_run, concat_runs
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED, MAX_OUTPUT_ROWS
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.updating.changes import only_adds

PROCESSING_TIME_GRACE_MS = 1000
_THIN_FROM = 4096


class _Window:
    """The rows of the windows of one end."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.rows = 0
        self.thinned = 0  # rows after the last thinning

    def add(self, run: Run) -> None:
        append_run(self.runs, run)
        self.rows += len(run)

    def replace(self, run: Run) -> None:
        self.runs = [run]
        self.rows = self.thinned = len(run)


class WindowRankOperator(AbstractOperator):
    """Ranks the rows of windows; see the module."""

    def __init__(self, factory: WindowRankFactory) -> None:
        self._factory = factory
        self._order = RowOrder(factory.input_schema, factory.order)
        fields = [factory.input_schema.fields[k] for k in factory.keys]
        self._codec = KeyCodec.of([(f.name, f.type) for f in fields])
        self._windows: dict[int, _Window] = {}
        self._sequence = 0
        self._next_firing: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._clock = FiringClock(factory.domain, context, self._advance, lambda: self._next_firing)
        self._clock.show_next_firing(self._next_event_firing)
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        self._table = WaitingTable(ROWS, factory.input_schema, factory.keys, context.max_parallelism)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows of open windows."""
        table = None if restored is None else restored.keyed.get(ROWS)
        if table is None:
            return
        for run in self._table.read(table):
            self._add(run)
            self._sequence = max(self._sequence, int(run.numbers[-1]) + 1)
        self._schedule()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows of open windows, each as the segment that it was before."""
        segments = tuple(run.segment(self._table) for w in self._windows.values() for run in w.runs)
        return OperatorSnapshot(segmented={ROWS: SegmentedTable(self._table.columns, segments)})

    def open(self) -> None:
        """Wait for what was restored."""
        self._clock.rearm()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._clock.close()

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Keep the rows of windows that are open."""
        if not only_adds(batch):
            raise InternalError(f"operator {self.context.name}: a window top-N got rows that take others back")
        numbers = np.arange(self._sequence, self._sequence + batch.num_rows)
        self._sequence += batch.num_rows
        run = Run(batch.columns, numbers)
        late = self._ends(run) <= self._closed()
        if late.any():
            self._late.inc(int(np.count_nonzero(late)))
            run = run.take(np.flatnonzero(~late))
        self._add(run)
        self._schedule()
        self._clock.rearm()

    def _ends(self, run: Run) -> Integers:
        ends: Integers = timestamps_from_column(run.rows.column(self._factory.window[1])).to_numpy()
        return ends

    def _closed(self) -> int:
        """The greatest end of a window that is over, ms."""
        if self._clock.is_processing:
            return self.context.processing_time.now_ms() - PROCESSING_TIME_GRACE_MS
        # one more than the watermark, which may be the greatest integer
        return min(self.current_watermark, (1 << 62)) + 1

    def _add(self, run: Run) -> None:
        if not len(run):
            return
        ends = self._ends(run)
        order = sorted_order([ends])
        ordered = ends[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        if len(starts) > 1:
            run = run.take(order)
        stops = np.append(starts[1:], len(ordered))
        for end, start, stop in zip(ordered[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
            window = self._windows.setdefault(end, _Window())
            window.add(run if stop - start == len(run) else _copied(run, start, stop))
            if window.rows > 2 * window.thinned + _THIN_FROM:
                whole = concat_runs(window.runs)
                positions, _ = self._top(whole, 1)
                window.replace(whole.take(np.sort(positions)))

    # ---- firing

    def _next_event_firing(self) -> int | None:
        due = self._next_firing
        return None if due is None else due - PROCESSING_TIME_GRACE_MS - 1

    def on_watermark(self, timestamp: int) -> None:
        """Send the windows that the watermark has passed."""
        self._clock.on_watermark(timestamp)

    def finish(self) -> None:
        """Send what processing time has left open at the regular end of the input."""
        self._clock.finish(self.current_watermark)

    def _schedule(self) -> None:
        first = min(self._windows, default=None)
        self._next_firing = None if first is None else first + PROCESSING_TIME_GRACE_MS

    def _advance(self, time: int) -> None:
        """Send the windows that are over at `time`: the watermark, or what the clock shows."""
        limit = time - PROCESSING_TIME_GRACE_MS if self._clock.is_processing else min(time, 1 << 62) + 1
        due = sorted(end for end in self._windows if end <= limit)
        if due:
            self._fire(concat_runs([run for end in due for run in self._windows.pop(end).runs]))
        self._schedule()

    def _fire(self, run: Run) -> None:
        positions, rank = self._top(run, self._factory.first)
        ends = self._ends(run)
        for start in range(0, len(positions), MAX_OUTPUT_ROWS):
            part = positions[start : start + MAX_OUTPUT_ROWS]
            columns = list(run.rows.take(pa.array(part)).columns)
            if self._factory.rank_column:
                columns.append(pa.array(rank[start : start + MAX_OUTPUT_ROWS]))
            rows = pa.RecordBatch.from_arrays(columns, schema=self._factory.output_schema.arrow)
            self.output.emit(RecordBatch(rows, pa.array(ends[part] - 1)))

    def _top(self, run: Run, first: int) -> tuple[Integers, Integers]:
        """(position, rank) of the rows of a run whose rank is from `first` to the last that counts, by window, partition and rank."""
        factory, rows = self._factory, len(run)
        keys = self._codec.encode([run.rows.column(k) for k in factory.keys])
        groups, total, _ = numbered_groups(keys, rows)
        parts = [groups, *self._order.values([run.rows.column(c) for c in self._order.columns], rows)]
        if factory.newest_of_equals:
            parts.append(-run.numbers)
        order = sorted_order(parts)
        ties = np.cumsum(differs_from_previous(parts, order), dtype=np.int64)
        rank = ranks(factory.ranking, groups[order], ties)
        best = np.empty(total, np.int64)
        best[groups[order[::-1]]] = order[::-1]  # of several rows of a group the last one stays
        by_window = sorted_order([self._ends(run)[order], best[groups[order]]])
        order, rank = order[by_window], rank[by_window]
        chosen = (rank >= first) & (rank <= factory.last)
        return order[chosen], rank[chosen]


def _copied(run: Run, start: int, stop: int) -> Run:
    """Some rows, without the batch that they came in."""
    return run.take(np.arange(start, stop)) if 2 * (stop - start) < len(run) else run.slice(start, stop)


def window_rank_operator(factory: WindowRankFactory) -> StreamOperator:
    """A `WindowRankOperator` that goes by the clocks of the windows' zone."""
    return in_zone(WindowRankOperator(factory), factory.time_zone)
