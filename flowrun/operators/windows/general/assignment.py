"""Windows of the general operator: the one that never ends, sessions that merge, and when a window is forgotten."""

from __future__ import annotations

import numpy as np

from flowrun.api.window_function import Window
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.operators.timed.assigners import AlignedSlices, Assignment, Times, assign_aligned
from flowrun.operators.windows.general.assigners import GlobalAssigner

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


def merge_sessions(windows: list[Window], added: Window) -> tuple[Window, list[Window]]:
    """(the window that `added` becomes, those of the key's windows that it covers): windows that touch are one.

    >>> merge_sessions([Window(0, 10), Window(30, 40)], Window(10, 20))
    (Window(start=0, end=20), [Window(start=0, end=10)])
    """
    touching = [w for w in windows if w.start <= added.end and added.start <= w.end]
    merged = Window(min([added.start, *(w.start for w in touching)]), max([added.end, *(w.end for w in touching)]))
    return merged, touching
