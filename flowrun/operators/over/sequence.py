"""Rows of several partitions in order, one partition after the other, and the frames of those whose results are wanted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.semantics import FrameUnit
from flowrun.operators.over.calls import OverFrame
from flowrun.operators.over.frames import Frames
from flowrun.operators.ranking.order import sorted_order


@record
class Sequence:
    """Rows in order.

    Attributes:
        owners: partition of each row, from 0, non-decreasing; every partition has a row.
        ties: non-decreasing; equal for rows of one partition that have equal order.
        order: what RANGE counts in: non-decreasing within a partition.
        targets: positions of the rows whose results are wanted, ascending.
        column: gives an input column of all rows.
        least: of each row the least order that a RANGE which counts units goes back to; None: the order less `preceding`.
        most: the greatest that it goes on to.
    """

    owners: Integers
    ties: Integers
    order: Integers
    targets: Integers
    column: Callable[[int], pa.Array]
    least: Integers | None = None
    most: Integers | None = None

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def starts(self) -> Integers:
        """Where partitions begin."""
        return np.flatnonzero(_steps(self.owners))

    @property
    def ends(self) -> Integers:
        """The last position of each partition."""
        return np.append(self.starts[1:], len(self)) - 1

    def tie_ends(self) -> Integers:
        """For each row the last row of equal order."""
        steps = _steps(self.ties)
        last = np.append(np.flatnonzero(steps)[1:], len(self)) - 1
        ends: Integers = last[np.cumsum(steps) - 1]
        return ends

    def tie_starts(self) -> Integers:
        """For each row the first row of equal order."""
        steps = _steps(self.ties)
        starts: Integers = np.flatnonzero(steps)[np.cumsum(steps) - 1]
        return starts

    def frames(self, frame: OverFrame, first_new: Integers | None) -> Frames:
        """The frames of the targets.

        Args:
            frame: what they cover.
            first_new: by partition, the row from which on frames without a bound begin, what was before being known otherwise;
                None: the partition's first row.
        """
        owners = self.owners[self.targets]
        high = self._last_rows(frame, owners)
        if frame.preceding is None:
            begins = self.starts if first_new is None else first_new
            # sums grow from the first position that any frame has: rows before it are of the past
            return Frames(begins[owners], high, begins)
        return Frames(self._first_rows(frame, owners), high)

    def _first_rows(self, frame: OverFrame, owners: Integers) -> Integers:
        """The first row of each frame that has a bound there; behind its last row if it is empty."""
        targets, preceding = self.targets, frame.preceding
        if frame.unit is FrameUnit.ROWS:
            return np.clip(targets - int(preceding or 0), self.starts[owners], self.ends[owners] + 1)
        if not preceding:
            return self.tie_starts()[targets]
        least = self.order[targets] - int(preceding) if self.least is None else self.least[targets]
        return self._first_from(owners, least)

    def _last_rows(self, frame: OverFrame, owners: Integers) -> Integers:
        """The last row of each frame; before its first row if it is empty."""
        targets, following = self.targets, frame.following
        if following is None:
            return self.ends[owners]
        if frame.unit is FrameUnit.ROWS:
            return (
                np.clip(targets + int(following), self.starts[owners] - 1, self.ends[owners]) if following else targets
            )
        if not following:
            return self.tie_ends()[targets]
        assert self.most is not None
        return self._first_from(owners, self.most[targets] + 1) - 1

    def _first_from(self, owners: Integers, least: Integers) -> Integers:
        """The first row of each of these partitions whose order is at least so much."""
        low = int(min(self.order.min(), least.min())) if len(least) else 0
        span = int(max(self.order.max(), least.max())) - low + 1 if len(least) else 1
        if span * (len(self.starts) + 1) < 1 << 62:
            return np.searchsorted(self.owners * span + (self.order - low), owners * span + (least - low))
        asked = np.concatenate([np.ones(len(self), np.int64), np.zeros(len(owners), np.int64)])
        parts = [np.concatenate([self.owners, owners]), np.concatenate([self.order, least]), asked]
        order = sorted_order(parts)
        before = np.cumsum(asked[order])
        found = np.empty(len(order), np.int64)
        found[order] = before
        return found[len(self) :]


def _steps(values: Integers) -> Bools:
    steps = np.ones(len(values), np.bool_)
    steps[1:] = values[1:] != values[:-1]
    return steps
