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
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch
from flowrun.operators.aggregation.layout import SLICE_END
from flowrun.operators.aggregation.reduction import ReductionSampler
from flowrun.operators.timed.assigners import SlidingSlices, Times, slices_of
from flowrun.operators.timed.event_rows import split_rows
from flowrun.operators.windows.aggregating_window import AggregatingWindowOperator
from flowrun.operators.windows.slices.firing import SliceFiring, windows_between
from flowrun.operators.windows.slices.store import SliceNumbers, SliceStore
from flowrun.operators.windows.slices.updates import late_updates

if TYPE_CHECKING:
    from flowrun.operators.windows.slices.factories import SliceWindowFactory

_PINNED_BYTES = 64 * 1024


class SliceWindowOperator(AggregatingWindowOperator):
    """Aggregates by key and aligned window; see the module."""

    _factory: SliceWindowFactory

    def __init__(self, factory: SliceWindowFactory) -> None:
        super().__init__(factory, (SLICE_END,))
        self._assigner = factory.assigner
        self._store = SliceStore(self._engine)
        self._firing = SliceFiring(
            self._engine, self._assigner, self._store, factory.output_schema, keeps_slices=self._lateness > 0
        )
        self._gaps = isinstance(self._assigner, SlidingSlices) and self._assigner.slide_ms > self._assigner.size_ms
        self._keys = tuple(range(len(factory.keys))) if factory.partial_input else factory.keys
        self._sampler = ReductionSampler()
        self._next_cleanup: int | None = None

    # ---- state

    def _restore_windows(self, restored: OperatorSnapshot) -> None:
        for groups, part in self._tables.read_parts(restored):
            fired = self._progress.fired_of(groups)
            for time in np.unique(fired).tolist():
                for slice_end, own in part.with_rows(fired == time).split_leading():
                    self._store.append_ahead(slice_end, own, time)
        self._store.settle(self._fired)

    def _state(self) -> Mapping[str, SegmentedTable]:
        return self._store.snapshot(self._tables)

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Fold rows, or merge partial results, into their slices; drop late ones, update fired windows within the allowed lateness."""
        if self._processing or not self._factory.partial_input:
            super().process_batch(batch, input_index)
            return
        slice_ends: Times = batch.columns.column(len(self._keys)).view(pa.int64()).to_numpy()
        self._process_by_progress(batch, slice_ends, self._keys)

    def _placed(self, times: Times) -> Times:
        """Slice of each time; one value stands for all if there is only one slice."""
        return slices_of(self._assigner, times)

    def _process_rows(self, batch: RecordBatch, slice_ends: Times, fired: int) -> None:
        """Take rows whose keys' windows have fired up to event time `fired`."""
        lowest = int(slice_ends.min())
        if self._gaps or self._assigner.window_ends(lowest).start - 1 <= fired:
            slice_ends = np.broadcast_to(slice_ends, batch.num_rows)
            batch, slice_ends = self._without_dropped(batch, slice_ends, fired)
            if batch.num_rows == 0:
                return
            if self._lateness:
                self._update_fired(batch, slice_ends, fired)
        self._append(batch.columns, slice_ends, fired)

    def _without_dropped(self, batch: RecordBatch, slice_ends: Times, fired: int) -> tuple[RecordBatch, Times]:
        last = self._assigner.last_window_end(slice_ends)
        closed = max(fired - self._lateness, MIN_TIMESTAMP)
        late = last - 1 <= closed
        if self._gaps:
            outside = last < self._assigner.first_window_end(slice_ends)
            late = np.where(outside, slice_ends - 1 <= closed, late)
            unwanted = late | outside
        else:
            unwanted = late
        if late.any():
            rows = batch.filter(pa.array(late))
            counted = self._factory.layout.row_count if self._factory.partial_input else None
            count = None if counted is None else int(pc.sum(rows.columns.column(counted)).as_py())
            self._late.drop(rows, count)
        if not unwanted.any():
            return batch, slice_ends
        return split_rows(batch, unwanted)[1], slice_ends[~unwanted]

    def _update_fired(self, batch: RecordBatch, slice_ends: Times, fired: int) -> None:
        """Emit the updated results of fired windows, row by row."""
        late = self._assigner.first_window_end(slice_ends) - 1 <= fired
        if not late.any():
            return
        rows, ends = batch.filter(pa.array(late)).columns, slice_ends[late]
        accepting = range(fired - self._lateness + 2, fired + 2)
        lowest = self._assigner.window_start(int(self._assigner.first_window_end(ends).min()))
        stored = [(s, part) for s, found in self._store.items() if lowest < s <= fired + 1 for part in found.parts()]
        for merged, window_ends in late_updates(
            self._engine, self._assigner, stored, rows, ends, self._sequence, accepting
        ):
            for result in self._firing.results(merged, window_ends):
                self.output.emit(result)

    def _append(self, columns: pa.RecordBatch, slice_ends: Times, fired: int) -> None:
        rows = columns.num_rows
        numbers = SliceNumbers.of(slice_ends, self._assigner.slice_ms)
        reduce = not self._factory.partial_input and self._sampler.worthwhile(rows)
        if self._factory.partial_input:
            key_count = len(self._keys)
            part = self._engine.bundle_of(
                columns.columns[:key_count], columns.columns[key_count + 1 :], rows, leading=numbers.leading
            )
        else:
            part = self._engine.lift(columns, self._sequence, leading=numbers.leading, reduce=reduce)
        self._sequence += rows
        if reduce:
            self._sampler.observe(rows, part.main.num_rows)
        for slice_end, own in numbers.split(part):
            kept = own if reduce else own.unpinned(_PINNED_BYTES)
            if fired > self._fired:
                self._store.append_ahead(slice_end, kept, fired)
            elif self._store.append(slice_end, kept):
                self._plan_slice(slice_end)
            self._firing.invalidate(slice_end)
        if fired > self._fired:
            self._plan_next()

    # ---- time

    def _advance(self, time: int) -> None:
        """Fire and clean up: this subtask's time is `time` now."""
        if time <= self._fired:
            return
        if self._next_firing is not None and self._next_firing - 1 <= time:
            for result in self._firing.fire(self._fired, time):
                self.output.emit(result)
            self._next_firing = self._firing.next_window(time)
        caught_up = self._progress.most > self._fired
        self._fired = time
        if caught_up:
            self._store.settle(time)
        if self._next_cleanup is not None and self._next_cleanup + self._lateness <= time:
            self._clean_up(time)

    def _clean_up(self, time: int) -> None:
        for slice_end in self._store.ends():
            if self._assigner.window_ends(slice_end)[-1] - 1 + self._lateness <= time:
                self._store.remove(slice_end)
                self._firing.invalidate(slice_end)
        self._plan_next()

    def _plan_next(self) -> None:
        self._next_firing = self._firing.next_window(self._fired)
        lasts = (self._assigner.window_ends(s)[-1] - 1 for s, _ in self._store.items())
        self._next_cleanup = min(lasts, default=None)

    def _plan_slice(self, slice_end: int) -> None:
        ends = self._assigner.window_ends(slice_end)
        due = windows_between(self._assigner, slice_end, self._fired, ends.stop)
        if due and (self._next_firing is None or due.start < self._next_firing):
            self._next_firing = due.start
        if self._next_cleanup is None or ends[-1] - 1 < self._next_cleanup:
            self._next_cleanup = ends[-1] - 1
