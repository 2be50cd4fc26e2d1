"""Windows of the general operator: the one that never ends, sessions that merge, and when a window is forgotten."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

import numpy as np

from flowrun.api.window_function import Window
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.operators.timed.assigners import AlignedSlices, Assignment, Times, assign_aligned
from flowrun.operators.windows.general.assigners import GlobalAssigner

_end = attrgetter("end")
EVER = Window(MIN_TIMESTAMP, MAX_TIMESTAMP)


def assign_ever(rows: int) -> Assignment:
    """All rows to the global window."""
    return Assignment(np.arange(rows), np.full(rows, EVER.start, np.int64), np.full(rows, EVER.end, np.int64))


def assigned(assigner: AlignedSlices | GlobalAssigner, times: Times) -> Assignment:
    """The windows of rows that do not merge."""
    return assign_ever(len(times)) if isinstance(assigner, GlobalAssigner) else assign_aligned(assigner, times)


def closed_before(watermarks: Integers, lateness_ms: int) -> Integers:
    """The last time whose windows are cleaned up, for each watermark: watermark − lateness, within the limits of time."""
    closed = np.maximum(watermarks, MIN_TIMESTAMP + lateness_ms) - lateness_ms
    final: Integers = np.where(watermarks == MAX_TIMESTAMP, MAX_TIMESTAMP, closed)
    return final


def cleanup_time(window: Window, lateness_ms: int) -> int:
    """When a window and its rows are forgotten, ms: its last time plus the lateness, at most the end of time."""
    return min(window.max_timestamp + lateness_ms, MAX_TIMESTAMP)


def merge_sessions(windows: list[Window], added: Window) -> tuple[Window, slice]:
    """(the window that `added` becomes, which of the key's windows it covers): windows that touch are one.

    Args:
        windows: of one key, in order; none touches another.
        added: the window of one row.

    >>> merge_sessions([Window(0, 10), Window(30, 40)], Window(10, 20))
    (Window(start=0, end=20), slice(0, 1, None))
    """
    begin = end = bisect_left(windows, added.start, key=_end)
    while end < len(windows) and windows[end].start <= added.end:
        end += 1
    if begin < end:
        added = Window(min(added.start, windows[begin].start), max(added.end, windows[end - 1].end))
    return added, slice(begin, end)
