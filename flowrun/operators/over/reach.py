"""How far the results of OVER look, and so which of them a change may have changed. Pure NumPy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.semantics import FrameUnit
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.over.calls import OverFrame, Place
from flowrun.operators.over.factories import OverFactory
from flowrun.operators.over.frames import Frames
from flowrun.operators.over.sequence import Sequence

_COUNTING = (Place.ROW_NUMBER, Place.RANK, Place.DENSE_RANK)
_EVERYTHING = 1 << 60


@record
class Reach:
    """What the results of a row depend on.

    Attributes:
        back: how many rows before it, besides the frame.
        ahead: how many rows after it.
        lag: how many rows before it LAG reads.
        lead: how many rows after it LEAD reads.
        frame: of aggregates; None: there are none.
        peers: whether rows of equal order count, too.
        units: whether the frame counts units of the order: the rows within it are then found by that.
    """

    back: int
    ahead: int
    lag: int
    lead: int
    frame: OverFrame | None
    peers: bool
    units: bool

    @classmethod
    def of(cls, factory: OverFactory) -> Reach:
        """The reach of all calls together."""
        lag = max((c.offset for c in factory.places if c.place is Place.LAG), default=0)
        lead = max((c.offset for c in factory.places if c.place is Place.LEAD), default=0)
        back, ahead, peers = lag, lead, False
        for call in factory.places:
            if call.place not in (Place.LAG, Place.LEAD):
                back = _EVERYTHING
                ahead = ahead if call.place in _COUNTING else _EVERYTHING
                peers = True
        frame = factory.frame if factory.aggregates else None
        if frame is not None:
            peers = peers or frame.unit is FrameUnit.RANGE
            by_row = frame.unit is FrameUnit.ROWS
            if frame.preceding is None:
                back = _EVERYTHING
            elif by_row:
                back = max(back, int(frame.preceding))
            if frame.following is None:
                ahead = _EVERYTHING
            elif by_row:
                ahead = max(ahead, int(frame.following))
        return cls(back, ahead, lag, lead, frame, peers, frame is not None and frame.counts_units)


def affected(reach: Reach, rows_of_both: Sequence, was: Bools, alive: Bools) -> Bools:
    """Which rows came or went, or have results that those may have changed.

    Args:
        reach: of the results.
        rows_of_both: the rows before and after, all of them its targets.
        was: rows that were there before.
        alive: rows that are there now.
    """
    owners, ties = rows_of_both.owners, rows_of_both.ties
    changed = was != alive
    rows = len(owners)
    positions = np.arange(rows)
    common = np.cumsum(was & alive)
    last = np.maximum.accumulate(np.where(changed, positions, -1))
    # between the last row that changed and this one all rows were there and still are
    before = (last >= 0) & (owners[last] == owners)
    result: Bools = changed | (before & (common - common[last] <= reach.back))
    if reach.ahead:
        following = np.minimum.accumulate(np.where(changed, positions, rows)[::-1])[::-1]
        inside = following < rows
        at = np.minimum(following, rows - 1)
        after = inside & (owners[at] == owners)
        result |= after & (common[at] - common <= reach.ahead - 1)
    if reach.peers:
        steps = np.ones(rows, np.bool_)
        steps[1:] = ties[1:] != ties[:-1]
        ends = np.append(np.flatnonzero(steps)[1:], rows) - 1
        upto = last[ends[np.cumsum(steps) - 1]]
        near = (upto >= 0) & (owners[upto] == owners)
        if reach.back < _EVERYTHING:  # rows of equal order only
            near &= ties[upto] == ties
        result |= near
    if reach.units and reach.frame is not None:
        frames = rows_of_both.frames(reach.frame, None)
        count = np.append(0, np.cumsum(changed))
        result |= count[np.maximum(frames.high + 1, frames.low)] > count[frames.low]
    result &= was | alive
    return result


def cut(
    whole: Sequence, frames: Frames | None, reach: Reach, numbers: Integers, store: RowStore
) -> tuple[Sequence, Frames | None]:
    """Only the rows of a sequence that results of its targets look at, so that only their columns are read."""
    rows, targets = len(whole), whole.targets
    owners = whole.owners[targets]
    change = np.zeros(rows + 1, np.int64)
    if frames is not None:
        np.add.at(change, frames.low, 1)
        np.subtract.at(change, frames.high + 1, 1)
    np.add.at(change, np.maximum(targets - reach.lag, whole.starts[owners]), 1)
    np.subtract.at(change, np.minimum(targets + reach.lead, whole.ends[owners]) + 1, 1)
    kept = np.cumsum(change[:rows]) > 0
    before = np.append(0, np.cumsum(kept))
    chosen = np.flatnonzero(kept)
    taken = numbers[chosen]

    def column(position: int) -> pa.Array:
        return store.take_columns(taken, [position])[0]

    sequence = Sequence(whole.owners[chosen], whole.ties[chosen], whole.order[chosen], before[targets], column)
    if frames is None:
        return sequence, None
    growing = None if frames.growing is None else before[frames.growing[kept[frames.growing]]]
    return sequence, Frames(before[frames.low], before[frames.high + 1] - 1, growing)
