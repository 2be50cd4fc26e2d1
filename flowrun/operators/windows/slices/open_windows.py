"""Keyed aggregation over aligned windows: tumbling, sliding and cumulative, in event or processing time.

A batch is folded once into partial results per key and slice; windows merge their slices when they fire. The semantics are those
of Apache Flink's `WindowOperator` with its event-time trigger, and do not depend on how rows are cut into batches:

* A window [start, end) fires once the watermark reaches end − 1, in order of end; a key appears in it if it has a row there.
* A row is dropped as late only if the *last* window that contains its slice has been cleaned up (watermark ≥ last end − 1 +
  allowed lateness). Otherwise it is merged and counts in all windows that have not been cleaned up.
* A row between two windows (slide > size) is in no result; it counts as late once its slice is past.
* For each late row, each window of it that has fired but is not cleaned up gives an updated result at once (see `updates`).
* In processing time a window fires when the clock reaches its end; at the end of bounded input the open windows fire.

After a restore at another parallelism, keys may come from old subtasks whose windows had fired further than this subtask's event
time. Until that has caught up, their rows are judged by their old subtask's progress, and nothing fires twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.layout import SLICE_END
from flowrun.operators.timed.assigners import AlignedSlices, SlidingSlices, Times
from flowrun.operators.timed.event_rows import LateRows, RowArrivals, RowIntake, split_rows
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.windows.aggregating_window import AggregatingWindowOperator
from flowrun.operators.windows.partials.partial_tables import PartialTables
from flowrun.operators.windows.progress import Progress
from flowrun.operators.windows.slices.factories import SliceWindowFactory
from flowrun.operators.windows.slices.firing import SliceFiring, windows_between
from flowrun.operators.windows.slices.rows import PartialRows, SliceRows, SourceRows
from flowrun.operators.windows.slices.store import SliceStore


def slice_windows(
    factory: SliceWindowFactory, engine: AggregationEngine, context: OperatorContext, output: Output, clock: FiringClock
) -> SliceWindows:
    """The open windows of one subtask, put together as a recipe says; `engine` has the recipe's layout."""
    store = SliceStore(engine)
    intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, factory.time_column)
    rows: SliceRows = (
        PartialRows(engine, factory)
        if factory.partial_input
        else SourceRows(engine, factory.assigner, factory.keys, RowArrivals(intake, clock))
    )
    lateness_ms = 0 if clock.is_processing else factory.allowed_lateness_ms
    return SliceWindows(
        factory.assigner,
        rows,
        LateSlices(factory.assigner, lateness_ms, rows, LateRows(context, output, factory.late_tag)),
        store,
        SliceFiring(engine, factory.assigner, store, factory.output_schema, lateness_ms),
        PartialTables(engine, context.max_parallelism, (SLICE_END,)),
        output,
    )


class LateSlices:
    """Which rows are late for their windows, and what becomes of them.

    Args:
        assigner: maps slices to windows.
        lateness_ms: how long after its end a window still takes rows.
        rows: counts dropped rows.
        late: where dropped rows go.
    """

    def __init__(self, assigner: AlignedSlices, lateness_ms: int, rows: SliceRows, late: LateRows) -> None:
        self.lateness_ms = lateness_ms
        self._assigner = assigner
        self._gaps = isinstance(assigner, SlidingSlices) and assigner.slide_ms > assigner.size_ms
        self._rows = rows
        self._late = late

    def possible(self, slice_ends: Times, fired: int) -> bool:
        """Whether any row of these slices may be late for a window, or in none."""
        return self._gaps or self._assigner.window_ends(int(slice_ends.min())).start - 1 <= fired

    def without_dropped(self, rows: RecordBatch, slice_ends: Times, fired: int) -> tuple[RecordBatch, Times]:
        """The rows that a window still takes, with their slices; the others are dropped."""
        last = self._assigner.last_window_end(slice_ends)
        closed = max(fired - self.lateness_ms, MIN_TIMESTAMP)
        late = last - 1 <= closed
        unwanted = late
        if self._gaps:
            outside = last < self._assigner.first_window_end(slice_ends)
            late = np.where(outside, slice_ends - 1 <= closed, late)
            unwanted = late | outside
        if late.any():
            dropped = rows.filter(pa.array(late))
            self._late.drop(dropped, self._rows.counted(dropped))
        if not unwanted.any():
            return rows, slice_ends
        return split_rows(rows, unwanted)[1], slice_ends[~unwanted]


