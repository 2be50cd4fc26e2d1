"""Which windows are due, and their results from the slices."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.timed.assigners import AlignedSlices, Times
from flowrun.operators.timed.event_rows import MAX_OUTPUT_ROWS
from flowrun.operators.windows.results import result_batches
from flowrun.operators.windows.slices.store import SliceStore
from flowrun.operators.windows.slices.tree import MIN_SLICES, SliceTree
from flowrun.operators.windows.slices.updates import late_updates

_WINDOW = "window_end"
_WORTH_COMPACTING = 1024


def windows_between(assigner: AlignedSlices, slice_end: int, after: int, until: int) -> range:
    """Ends of the windows over a slice that fire in the event-time interval (after, until], ascending.

    >>> from flowrun.operators.timed.assigners import SlidingSlices
    >>> list(windows_between(SlidingSlices(20, 5), 5, after=8, until=14))
    [10, 15]
    """
    ends = assigner.window_ends(slice_end)
    skipped = max(0, -(-(after + 2 - ends.start) // ends.step))
    return range(ends.start + skipped * ends.step, min(ends.stop, until + 2), ends.step)


class SliceFiring:
    """Merges slices into windows and finishes them, in order of window end."""

    def __init__(
        self,
        engine: AggregationEngine,
        assigner: AlignedSlices,
        store: SliceStore,
        schema: Schema,
        lateness_ms: int,
    ) -> None:
        self._engine = engine
        self._assigner = assigner
        self._store = store
        self._schema = schema
        self._lateness_ms = lateness_ms
        self._keeps_slices = lateness_ms > 0 or assigner.slices_per_window > 1
        self._tree = SliceTree(store, engine, assigner.slice_ms, assigner.offset_ms)

    def invalidate(self, slice_end: int) -> None:
        """A slice changed or is gone."""
        self._tree.invalidate(slice_end)

    def next_window(self, after: int) -> int | None:
        """End of the first window over an open slice that fires after event time `after`."""
        firsts = (
            windows_between(self._assigner, s, after, self._assigner.window_ends(s).stop)
            for s, _ in self._store.items()
        )
        return min((ends.start for ends in firsts if ends), default=None)

    def fire(self, after: int, until: int) -> Iterator[RecordBatch]:
        """Results of all windows that fire in (after, until], in order of their ends."""
        opened = self._store.ends()
        due = sorted({e for s in opened for e in windows_between(self._assigner, s, after, until)})
        shared = not self._store.has_ahead and self._assigner.slices_per_window >= MIN_SLICES
        packed: list[Bundle] = []
        ends: list[int] = []
        rows = 0
        for end in due:
            parts = self._parts(opened, end, shared=shared)
            own = sum(p.num_rows for p in parts)
            if own == 0:
                continue
            if packed and rows + own > MAX_OUTPUT_ROWS:
                yield from self._finish_packed(packed, ends)
                packed, ends, rows = [], [], 0
            if own > MAX_OUTPUT_ROWS:
                merged = self._merge(parts)
                yield from self.results(merged, np.full(merged.main.num_rows, end, np.int64))
            else:
                packed.extend(p.with_leading(_WINDOW, len(ends)) for p in parts)
                ends.append(end)
                rows += own
        if packed:
            yield from self._finish_packed(packed, ends)

    def updates(self, rows: RecordBatch, slice_ends: Times, sequence: int, fired: int) -> Iterator[RecordBatch]:
        """Updated results of windows that had fired up to time `fired`, for each late row of a batch that is not stored yet."""
        late = self._assigner.first_window_end(slice_ends) - 1 <= fired
        if not late.any():
            return
        columns, ends = rows.filter(pa.array(late)).columns, slice_ends[late]
        accepting = range(fired - self._lateness_ms + 2, fired + 2)
        lowest = self._assigner.window_start(int(self._assigner.first_window_end(ends).min()))
        stored = [(s, part) for s, found in self._store.items() if lowest < s <= fired + 1 for part in found.parts()]
        updated = late_updates(self._engine, self._assigner, stored, columns, ends, sequence, accepting)
        for merged, window_ends in updated:
            yield from self.results(merged, window_ends)

    def results(self, merged: Bundle, window_ends: Times) -> Iterator[RecordBatch]:
        """Result rows of a merged bundle, whose last group columns are the keys, with the window of each of its rows."""
        keys = self._engine.decode_keys(merged.keys[-len(self._engine.key_names) :])
        starts = self._assigner.window_starts(window_ends)
        return result_batches(self._schema, keys, starts, window_ends, self._engine.finish(merged))

    def _parts(self, opened: Sequence[int], end: int, *, shared: bool) -> list[Bundle]:
        start = self._assigner.window_start(end)
        if shared:
            return self._tree.parts(start, end)
        parts: list[Bundle] = []
        for slice_end in opened[bisect.bisect_right(opened, start) : bisect.bisect_right(opened, end)]:
            found = self._store[slice_end]
            if self._keeps_slices and found.unmerged_rows > _WORTH_COMPACTING:
                found.compact(self._engine)
            parts.extend(found.parts(end - 1))
        return parts

    def _finish_packed(self, packed: list[Bundle], ends: list[int]) -> Iterator[RecordBatch]:
        """Results of several windows at once; the first group column is the window's position in `ends`."""
        merged = self._merge(packed).ordered_by_leading()
        numbers = merged.main.column(0).to_numpy()
        return self.results(merged, np.array(ends, np.int64)[numbers])

    def _merge(self, parts: list[Bundle]) -> Bundle:
        one_slice = self._assigner.slices_per_window == 1
        return self._engine.merge(concat_bundles(parts), in_arrival_order=one_slice)
