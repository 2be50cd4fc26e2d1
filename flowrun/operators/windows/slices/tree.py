"""Merged runs of slices for windows of many slices, so that consecutive sliding windows do not merge everything again.

A run is 2^level slices aligned to 2^level; it is merged from its two halves on first use and kept while its slices are. A window
of n slices is made of at most 2 · log2(n) runs, and each slice enters one merge per level: the segment tree of Tangwongsan et al.,
"General Incremental Sliding-Window Aggregation" (2015), built lazily.
"""

from __future__ import annotations

from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.windows.slices.store import SliceStore

MIN_SLICES = 8
"""Windows of fewer slices are merged directly."""


class SliceTree:
    """Merged runs over a `SliceStore`; `slice_ms` and `offset_ms` number the slices."""

    def __init__(self, store: SliceStore, engine: AggregationEngine, slice_ms: int, offset_ms: int) -> None:
        self._store = store
        self._engine = engine
        self._slice_ms = slice_ms
        self._offset_ms = offset_ms
        self._runs: dict[tuple[int, int], Bundle | None] = {}
        self._levels = 0

    def parts(self, start_ms: int, end_ms: int) -> list[Bundle]:
        """Bundles that together hold the slices of the window [start, end)."""
        low, high = self._number(start_ms), self._number(end_ms)
        parts: list[Bundle] = []
        while low < high:
            level = 0
            while low % (2 << level) == 0 and low + (2 << level) <= high:
                level += 1
            run = self._run(level, low >> level)
            if run is not None:
                parts.append(run)
            low += 1 << level
        return parts

    def invalidate(self, slice_end: int) -> None:
        """The slice changed or is gone."""
        if not self._runs:
            return
        number = self._number(slice_end) - 1
        for level in range(1, self._levels + 1):
            self._runs.pop((level, number >> level), None)

    def _number(self, time_ms: int) -> int:
        return (time_ms - self._offset_ms) // self._slice_ms

    def _run(self, level: int, index: int) -> Bundle | None:
        if level == 0:
            end = (index + 1) * self._slice_ms + self._offset_ms
            if end not in self._store:
                return None
            found = self._store[end]
            found.compact(self._engine)
            return found.merged
        if (level, index) not in self._runs:
            halves = [self._run(level - 1, 2 * index), self._run(level - 1, 2 * index + 1)]
            filled = [h for h in halves if h is not None]
            run = None if not filled else filled[0]
            if len(filled) == 2:
                run = self._engine.merge(concat_bundles(filled))
            self._runs[level, index] = run
            self._levels = max(self._levels, level)
        return self._runs[level, index]
