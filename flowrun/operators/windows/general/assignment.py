"""Which windows rows belong to, and which rows are too late for all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.record import record
from flowrun.operators.timed.assigners import AlignedSlices, CumulativeSlices, SlidingSlices, Times
from flowrun.operators.windows.general.trigger_contract import Window

Integers = npt.NDArray[np.int64]

EVER = Window(MIN_TIMESTAMP, MAX_TIMESTAMP)


@record
class Assignment:
    """Pairs of a row and a window: `rows` are positions in the batch."""

    rows: Integers
    starts: Integers
    ends: Integers

    def filter(self, keep: npt.NDArray[np.bool_]) -> Assignment:
        """Some of the pairs."""
        return self if keep.all() else Assignment(self.rows[keep], self.starts[keep], self.ends[keep])


def assign_ever(rows: int) -> Assignment:
    """All rows to the global window."""
    return Assignment(np.arange(rows), np.full(rows, EVER.start, np.int64), np.full(rows, EVER.end, np.int64))


def assign_aligned(assigner: AlignedSlices, times: Times) -> Assignment:
    """All windows of each time, from the latest end to the earliest.

    >>> pairs = assign_aligned(SlidingSlices(10, 5), np.array([7]))
    >>> pairs.starts.tolist(), pairs.ends.tolist()
    ([5, 0], [15, 10])
    """
    step = _step(assigner)
    slices = assigner.slice_ends(times)
    last = assigner.last_window_end(slices)
    counts = np.maximum((last - assigner.first_window_end(slices)) // step + 1, 0)
    rows = np.repeat(np.arange(len(times)), counts)
    before = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = last[rows] - before * step
    return Assignment(rows, assigner.window_starts(ends), ends)


def _step(assigner: AlignedSlices) -> int:
    match assigner:
        case SlidingSlices():
            return assigner.slide_ms
        case CumulativeSlices():
            return assigner.step_ms
        case _:
            return assigner.size_ms


def closed_before(watermarks: Integers, lateness_ms: int) -> Integers:
    """The last time whose windows are cleaned up, for each watermark: watermark − lateness, within the limits of time."""
    closed = np.maximum(watermarks, MIN_TIMESTAMP + lateness_ms) - lateness_ms
    final: Integers = np.where(watermarks == MAX_TIMESTAMP, MAX_TIMESTAMP, closed)
    return final


def cleanup_time(window: Window, lateness_ms: int) -> int:
    """When a window and its rows are forgotten, ms: its last time plus the lateness, at most the end of time."""
    return min(window.max_timestamp + lateness_ms, MAX_TIMESTAMP)


def merge_sessions(windows: list[Window], added: Window) -> tuple[Window, list[Window]]:
    """(the window that `added` becomes, those of the key's windows that it covers): windows that touch are one.

    >>> merge_sessions([Window(0, 10), Window(30, 40)], Window(10, 20))
    (Window(start=0, end=20), [Window(start=0, end=10)])
    """
    touching = [w for w in windows if w.start <= added.end and added.start <= w.end]
    merged = Window(min([added.start, *(w.start for w in touching)]), max([added.end, *(w.end for w in touching)]))
    return merged, touching