class SliceWindows:
    """Open windows as slices, each part of the work done by an object of its own; see the module and `OpenWindows`.

    Args:
        assigner: maps slices to windows.
        rows: from rows to slices.
        late: drops late rows.
        store: the slices.
        firing: from slices to results.
        tables: the state.
        output: where results go.
    """

    def __init__(
        self,
        assigner: AlignedSlices,
        rows: SliceRows,
        late: LateSlices,
        store: SliceStore,
        firing: SliceFiring,
        tables: PartialTables,
        output: Output,
    ) -> None:
        self.fired = self._ahead = MIN_TIMESTAMP
        self.sequence = 0
        self.next_firing: int | None = None
        self._assigner = assigner
        self._rows = rows
        self._late = late
        self._store = store
        self._firing = firing
        self._tables = tables
        self._output = output
        self._next_cleanup: int | None = None

    # ---- state

    def restore(self, restored: OperatorSnapshot, progress: Progress, fired: int) -> None:
        """Take back slices; parts of keys whose windows had fired further stay apart until this subtask has caught up."""
        self.fired, self._ahead, self.sequence = fired, progress.most, progress.sequence
        for groups, part in self._tables.read_parts(restored):
            fired_of_rows = progress.fired_of(groups)
            for time in np.unique(fired_of_rows).tolist():
                for slice_end, own in part.with_rows(fired_of_rows == time).split_leading():
                    self._store.append_ahead(slice_end, own, time)
        self._store.settle(fired)
        self._plan()

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """References to the slices."""
        return self._store.snapshot(self._tables)

    # ---- rows

    @property
    def keys(self) -> tuple[int, ...]:
        """Positions of the key columns."""
        return self._rows.keys

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """(the rows that count, end of each one's slice, or one for all)."""
        return self._rows.arrive(batch)

    def take(self, rows: RecordBatch, places: Times, fired: int) -> None:
        """Fold rows, or merge partial results, into their slices."""
        if self._late.possible(places, fired):
            rows, places = self._late.without_dropped(rows, np.broadcast_to(places, rows.num_rows), fired)
            if rows.num_rows == 0:
                return
            if self._late.lateness_ms:
                for result in self._firing.updates(rows, places, self.sequence, fired):
                    self._output.emit(result)
        parts = self._rows.parts(rows.columns, places, self.sequence)
        self.sequence += rows.num_rows
        for slice_end, part in parts:
            if fired > self.fired:
                self._store.append_ahead(slice_end, part, fired)
            elif self._store.append(slice_end, part):
                self._plan_slice(slice_end)
            self._firing.invalidate(slice_end)
        if fired > self.fired:
            self._plan()

    # ---- time

    def advance(self, time: int) -> None:
        """Fire windows, and forget slices that none needs any more."""
        if time <= self.fired:
            return
        if self.next_firing is not None and self.next_firing - 1 <= time:
            for result in self._firing.fire(self.fired, time):
                self._output.emit(result)
            self.next_firing = self._firing.next_window(time)
        was_behind = self._ahead > self.fired
        self.fired = time
        if was_behind:
            self._store.settle(time)
        if self._next_cleanup is not None and self._next_cleanup + self._late.lateness_ms <= time:
            self._clean_up(time)

    def _clean_up(self, time: int) -> None:
        for slice_end in self._store.ends():
            if self._assigner.window_ends(slice_end)[-1] - 1 + self._late.lateness_ms <= time:
                self._store.remove(slice_end)
                self._firing.invalidate(slice_end)
        self._plan()

    def _plan(self) -> None:
        self.next_firing = self._firing.next_window(self.fired)
        lasts = (self._assigner.window_ends(s)[-1] - 1 for s, _ in self._store.items())
        self._next_cleanup = min(lasts, default=None)

    def _plan_slice(self, slice_end: int) -> None:
        ends = self._assigner.window_ends(slice_end)
        due = windows_between(self._assigner, slice_end, self.fired, ends.stop)
        if due and (self.next_firing is None or due.start < self.next_firing):
            self.next_firing = due.start
        if self._next_cleanup is None or ends[-1] - 1 < self._next_cleanup:
            self._next_cleanup = ends[-1] - 1


def slice_window_operator(factory: SliceWindowFactory) -> StreamOperator:
    """An `AggregatingWindowOperator` over `SliceWindows` that goes by the clocks of the windows' zone."""
    make_windows = partial(slice_windows, factory, AggregationEngine(factory.layout))
    return in_zone(AggregatingWindowOperator(factory.domain, make_windows), factory.time_zone)
