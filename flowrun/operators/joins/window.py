"""The join of rows of equal windows: Apache Flink's window join, all kinds.

Rows wait by the end of their window. When it closes, all of its rows are joined at once, by window start and keys, sent as inserts with
window end − 1 as event time, and forgotten. In event time a window closes when the watermark reaches its end − 1; rows that come later
are dropped and counted. In processing time it closes `PROCESSING_TIME_GRACE_MS` after its end, so that the results of processing-time
windows, which are sent when their window is over, find it open. A row with NULL in a key matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, timestamps_from_column
from flowrun.core.semantics import JoinKind
from flowrun.errors import InternalError
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.base import AbstractOperator
from flowrun.operators.joins.condition import MAX_PAIRS, PairCondition, pair_chunks, paired
from flowrun.operators.joins.factories import LEFT, RIGHT, TABLES, WindowJoinFactory
from flowrun.operators.joins.outer import padded_left, padded_right
from flowrun.operators.joins.regular_pairs import pair_schema
from flowrun.operators.joins.unmatched import unmatched_counters
from flowrun.operators.joins.window_match import KeyMatch
from flowrun.operators.ranking.row_runs import Run, WaitingTable, append_run, concat_runs
from flowrun.operators.ranking.window_rank import PROCESSING_TIME_GRACE_MS
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.updating.changes import only_adds

_LATEST = 1 << 62


@dataclass(slots=True)
class _Windows:
    """What waits on the two sides for the windows of one end."""

    sides: tuple[list[Run], list[Run]] = field(default_factory=lambda: ([], []))


class WindowJoinOperator(AbstractOperator):
    """Joins by window and key; see the module."""

    inputs = 2

    def __init__(self, factory: WindowJoinFactory) -> None:
        self._factory = factory
        self._condition = PairCondition(factory.condition, factory.name, factory.errors)
        self._schema = factory.output_schema.arrow
        self._pair_schema = pair_schema(factory.schemas) if factory.kind.left_only else self._schema
        fields = [factory.schemas[LEFT].fields[k] for k in factory.keys[LEFT]]
        self._codec = KeyCodec.of([(f.name, f.type) for f in fields])
        self._windows: dict[int, _Windows] = {}
        self._arrived = 0
        self._next_firing: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._clock = FiringClock(factory.domain, context, self._advance, lambda: self._next_firing)
        self._clock.show_next_firing(self._next_event_firing)
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        self._unmatched = unmatched_counters(context.metrics)
        self._tables = tuple(
            WaitingTable(name, factory.schemas[i], factory.keys[i], context.max_parallelism)
            for i, name in enumerate(TABLES)
        )

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows of open windows."""
        if restored is None:
            return
        for index, table in enumerate(self._tables):
            rows = restored.keyed.get(table.name)
            for run in () if rows is None or not rows.num_rows else table.read(rows):
                self._add(run, self._ends(run.rows, index), index)
                self._arrived = max(self._arrived, int(run.numbers[-1]) + 1)
        self._schedule()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows of open windows, each run of them as the segment that it was before."""
        tables = {}
        for index, table in enumerate(self._tables):
            segments = tuple(run.segment(table) for w in self._windows.values() for run in w.sides[index])
            tables[table.name] = SegmentedTable(table.columns, segments)
        return OperatorSnapshot(segmented=tables)

    def open(self) -> None:
        """Compile the condition; wait for restored windows in processing time."""
        self._condition.open(self.context, self.output)
        self._clock.rearm()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._clock.close()

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Keep the rows of windows that are open."""
        if not only_adds(batch):
            raise InternalError(f"operator {self.context.name}: a join of windows got rows that take others back")
        numbers = np.arange(self._arrived, self._arrived + batch.num_rows)
        self._arrived += batch.num_rows
        run, ends = Run(batch.columns, numbers), self._ends(batch.columns, input_index)
        late = ends <= self._closed()
        if late.any():
            self._late.inc(int(np.count_nonzero(late)))
            on_time = np.flatnonzero(~late)
            run, ends = run.take(on_time), ends[on_time]
        self._add(run, ends, input_index)
        self._schedule()
        self._clock.rearm()

    def _ends(self, rows: pa.RecordBatch, index: int) -> Integers:
        """Window ends of rows, ms; rows without window are late for all."""
        ends = timestamps_from_column(rows.column(self._factory.windows[index][1]))
        found: Integers = (ends.fill_null(-_LATEST) if ends.null_count else ends).to_numpy()
        return found

    def _closed(self) -> int:
        """The greatest end of a window that is over, ms."""
        if self._clock.is_processing:
            return self.context.processing_time.now_ms() - PROCESSING_TIME_GRACE_MS
        return max(min(self.current_watermark, _LATEST), -_LATEST - 1) + 1

    def _add(self, run: Run, ends: Integers, index: int) -> None:
        if not len(run):
            return
        order = np.argsort(ends, kind="stable")
        ordered = ends[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        if len(starts) > 1:
            run = run.take(order)
        stops = np.append(starts[1:], len(ordered))
        for end, start, stop in zip(ordered[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
            # a copy of a part: a slice would keep the whole batch
            own = run if stop - start == len(run) else run.take(np.arange(start, stop))
            append_run(self._windows.setdefault(end, _Windows()).sides[index], own)

    # ---- firing

    def on_watermark(self, timestamp: int) -> None:
        """Join the windows that the watermark has passed."""
        self._clock.on_watermark(timestamp)

    def finish(self) -> None:
        """Join what processing time has left open at the regular end of the inputs."""
        self._clock.finish(self.current_watermark)

    def _next_event_firing(self) -> int | None:
        due = self._next_firing
        return None if due is None else due - PROCESSING_TIME_GRACE_MS - 1

    def _schedule(self) -> None:
        first = min(self._windows, default=None)
        self._next_firing = None if first is None else first + PROCESSING_TIME_GRACE_MS

    def _advance(self, time: int) -> None:
        """Join the windows that are over at `time`: the watermark, or what the clock shows."""
        limit = min(time, _LATEST) - PROCESSING_TIME_GRACE_MS if self._clock.is_processing else min(time, _LATEST) + 1
        for end in sorted(end for end in self._windows if end <= limit):
            sides = self._windows.pop(end).sides
            rows = [self._rows(runs, index) for index, runs in enumerate(sides)]
            if self._matters(rows):
                self._join(rows[LEFT], rows[RIGHT], end)
            else:  # rows of one side only, which nobody wants without the other's
                for counter, side in zip(self._unmatched, rows, strict=True):
                    counter.inc(side.num_rows)
        self._schedule()

    def _rows(self, runs: list[Run], index: int) -> pa.RecordBatch:
        if not runs:
            return pa.RecordBatch.from_pylist([], self._factory.schemas[index].arrow)
        return concat_runs(runs).rows

    def _matters(self, rows: list[pa.RecordBatch]) -> bool:
        """Whether anything can come out."""
        kind = self._factory.kind
        keeps = kind.keeps[LEFT] or kind is JoinKind.ANTI, kind.keeps[RIGHT]
        both = rows[LEFT].num_rows > 0 and rows[RIGHT].num_rows > 0
        return both or any(kept and side.num_rows for kept, side in zip(keeps, rows, strict=True))

    def _join(self, left: pa.RecordBatch, right: pa.RecordBatch, end: int) -> None:
        kind = self._factory.kind
        found = KeyMatch.of(self._keys(left, LEFT), self._keys(right, RIGHT), left.num_rows, right.num_rows)
        matched = np.zeros(left.num_rows, np.bool_), np.zeros(right.num_rows, np.bool_)
        if kind.left_only and self._condition.is_trivial:
            matched = found.counts > 0, matched[RIGHT]
        else:
            self._join_pairs(left, right, found, matched, end)
        self._unmatched[LEFT].inc(left.num_rows - int(np.count_nonzero(matched[LEFT])))
        if not kind.left_only:
            self._unmatched[RIGHT].inc(right.num_rows - int(np.count_nonzero(matched[RIGHT])))
        if kind.left_only:
            self._emit_alone(left, matched[LEFT] == (kind is JoinKind.SEMI), end, LEFT)
            return
        for index, rows in enumerate((left, right)):
            if kind.keeps[index]:
                self._emit_alone(rows, ~matched[index], end, index)

    def _keys(self, rows: pa.RecordBatch, index: int) -> list[pa.Array]:
        """Window start and keys: what must be equal."""
        start = timestamps_from_column(rows.column(self._factory.windows[index][0]))
        return [start, *self._codec.encode([rows.column(k) for k in self._factory.keys[index]])]

    def _join_pairs(
        self, left: pa.RecordBatch, right: pa.RecordBatch, found: KeyMatch, matched: tuple[Bools, Bools], end: int
    ) -> None:
        """Send the pairs (unless only left rows come out), and mark the rows that are in one."""
        kind = self._factory.kind
        for pairs in found.pairs(MAX_PAIRS):
            for part in pair_chunks(len(pairs)):
                probe, numbers = pairs.probe[part], pairs.numbers[part]
                columns = paired(left.take(pa.array(probe)), right.take(pa.array(numbers)), self._pair_schema)
                passed = self._condition.mask(columns)
                if passed is not None:
                    columns, probe, numbers = columns.filter(pa.array(passed)), probe[passed], numbers[passed]
                matched[LEFT][probe] = True
                matched[RIGHT][numbers] = True
                if not kind.left_only:
                    self._emit(columns, end)

    def _emit_alone(self, rows: pa.RecordBatch, chosen: Bools, end: int, index: int) -> None:
        """Rows that are in the result without the other side's: padded, or those of a semi or anti join."""
        positions = np.flatnonzero(chosen)
        for part in pair_chunks(len(positions)):
            columns = rows.take(pa.array(positions[part]))
            if self._factory.kind.left_only:
                columns = pa.RecordBatch.from_arrays(columns.columns, schema=self._schema)
            else:
                columns = (padded_right, padded_left)[index](columns, self._schema)
            self._emit(columns, end)

    def _emit(self, rows: pa.RecordBatch, end: int) -> None:
        if rows.num_rows:
            times = None if self._clock.is_processing else pa.array(np.full(rows.num_rows, end - 1))
            self.output.emit(RecordBatch(rows, times))


def window_join_operator(factory: WindowJoinFactory) -> StreamOperator:
    """A `WindowJoinOperator` that goes by the clocks of the windows' zone."""
    return in_zone(WindowJoinOperator(factory), factory.time_zone)
