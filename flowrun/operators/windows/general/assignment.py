"""Windows of the general operator: the one that never ends, sessions that merge, and when a window is forgotten."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from flowrun.api.window_function import Window
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.operators.timed.assigners import AlignedSlices, Assignment, Times, assign_aligned
from flowrun.operators.windows.general.factories import GlobalAssigner, SessionAssigner
from flowrun.operators.windows.general.user_assigners import CustomAssigner

_end = attrgetter("end")
EVER = Window(MIN_TIMESTAMP, MAX_TIMESTAMP)


def assign_ever(rows: int) -> Assignment:
    """All rows to the global window."""
    return Assignment(np.arange(rows), np.full(rows, EVER.start, np.int64), np.full(rows, EVER.end, np.int64))


Assign: TypeAlias = Callable[[pa.RecordBatch, Times], Assignment]
"""(rows, time of each) → their windows, of one row after the other; of windows that merge, as they are before that."""


def assigning(
    assigner: AlignedSlices | GlobalAssigner | SessionAssigner | CustomAssigner,
    now: Callable[[], int],
    watermark: Callable[[], int],
) -> Assign:
    """What an assigner does in a subtask; `now` and `watermark` tell users' assigners the time."""
    match assigner:
        case GlobalAssigner():
            return lambda _, times: assign_ever(len(times))
        case SessionAssigner(gap_ms=gap_ms):
            return lambda _, times: Assignment(np.arange(len(times)), times, times + gap_ms)
        case CustomAssigner():
            return assigner.loaded(now, watermark).assign
        case _:
            return lambda _, times: assign_aligned(assigner, times)


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
