"""Reductions over many overlapping frames of one sequence at once, each in O(n log n) whatever the frames' lengths.

A frame is a range of positions, both ends inclusive; an empty one ends before it starts. Sums of integers go by prefix sums, which are
exact modulo 2^64. Floats are never subtracted: a frame is added up from blocks of power-of-two length, and frames that only grow are added
up in order. Extremes take two overlapping blocks of a sparse table (Bender & Farach-Colton, "The LCA Problem Revisited", 2000).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flowrun.core.arrays import Bools, Floats, Integers
from flowrun.core.record import record
from flowrun.operators.keyed.integers import ranges

_LONG = 64


@record
class Frames:
    """The frames of some rows of a sequence.

    Attributes:
        low: first position of each frame.
        high: last position.
        growing: for frames that begin where their partition does: where partitions begin in the sequence; else None.
    """

    low: Integers
    high: Integers
    growing: Integers | None = None

    def __len__(self) -> int:
        return len(self.low)

    @property
    def lengths(self) -> Integers:
        """Number of rows in each frame."""
        lengths: Integers = np.maximum(self.high - self.low + 1, 0)
        return lengths

    def part(self, start: int, stop: int) -> Frames:
        """Some of the frames."""
        return Frames(self.low[start:stop], self.high[start:stop], self.growing)


def exact_sums(values: npt.NDArray[Any], frames: Frames) -> npt.NDArray[Any]:
    """Sums of int64 (modulo 2^64) or of Python integers.

    >>> exact_sums(np.array([1, 2, 3]), Frames(np.array([0, 1]), np.array([1, 2]))).tolist()
    [3, 5]
    """
    prefix = np.zeros(len(values) + 1, values.dtype)
    with np.errstate(over="ignore"):
        np.cumsum(values, out=prefix[1:])
        sums: npt.NDArray[Any] = prefix[np.maximum(frames.high + 1, frames.low)] - prefix[frames.low]
    return sums


def float_sums(values: Floats, frames: Frames) -> Floats:
    """Sums of floats without cancellation.

    >>> float_sums(np.array([1e30, 1.0, 2.0]), Frames(np.array([0, 1]), np.array([1, 2]))).tolist()
    [1e+30, 3.0]
    """
    if frames.growing is not None:
        running = _running_sums(values, frames.growing)
        empty = frames.high < frames.low
        sums: Floats = (
            np.where(empty, 0.0, running[np.maximum(frames.high, 0)]) if len(values) else np.zeros(len(frames))
        )
        return sums
    sums = np.zeros(len(frames))
    lengths, at = frames.lengths, frames.low.copy()
    table, step = values, 1
    while len(lengths) and lengths.max() > 0:
        odd = np.flatnonzero(lengths & 1)
        sums[odd] += table[at[odd]]
        at[odd] += step
        lengths = lengths >> 1
        if len(table) <= step:
            break
        table = table[:-step] + table[step:]
        step *= 2
    return sums


def _running_sums(values: Floats, starts: Integers) -> Floats:
    """Sums from the start of each partition up to each position, added in order: independent of how rows were cut into batches."""
    sums = values.astype(np.float64)
    lengths = np.diff(np.append(starts, len(values)))
    for start, length in zip(starts[lengths > _LONG].tolist(), lengths[lengths > _LONG].tolist(), strict=True):
        sums[start : start + length] = np.cumsum(values[start : start + length])
    short = lengths <= _LONG
    starts, lengths = starts[short], lengths[short]
    for place in range(1, int(lengths.max(initial=0))):
        more = lengths > place
        starts, lengths = starts[more], lengths[more]
        sums[starts + place] += sums[starts + place - 1]
    return sums


def extremes(values: Integers, frames: Frames, *, greatest: bool) -> Integers:
    """The least or greatest value of each frame; of an empty one anything.

    >>> extremes(np.array([3, 1, 2]), Frames(np.array([0, 1]), np.array([1, 2])), greatest=True).tolist()
    [3, 2]
    """
    choose = np.maximum if greatest else np.minimum
    found = np.zeros(len(frames), np.int64)
    lengths = frames.lengths
    if not lengths.any():
        return found
    levels = np.frexp(lengths.astype(np.float64))[1] - 1  # floor(log2); −1 of 0
    table, step = values, 1
    for level in range(int(levels.max()) + 1):
        here = np.flatnonzero(levels == level)
        if len(here):
            found[here] = choose(table[frames.low[here]], table[frames.high[here] - step + 1])
        if len(table) > step:
            table = choose(table[:-step], table[step:])
        step *= 2
    return found


def nearest(valid: Bools, frames: Frames, *, last: bool) -> Integers:
    """The position of the first, or last, valid row of each frame; −1 if there is none."""
    size = len(valid)
    positions = np.arange(size)
    if size == 0:
        return np.full(len(frames), -1, np.int64)
    if last:
        at = np.maximum.accumulate(np.where(valid, positions, -1))
        found = np.where(frames.high >= 0, at[np.maximum(frames.high, 0)], -1)
        return np.where(found >= frames.low, found, -1)
    at = np.minimum.accumulate(np.where(valid, positions, size)[::-1])[::-1]
    found = np.where(frames.low < size, at[np.minimum(frames.low, size - 1)], size)
    return np.where(found <= frames.high, found, -1)


def first_occurrences(previous: Integers, frames: Frames) -> tuple[Integers, Integers]:
    """For each position the frames, from one up to but without another, in which it is the first of its value.

    Args:
        previous: by position, where the same value stood before in the partition; −1: nowhere.
        frames: low and high never decrease.
    """
    positions = np.arange(len(previous))
    holds = np.searchsorted(frames.high, positions, side="left")
    alone = np.searchsorted(frames.low, previous, side="right")
    stop = np.searchsorted(frames.low, positions, side="right")
    start = np.maximum(holds, alone)
    return start, np.maximum(stop, start)


def covering_sums(values: npt.NDArray[Any], start: Integers, stop: Integers, frames: int) -> npt.NDArray[Any]:
    """For each frame the sum of the values whose range of frames it is in."""
    change = np.zeros(frames + 1, values.dtype)
    with np.errstate(over="ignore"):
        np.add.at(change, start, values)
        np.subtract.at(change, stop, values)
        sums: npt.NDArray[Any] = np.cumsum(change[:frames])
    return sums


def covering_greatest(start: Integers, stop: Integers, frames: int) -> Integers:
    """For each frame the last position whose range of frames it is in; −1 if there is none.

    A range is two overlapping blocks of power-of-two length, which are halved down to single frames: `extremes` the other way round.

    >>> covering_greatest(np.array([0, 1, 3]), np.array([4, 3, 3]), 5).tolist()
    [0, 1, 1, 0, -1]
    """
    positions = np.flatnonzero(stop > start)
    first, lengths = start[positions], (stop - start)[positions]
    levels = np.frexp(lengths.astype(np.float64))[1] - 1  # floor(log2)
    found = np.full(frames, -1, np.int64)
    highest = int(levels.max(initial=0))
    for level in range(highest, -1, -1):
        size = 1 << level
        if level < highest:
            found[size:] = np.maximum(found[size:], found[:-size])
        here = levels == level
        np.maximum.at(found, first[here], positions[here])
        np.maximum.at(found, first[here] + lengths[here] - size, positions[here])
    return found


def members(frames: Frames) -> tuple[Integers, Integers]:
    """(frame, position) of every row of every frame: as long as all frames together."""
    lengths = frames.lengths
    return np.repeat(np.arange(len(frames)), lengths), ranges(frames.low, lengths)
