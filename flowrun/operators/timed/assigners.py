"""Aligned windows as slices: the pieces of time that overlapping windows share.

A slice is named by its end. Every row belongs to one slice; a window is the union of consecutive slices, so sliding windows of
size/slide overlap aggregate each row once. Slice length is gcd(size, slide); after Apache Flink's `SliceAssigners`, with windows
aligned to `offset_ms` since the epoch as in its `TimeWindow.getWindowStartWithOffset`, floored for times before 1970 too.

All times are int64 ms. Everything here is pure; values are frozen and pickle.
"""

from __future__ import annotations

import math
from typing import Protocol, TypeAlias

import numpy as np

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record

Times: TypeAlias = Integers


class SliceAssigner(Protocol):
    """Maps times to slices, and slices to the windows that they are part of. Slices and windows are named by their ends."""

    @property
    def slice_ms(self) -> int:
        """Length of a slice."""
        ...

    @property
    def slices_per_window(self) -> int:
        """The most slices that one window has."""
        ...

    def slice_ends(self, timestamps: Times) -> Times:
        """End of the slice of each time."""
        ...

    def first_window_end(self, slice_ends: Times) -> Times:
        """End of the first window that contains each slice."""
        ...

    def last_window_end(self, slice_ends: Times) -> Times:
        """End of the last window that contains each slice; before the first one's if no window contains the slice."""
        ...

    def window_ends(self, slice_end: int) -> range:
        """Ends of all windows that contain a slice, ascending."""
        ...

    def window_start(self, window_end: int) -> int:
        """Start of the window that ends at `window_end`."""
        ...

    def window_starts(self, window_ends: Times) -> Times:
        """Start of the window of each end."""
        ...


def check_session_gap(gap_ms: int) -> None:
    """Raise ValueError unless the gap of a session window is positive."""
    if gap_ms <= 0:
        raise ValueError(f"gap of a session window must be positive, not {gap_ms} ms")


def slices_of(assigner: SliceAssigner, times: Times) -> Times:
    """End of the slice of each of at least one time; a single value stands for all if they are of one slice.

    >>> slices_of(TumblingSlices(10), np.array([3, 5])).tolist(), slices_of(TumblingSlices(10), np.array([3, 15])).tolist()
    ([10], [10, 20])
    """
    bounds = assigner.slice_ends(np.array([times.min(), times.max()]))
    return bounds[:1] if bounds[0] == bounds[1] else assigner.slice_ends(times)


def _floor_to(times: Times, size: int, offset: int) -> Times:
    floored: Times = times - np.mod(times - offset, size)
    return floored


def _require(positive: dict[str, int]) -> None:
    for name, value in positive.items():
        if value <= 0:
            raise ValueError(f"{name} of a window must be positive, not {value} ms")


@record
class TumblingSlices:
    """Windows of `size_ms`, back to back: one slice a window.

    >>> TumblingSlices(10).slice_ends(np.array([-1, 0, 9, 10])).tolist()
    [0, 10, 10, 20]
    """

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _require({"size": self.size_ms})

    @property
    def slice_ms(self) -> int:
        """The window's size."""
        return self.size_ms

    @property
    def slices_per_window(self) -> int:
        """One."""
        return 1

    def slice_ends(self, timestamps: Times) -> Times:
        """End of the window of each time."""
        return _floor_to(timestamps, self.size_ms, self.offset_ms) + self.size_ms

    def first_window_end(self, slice_ends: Times) -> Times:
        """The slice's own end."""
        return slice_ends

    def last_window_end(self, slice_ends: Times) -> Times:
        """The slice's own end."""
        return slice_ends

    def window_ends(self, slice_end: int) -> range:
        """The slice's own end."""
        return range(slice_end, slice_end + 1)

    def window_start(self, window_end: int) -> int:
        """Start of the window."""
        return window_end - self.size_ms

    def window_starts(self, window_ends: Times) -> Times:
        """Start of each window."""
        return window_ends - self.size_ms


