"""ROW_NUMBER, RANK and DENSE_RANK of sorted rows, for all partitions at once."""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Bools, Integers
from flowrun.core.semantics import RankFunction


def ranks(ranking: RankFunction, owners: Integers, ties: Integers) -> Integers:
    """The rank, from 1, of each row.

    Args:
        ranking: how ranks are counted.
        owners: partition of each row; rows of one partition stand together.
        ties: non-decreasing; equal for rows of one partition that have equal order.

    >>> owners, ties = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2])
    >>> [ranks(r, owners, ties).tolist() for r in RankFunction]
    [[1, 2, 3, 1], [1, 1, 3, 1], [1, 1, 2, 1]]
    """
    positions = np.arange(len(owners))
    starts = _changes(owners)
    begin = positions[starts][np.cumsum(starts) - 1]
    if ranking is RankFunction.ROW_NUMBER:
        numbers: Integers = positions - begin + 1
        return numbers
    groups = starts | _changes(ties)
    number = np.cumsum(groups, dtype=np.int64)
    ranked: Integers
    if ranking is RankFunction.RANK:
        ranked = positions[groups][number - 1] - begin + 1
    else:
        ranked = number - number[begin] + 1
    return ranked


def _changes(values: Integers) -> Bools:
    changes = np.ones(len(values), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    return changes
