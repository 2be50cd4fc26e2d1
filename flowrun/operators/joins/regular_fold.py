"""What the changes of one batch amount to: rows that come and go within it cancel each other out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.operators.keyed.equality import equal_rows


@record
class Folded:
    """What is left of a batch of changes. Positions ascend.

    Attributes:
        removed: positions of the rows that are taken away from what was there before the batch.
        added: positions of the rows that are there after it.
        groups: for each row of the batch a number; equal rows have equal numbers.
    """

    removed: Integers
    added: Integers
    groups: Integers


def fold(rows: pa.RecordBatch, adds: Bools, hashed: tuple[int, ...]) -> Folded:
    """What changes amount to, done in order: a removal takes an equal row that was added before it, if there is one (left).

    Args:
        rows: of the changes.
        adds: for each whether it is added; else it is removed.
        hashed: positions of the columns by which equal rows are found; all are compared.

    >>> rows = pa.record_batch({"n": [1, 1, 2, 3]})
    >>> folded = fold(rows, np.array([True, False, False, True]), (0,))
    >>> folded.removed.tolist(), folded.added.tolist()
    ([2], [3])
    """
    groups = equal_rows(rows, hashed)
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(starts, len(order)))
    signs = np.where(adds[order], 1, -1)
    sums = np.cumsum(signs)
    sums -= np.repeat(sums[starts] - signs[starts], lengths)
    net = sums[starts + lengths - 1]
    missing = np.maximum(0, -np.minimum.reduceat(sums, starts))
    added = signs > 0
    ones = added.astype(np.int64)
    nth = np.cumsum(ones)  # how many rows of the group were added up to here
    nth -= np.repeat(nth[starts] - ones[starts], lengths)
    place = np.arange(len(order)) - np.repeat(starts, lengths) + 1
    additions = nth[starts + lengths - 1]
    stays = np.where(added, np.repeat(additions, lengths) - nth < np.repeat(net + missing, lengths), False)
    asks = np.where(added, False, place - nth <= np.repeat(missing, lengths))
    return Folded(np.sort(order[asks]), np.sort(order[stays]), groups)


def cancelled(removed: Integers, added: Integers) -> tuple[Bools, Bools]:
    """For rows taken away and rows added, given as numbers that equal rows share: which of them undo each other.

    >>> gone, again = cancelled(np.array([7, 7, 5]), np.array([7, 8]))
    >>> gone.tolist(), again.tolist()
    ([True, False, False], [True, False])
    """
    size = 1 + max(int(removed.max(initial=0)), int(added.max(initial=0)))
    undone = np.minimum(np.bincount(removed, minlength=size), np.bincount(added, minlength=size))
    return _ranks(removed) < undone[removed], _ranks(added) < undone[added]


def _ranks(numbers: Integers) -> Integers:
    """Of the places that have its number, which one each place is: 0, 1, …"""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(order) else order
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return ranks