@record
class SlidingSlices:
    """Windows of `size_ms`, one every `slide_ms`; a slide longer than the size leaves times that belong to no window.

    >>> hop = SlidingSlices(size_ms=10, slide_ms=5)
    >>> hop.slice_ends(np.array([-1, 0, 7])).tolist(), list(hop.window_ends(5))
    ([0, 5, 10], [5, 10])
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _require({"size": self.size_ms, "slide": self.slide_ms})

    @property
    def slice_ms(self) -> int:
        """gcd(size, slide)."""
        return math.gcd(self.size_ms, self.slide_ms)

    @property
    def slices_per_window(self) -> int:
        """Size over slice."""
        return self.size_ms // self.slice_ms

    def slice_ends(self, timestamps: Times) -> Times:
        """End of the slice of each time."""
        return _floor_to(timestamps, self.slice_ms, self.offset_ms) + self.slice_ms

    def first_window_end(self, slice_ends: Times) -> Times:
        """The first window end at or after the slice's."""
        ends: Times = slice_ends + np.mod(self.offset_ms + self.size_ms - slice_ends, self.slide_ms)
        return ends

    def last_window_end(self, slice_ends: Times) -> Times:
        """The last window end whose window starts at or before the slice."""
        latest = slice_ends - self.slice_ms + self.size_ms
        return _floor_to(latest, self.slide_ms, self.offset_ms + self.size_ms)

    def window_ends(self, slice_end: int) -> range:
        """Ends of the windows over the slice."""
        first = slice_end + (self.offset_ms + self.size_ms - slice_end) % self.slide_ms
        return range(first, slice_end - self.slice_ms + self.size_ms + 1, self.slide_ms)

    def window_start(self, window_end: int) -> int:
        """Start of the window."""
        return window_end - self.size_ms

    def window_starts(self, window_ends: Times) -> Times:
        """Start of each window."""
        return window_ends - self.size_ms


@record
class CumulativeSlices:
    """Windows of `size_ms` that also fire every `step_ms` with what came so far: [start, start + k · step) for each k.

    >>> steps = CumulativeSlices(size_ms=30, step_ms=10)
    >>> list(steps.window_ends(20)), steps.window_start(20)
    ([20, 30], 0)

    Raises:
        ValueError: the step does not divide the size.
    """

    size_ms: int
    step_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _require({"size": self.size_ms, "step": self.step_ms})
        if self.size_ms % self.step_ms:
            raise ValueError(f"step {self.step_ms} ms of a cumulative window must divide its size {self.size_ms} ms")

    @property
    def slice_ms(self) -> int:
        """The step."""
        return self.step_ms

    @property
    def slices_per_window(self) -> int:
        """Steps of the full window."""
        return self.size_ms // self.step_ms

    def slice_ends(self, timestamps: Times) -> Times:
        """End of the step of each time."""
        return _floor_to(timestamps, self.step_ms, self.offset_ms) + self.step_ms

    def first_window_end(self, slice_ends: Times) -> Times:
        """The step's own end."""
        return slice_ends

    def last_window_end(self, slice_ends: Times) -> Times:
        """End of the full window."""
        return _floor_to(slice_ends - 1, self.size_ms, self.offset_ms) + self.size_ms

    def window_ends(self, slice_end: int) -> range:
        """From the step's own end to the full window's."""
        return range(slice_end, self.window_start(slice_end) + self.size_ms + 1, self.step_ms)

    def window_start(self, window_end: int) -> int:
        """Start of the full window that the step belongs to."""
        return window_end - 1 - (window_end - 1 - self.offset_ms) % self.size_ms

    def window_starts(self, window_ends: Times) -> Times:
        """Start of the full window of each step."""
        return _floor_to(window_ends - 1, self.size_ms, self.offset_ms)


AlignedSlices: TypeAlias = TumblingSlices | SlidingSlices | CumulativeSlices


@record
class Assignment:
    """Pairs of a row and a window: `rows` are positions in the batch."""

    rows: Times
    starts: Times
    ends: Times

    def filter(self, keep: Bools) -> Assignment:
        """Some of the pairs."""
        return self if keep.all() else Assignment(self.rows[keep], self.starts[keep], self.ends[keep])


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
