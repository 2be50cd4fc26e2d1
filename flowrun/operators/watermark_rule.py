"""Where a batch must be cut so that watermarks have row-at-a-time meaning without row-at-a-time work.

A generator that works row by row sends row i and then the watermark max(m₀ … mᵢ), where mⱼ is what row j allows (event time − lag).
A row is late if its event time is at or below the last watermark sent before it. Sending a whole batch and one watermark after it
gives every row the same verdict unless some row is late against a watermark that is still to be sent; the batch is cut just before
such rows and nowhere else. Two passes over block minima and maxima find out which blocks can hold late rows at all.
"""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, PassingWatermarks
from flowrun.core.record import record

Int64s = Integers

BLOCK_ROWS = 64
"""Rows that are judged together at first: few enough to span less time than the usual delay, many enough to be cheap."""


@record
class Progress:
    """What a batch does to event time.

    Attributes:
        cuts: (row, watermark) in order: the watermark is sent just before that row.
        watermark: the generator's own watermark after the batch (not limited by the ceiling).
    """

    cuts: tuple[tuple[int, int], ...]
    watermark: int


def lagging(timestamp: int, lag: int) -> int:
    """`timestamp − lag`, not below MIN_TIMESTAMP.

    >>> lagging(100, 1), lagging(MIN_TIMESTAMP, 1) == MIN_TIMESTAMP
    (99, True)
    """
    return max(timestamp, MIN_TIMESTAMP + lag) - lag


def progress(
    timestamps: Int64s,
    marks: Int64s,
    lag: int,
    *,
    watermark: int = MIN_TIMESTAMP,
    sent: int = MIN_TIMESTAMP,
    ceiling: int = MAX_TIMESTAMP,
) -> Progress:
    """The cuts that a batch needs and the watermark after it.

    Args:
        timestamps: event times of the rows (at least one), ms.
        marks: what row j allows is `marks[j] − lag`; often `timestamps` itself.
        lag: ms, at least 0.
        watermark: the generator's own watermark before the batch.
        sent: the last watermark that was really sent; it never goes back.
        ceiling: other splits hold the sent watermark down to this.

    >>> rows = np.array([10, 20, 5, 30])
    >>> progress(rows, rows, 1)   # row 2 is late against 19
    Progress(cuts=((2, 19),), watermark=29)
    >>> progress(rows, rows, 16)  # nothing is late: 5 > 20 − 16
    Progress(cuts=(), watermark=14)
    """
    after = max(watermark, lagging(int(marks.max()), lag))
    highest = min(after, ceiling)
    if highest <= sent or int(timestamps.min()) > highest:
        return Progress((), after)
    starts = np.arange(0, len(timestamps), BLOCK_ROWS)
    reached = _reached(np.maximum.reduceat(marks, starts), lag, watermark)
    suspicious = np.flatnonzero(np.minimum.reduceat(timestamps, starts) <= np.minimum(reached[1:], ceiling))
    if len(suspicious) == 0:
        return Progress((), after)
    # The rows of those blocks, one block a line; the last block's line is filled up with its last row, which is masked out.
    positions = starts[suspicious, np.newaxis] + np.arange(BLOCK_ROWS)
    rows = np.minimum(positions, len(timestamps) - 1)
    before = np.minimum(_reached(marks[rows], lag, reached[suspicious])[:, :-1], ceiling)
    late = (timestamps[rows] <= before) & (before > sent) & (positions == rows)
    return Progress(_cuts(rows[late], before[late], sent), after)


def passing(
    marks: Int64s, lag: int, *, watermark: int = MIN_TIMESTAMP, sent: int = MIN_TIMESTAMP, ceiling: int = MAX_TIMESTAMP
) -> PassingWatermarks | None:
    """The watermarks that a generator which works row by row sends between the rows; arguments as of `progress`.

    >>> found = passing(np.array([10, 20, 5, 30]), 1)
    >>> found.rows.tolist(), found.timestamps.tolist()
    ([1, 2], [9, 19])
    """
    reached = np.minimum(_reached(marks[:-1], lag, watermark)[1:], ceiling)
    new = np.flatnonzero((reached > np.append(sent, reached[:-1])) & (reached > sent))
    return PassingWatermarks.of(new + 1, reached[new])


def late_rows(timestamps: Int64s, lag: int, watermark: int) -> Integers:
    """Positions of the rows that are late against the rows before them, given the watermark before the batch.

    >>> late_rows(np.array([5, 4, 6]), 1, MIN_TIMESTAMP).tolist()
    [1]
    """
    if int(timestamps[0]) > watermark and bool((timestamps[1:] >= timestamps[:-1]).all()):
        return np.zeros(0, np.int64)
    return np.flatnonzero(timestamps <= _reached(timestamps, lag, watermark)[:-1])


def _reached(marks: Int64s, lag: int, watermark: int | Int64s) -> Int64s:
    """The watermark before each mark, and after the last one, along the last axis: one longer than `marks`."""
    reached = np.empty((*marks.shape[:-1], marks.shape[-1] + 1), np.int64)
    reached[..., 0] = watermark
    np.maximum(marks, MIN_TIMESTAMP + lag, out=reached[..., 1:])
    reached[..., 1:] -= lag
    np.maximum.accumulate(reached, axis=-1, out=reached)
    return reached


def _cuts(rows: Integers, watermarks: Int64s, sent: int) -> tuple[tuple[int, int], ...]:
    """One cut for each late row whose watermark was not sent yet; `watermarks` never go down."""
    previous = np.concatenate(([sent], watermarks[:-1])) if len(watermarks) else watermarks
    new = watermarks > previous
    return tuple(zip(rows[new].tolist(), watermarks[new].tolist(), strict=True))
