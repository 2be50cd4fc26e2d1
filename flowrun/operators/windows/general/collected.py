"""Windows that collect rows for a window function until event time passes their end: no Python is run for a row, a key or a window.

It does what the general operator does with the event-time trigger, which needs nothing to be remembered of a window besides its rows:
a window fires when the watermark reaches its last time, then with each late row, and is forgotten after the allowed lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.keyed.lazy_tables import lazy_tables, no_tables
from flowrun.operators.keyed.restored_tables import check_keys, restored_batches
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.process.current import stable_order
from flowrun.operators.timed.event_rows import LateRows, RowIntake, process_at_multiples
from flowrun.operators.windows.functions.create_runner import window_function_runner
from flowrun.operators.windows.functions.fired import FiredWindows, Windows, function_results
from flowrun.operators.windows.general.assignment import assigning, closed_before
from flowrun.operators.windows.general.contents import WindowContents
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.general.tables import POSITION, ROWS
from flowrun.operators.windows.general.window_rows import WindowRowRuns, WindowRows
from flowrun.operators.windows.progress import PROGRESS, Progress
from flowrun.state.key_groups import key_groups_or_zero

_EXPANDED_ROWS = 1024 * 1024
_SPARE = 64 * 1024


class CollectedWindowOperator(AbstractOperator):
    """Collects rows by key and window; see the module. Windows of keys are numbered."""

    def __init__(self, factory: GeneralWindowFactory) -> None:
        self._factory = factory
        self._lateness = factory.allowed_lateness_ms
        types = [*(factory.input_schema.types[k] for k in factory.keys), BIGINT, BIGINT]
        fields = Schema.from_pairs([(f"k{i}", t) for i, t in enumerate(types)])
        self._numbers = KeySlots.of(fields, range(len(fields)))
        self._contents = WindowContents(factory.input_schema)
        self._open = WindowRowRuns()
        self._fired = WindowRowRuns()
        self._progress = Progress()

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Make what the function is called with."""
        super().setup(context, output)
        factory = self._factory
        assert factory.function is not None
        self._intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, factory.time_column)
        self._late = LateRows(context, output, factory.late_tag)
        self._assign = assigning(factory.assigner, context.processing_time.now_ms, lambda: self.current_watermark)
        self._runner = window_function_runner(
            factory.function,
            factory.name,
            factory.keys,
            (factory.input_schema, factory.output_schema),
            factory.side_outputs,
            context,
            output,
            merging=False,
        )
        self._schema = factory.state_schemas()[ROWS]

    @property
    def passes_watermarks(self) -> bool:
        """Many of them change nothing."""
        return True

    # ---- life and state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back windows with their rows, and the state of the function."""
        self._runner.initialize_state(restored)
        if restored is None:
            return
        self._progress = Progress.read(restored).within(self.context.key_groups)
        table = restored.keyed.get(ROWS)
        if table is not None and POSITION in table.schema.names:
            table = table.sort_by(POSITION)  # of one window, rows of all batches are in arrival order
        for batch in [] if table is None else restored_batches(ROWS, table, self._schema):
            self._restore(batch)

    def _restore(self, batch: pa.RecordBatch) -> None:
        width = len(self._factory.keys)
        keys, bounds = batch.columns[1 : 1 + width], batch.columns[1 + width : 3 + width]
        check_keys(ROWS, batch.column(0), keys, self.context.max_parallelism)
        stored = pa.RecordBatch.from_arrays(batch.columns[4 + width :], schema=self._contents.state_schema)
        count = batch.num_rows
        located = self._numbers.locate([*keys, *bounds], count)
        base, ends = self._contents.append_stored(stored), bounds[1].to_numpy()
        rows = WindowRows(ends, located.of_rows, base + np.arange(count))
        past = ends - 1 <= self._progress.fired_of(key_groups_or_zero(keys, count, self.context.max_parallelism))
        self._fired.add(rows.at(np.flatnonzero(past)))
        self._open.add(rows.at(np.flatnonzero(~past)))

    def open(self) -> None:
        """Open the window function."""
        self._runner.open()

    def close(self) -> None:
        """Close the window function."""
        self._runner.close()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to the rows of windows as they are now."""
        schemas = {ROWS: self._schema}
        parts = [self._fired.all(), self._open.all()]
        view = CollectedView(
            self._schema, self.context.max_parallelism, parts, self._numbers.view(), self._contents.view()
        )
        tables = lazy_tables(schemas, partial(view.tables, ROWS)) if any(map(len, parts)) else no_tables(schemas)
        progress = self._progress.advanced(self.context.key_groups, self.current_watermark, 0)
        kept = self._runner.snapshot()
        return OperatorSnapshot(operator={PROGRESS: progress.as_state()}, segmented={**tables, **kept})

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Add rows to their windows; those that are late but not too late fire them."""
        process_at_multiples(self, batch, self._factory.watermark_step_ms, self._process_rows)

    def _process_rows(self, batch: RecordBatch) -> None:
        batch = self._intake.grouped_rows(batch)
        if batch.num_rows == 0:
            return
        times = self._intake.event_times(batch)
        keys = [batch.columns.column(k) for k in self._factory.keys]
        watermarks = self._watermarks(keys, batch.num_rows)
        closed = closed_before(watermarks, self._lateness)
        pairs = self._assign(batch.columns, times)
        live = pairs.ends - 1 > closed[pairs.rows]
        skipped = np.ones(batch.num_rows, np.bool_)
        skipped[pairs.rows[live]] = False
        if not live.all() or skipped.any():
            late = np.flatnonzero(skipped & (times <= closed))
            if len(late):
                self._late.drop(batch.take(pa.array(late)))
            pairs = pairs.filter(live)
            if not len(pairs.rows):
                return
        if len(pairs.rows) != batch.num_rows or not np.array_equal(pairs.rows, np.arange(batch.num_rows)):
            keys = [k.take(pa.array(pairs.rows)) for k in keys]
        located = self._numbers.locate([*keys, pa.array(pairs.starts), pa.array(pairs.ends)], len(pairs.rows))
        base = self._contents.append(batch, times)
        added = WindowRows(pairs.ends, located.of_rows, base + pairs.rows)
        past = pairs.ends - 1 <= watermarks[pairs.rows]
        if past.any():
            self._fire_late(added.at(np.flatnonzero(past)))
            added = added.at(np.flatnonzero(~past))
        self._open.add(added)

    def _watermarks(self, keys: Sequence[pa.Array], rows: int) -> Integers:
        """Event time of each row's key: this subtask's, or that of the key's old subtask if it was ahead."""
        if self._progress.most <= self.current_watermark:
            return np.full(rows, self.current_watermark, np.int64)
        groups = key_groups_or_zero(keys, rows, self.context.max_parallelism)
        reached: Integers = np.maximum(self._progress.fired_of(groups), self.current_watermark)
        return reached

    def _fire_late(self, added: WindowRows) -> None:
        """Let late rows fire their windows, each with the rows before it; of a row's windows the latest first."""
        before = self._fired.all()
        wanted = np.unique(added.windows)
        mine = np.flatnonzero(np.isin(before.windows, wanted))
        rows: dict[int, list[int]] = {w: [] for w in wanted.tolist()}
        for window, row in zip(before.windows[mine].tolist(), before.rows[mine].tolist(), strict=True):
            rows[window].append(row)
        self._fired.add(added)
        numbers, lengths, positions = [], [], []
        waiting = 0
        order = np.lexsort((-added.ends, added.rows))
        for window, row in zip(added.windows[order].tolist(), added.rows[order].tolist(), strict=True):
            rows[window].append(row)
            numbers.append(window)
            lengths.append(len(rows[window]))
            positions.append(np.array(rows[window]))
            waiting += lengths[-1]
            if waiting > _EXPANDED_ROWS:
                self._call(np.array(numbers), np.array(lengths), np.concatenate(positions))
                numbers, lengths, positions, waiting = [], [], [], 0
        if numbers:
            self._call(np.array(numbers), np.array(lengths), np.concatenate(positions))

    # ---- firing

    def _call(self, numbers: Integers, lengths: Integers, positions: Integers) -> None:
        """Let windows fire: `lengths[i]` of the positions are those of the rows of window `numbers[i]`."""
        windows = self._windows(numbers)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = self._contents.rows(positions).columns
        fired = FiredWindows(windows, offsets, rows, pa.array(windows.ends - 1))
        for result in function_results(self._runner, fired):
            self.output.emit(result)

    def _windows(self, numbers: Integers) -> Windows:
        *keys, starts, ends = self._numbers.keys_of(numbers)
        return Windows(keys, starts.to_numpy(), ends.to_numpy(), self.current_watermark)

    def on_watermark(self, timestamp: int) -> None:
        """Fire windows that are over, in order of end; forget those that are cleaned up."""
        due = self._open.take(_end_by(timestamp))
        if len(due):
            self._fire(due)
            self._fired.add(due)
        closed = int(closed_before(np.array([timestamp]), self._lateness)[0])
        gone = self._fired.take(_end_by(closed))
        if len(gone):
            if self._runner.wants_clear:
                numbers = np.unique(gone.windows)
                self._runner.clear(self._windows(numbers))
            self._make_room()

    def _fire(self, due: WindowRows) -> None:
        counts = np.bincount(due.windows)
        numbers = np.flatnonzero(counts)
        ends = np.zeros(len(counts), np.int64)
        ends[due.windows] = due.ends
        numbers = numbers[np.argsort(ends[numbers], kind="stable")]
        ranks = np.zeros(len(counts), np.int64)
        ranks[numbers] = np.arange(len(numbers))
        positions = due.rows[stable_order(ranks[due.windows])]
        lengths = counts[numbers]
        stops = np.cumsum(lengths)
        start = 0
        while start < len(numbers):  # as many windows at once as have a bounded number of rows
            begin = int(stops[start] - lengths[start])
            stop = max(int(np.searchsorted(stops, begin + _EXPANDED_ROWS, "right")), start + 1)
            self._call(numbers[start:stop], lengths[start:stop], positions[begin : stops[stop - 1]])
            start = stop

    def _make_room(self) -> None:
        """Forget windows and rows that nothing refers to, when they are many."""
        parts = [self._open.all(), self._fired.all()]
        live = sum(map(len, parts))
        if len(self._numbers) > 2 * live + _SPARE:
            kept = np.zeros(len(self._numbers), np.bool_)
            for part in parts:
                kept[part.windows] = True
            self._numbers.forget(kept)
            self._renumber(np.cumsum(kept) - 1, None)
        if len(self._contents) > 2 * live + _SPARE:
            used = np.zeros(len(self._contents), np.bool_)
            for part in parts:
                used[part.rows] = True
            self._contents.keep_rows(np.flatnonzero(used))
            self._renumber(None, np.cumsum(used) - 1)

    def _renumber(self, windows: Integers | None, rows: Integers | None) -> None:
        self._open.renumber(windows, rows)
        self._fired.renumber(windows, rows)


def _end_by(time: int) -> int:
    """The greatest end of windows whose last time is `time` or before."""
    return time if time == MAX_TIMESTAMP else time + 1


@record
class CollectedView:
    """The rows of windows at one moment. Immutable: another thread writes them.

    Attributes:
        schema: of the table.
        parts: which rows are in which windows.
        windows: (key, start, end) of each window by number.
        rows: by position.
    """

    schema: pa.Schema
    max_parallelism: int
    parts: Sequence[WindowRows]
    windows: KeyList
    rows: RowLog

    def tables(self, name: str) -> dict[str, pa.Table]:
        """The table under its name."""
        numbers = np.concatenate([p.windows for p in self.parts])
        positions = np.concatenate([p.rows for p in self.parts])
        leading = self.windows.keys_of(numbers)
        groups = key_groups_or_zero(leading[:-2], len(numbers), self.max_parallelism)
        columns = [pa.array(groups), *leading, pa.array(positions), *self.rows.take(positions).columns]
        return {name: pa.Table.from_arrays(columns, schema=self.schema)}
