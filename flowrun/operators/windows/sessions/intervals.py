"""Intervals of sessions: rows to runs, and runs with stored sessions to merged sessions. Pure functions over arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.record import record
from flowrun.operators.aggregation.dense import Slots
from flowrun.operators.timed.assigners import Times

_SMALL = 1 << 16


@record
class Intervals:
    """Intervals [start, end) of owners (keys by position), one per element."""

    owners: Slots
    starts: Times
    ends: Times


@record
class MergedIntervals:
    """Groups of intervals of one owner that overlap or touch, ordered by owner and start.

    Attributes:
        group: group of each given interval.
        whole: one interval a group.
    """

    group: Slots
    whole: Intervals


def end_of(times: Times, gap_ms: int) -> Times:
    """Time + gap, stopping at the greatest time."""
    ends: Times = np.minimum(times, MAX_TIMESTAMP - gap_ms) + gap_ms
    return ends


def order_of(owners: Slots, times: Times) -> Slots:
    """Positions by owner, then time, then position.

    Owners are small numbers, so two stable sorts that NumPy does by radix or on presorted data beat a lexicographic one.
    """
    small = owners.astype(np.uint16) if len(owners) == 0 or owners.max() < _SMALL else owners
    if (times[1:] >= times[:-1]).all():
        return np.argsort(small, kind="stable")
    by_time = np.argsort(times, kind="stable")
    order: Slots = by_time[np.argsort(small[by_time], kind="stable")]
    return order


def runs_of(owners: Slots, times: Times, gap_ms: int) -> MergedIntervals:
    """The sessions that rows form by themselves; touching ones are one (a row at the very end of a session joins it).

    >>> runs = runs_of(np.array([0, 0, 1, 0]), np.array([5, 0, 3, 16]), gap_ms=10)
    >>> runs.group.tolist(), runs.whole.starts.tolist(), runs.whole.ends.tolist()
    ([0, 0, 2, 1], [0, 16, 3], [15, 26, 13])
    """
    order = order_of(owners, times)
    owner, time = owners[order], times[order]
    ends = end_of(time, gap_ms)
    return _grouped(order, owner, time, ends, _changes(owner) | _after(time, ends))


def merge_intervals(given: Intervals) -> MergedIntervals:
    """Overlapping and touching intervals of one owner as one.

    >>> merged = merge_intervals(Intervals(np.array([0, 0, 0]), np.array([0, 2, 9]), np.array([9, 4, 12])))
    >>> merged.group.tolist(), merged.whole.ends.tolist()
    ([0, 0, 0], [12])
    """
    span = _span(given)
    if span is None:
        order = order_of(given.owners, given.starts)
    else:  # given are sorted sequences one after the other, which NumPy's stable sort merges
        low, width = span
        order = np.argsort(given.owners * width + (given.starts - low), kind="stable")
    owner, start, end = given.owners[order], given.starts[order], given.ends[order]
    # the greatest end so far of each owner: ends of later owners are lifted above those of earlier ones
    if span is None:
        ranked, rank = np.unique(end, return_inverse=True)
        lift = owner * len(ranked)
        reach = ranked[np.maximum.accumulate(lift + rank) - lift]
    else:
        lift = owner * width
        reach = np.maximum.accumulate(lift + (end - low)) - lift + low
    change = _changes(owner)
    return _grouped(order, owner, start, end, change | _after(start, reach))


def _span(given: Intervals) -> tuple[int, int] | None:
    """(least start, more than any end is above it) if owner · width + time fits 64 bits."""
    if len(given.owners) == 0:
        return 0, 1
    low, high = int(given.starts.min()), int(given.ends.max())
    width = high - low + 1
    return (low, width) if (int(given.owners.max()) + 1) * width < MAX_TIMESTAMP else None


def _changes(owner: Slots) -> npt.NDArray[np.bool_]:
    change = np.ones(len(owner), np.bool_)
    change[1:] = owner[1:] != owner[:-1]
    return change


def _after(starts: Times, reach: Times) -> npt.NDArray[np.bool_]:
    after = np.ones(len(starts), np.bool_)
    after[1:] = starts[1:] > reach[:-1]
    return after


def _grouped(order: Slots, owner: Slots, start: Times, end: Times, opens: npt.NDArray[np.bool_]) -> MergedIntervals:
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(opens) - 1
    first = np.flatnonzero(opens)
    ends = np.maximum.reduceat(end, first) if len(first) else end
    return MergedIntervals(group, Intervals(owner[first], start[first], ends))
