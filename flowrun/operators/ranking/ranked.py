"""Ranks of rows before and after a batch, for all partitions that it touches, and the changes between them. Pure NumPy."""

from __future__ import annotations

import numpy as np

from flowrun.core.arrays import Bools, Integers, Kinds
from flowrun.core.record import record
from flowrun.core.semantics import RankFunction
from flowrun.operators.ranking.order import differs_from_previous, sorted_order
from flowrun.operators.ranking.ranks import ranks
from flowrun.operators.updating.emission import AFTER, BEFORE, DELETE, INSERT


@record
class Ranked:
    """Rows of several partitions (*owners*, numbered from 0) in order. All arrays have one entry a row, in that order.

    Attributes:
        order: position of each row as it was given.
        owners: its partition.
        ties: equal for rows of equal order in one partition, else growing.
        old: rank before; 0: it was not there, or not among those compared.
        new: rank now; 0: it is gone, or beyond what is known to be in order.
    """

    order: Integers
    owners: Integers
    ties: Integers
    old: Integers
    new: Integers

    @classmethod
    def of(
        cls, ranking: RankFunction, owners: Integers, parts: list[Integers], was: Bools, alive: Bools, bounded: Bools
    ) -> Ranked:
        """The ranks of rows.

        Args:
            ranking: how ranks are counted.
            owners: partition of each row.
            parts: what to sort rows of a partition by; rows of equal parts keep their order.
            was: which rows had a rank before.
            alive: which rows are there now.
            bounded: by owner, whether more rows follow the last of those that were: then new rows behind it have no place here.
        """
        keys = [owners, *parts]
        order = sorted_order(keys)
        sorted_owners, sorted_was = owners[order], was[order]
        ties = np.cumsum(differs_from_previous(keys, order), dtype=np.int64)
        here = alive[order]
        if bounded.any():
            last = np.full(len(bounded), -1, np.int64)
            positions = np.flatnonzero(sorted_was)
            last[sorted_owners[positions]] = positions  # of several the last one stays
            boundary = last[sorted_owners]
            if ranking is RankFunction.ROW_NUMBER:
                beyond = np.arange(len(order)) > boundary
            else:
                beyond = ties > ties[boundary]
            here &= ~(beyond & bounded[sorted_owners])
        return cls(
            order,
            sorted_owners,
            ties,
            _ranks_where(ranking, sorted_owners, ties, sorted_was),
            _ranks_where(ranking, sorted_owners, ties, here),
        )

    def depth(self, owners: int, ranking: RankFunction) -> Integers:
        """For each owner, the rank that a row behind all of its rows has at least, less one."""
        if ranking is not RankFunction.DENSE_RANK:
            return np.bincount(self.owners[self.new > 0], minlength=owners)
        depth = np.zeros(owners, np.int64)
        np.maximum.at(depth, self.owners, self.new)
        return depth


def _ranks_where(ranking: RankFunction, owners: Integers, ties: Integers, chosen: Bools) -> Integers:
    if chosen.all():
        return ranks(ranking, owners, ties)
    found = np.zeros(len(owners), np.int64)
    found[chosen] = ranks(ranking, owners[chosen], ties[chosen])
    return found


def moves(ranked: Ranked, first: int, last: int, *, numbered: bool) -> tuple[Integers, Integers]:
    """(rows that left the ranks `first` to `last`, rows that entered them); `numbered`: a row whose rank changed did both."""
    seen_before = (ranked.old >= first) & (ranked.old <= last)
    seen_now = (ranked.new >= first) & (ranked.new <= last)
    same = seen_before & seen_now
    if numbered:
        same &= ranked.old == ranked.new
    return np.flatnonzero(seen_before & ~same), np.flatnonzero(seen_now & ~same)


def changes(ranked: Ranked, left: Integers, entered: Integers, *, in_pairs: bool) -> tuple[Integers, Kinds, Integers]:
    """(row, row kind, rank) of each change, in the order in which they are sent.

    `in_pairs`: the n-th row that left and the n-th that entered a partition are an update: for ROW_NUMBER those of one rank. Else rows
    leave before rows enter.
    """
    rows = np.concatenate([left, entered])
    owner = ranked.owners[rows]
    after = np.repeat(np.array([0, 1]), [len(left), len(entered)])
    if in_pairs:
        turns, paired = _pairs(owner[: len(left)], owner[len(left) :])
        kinds = np.where(after, np.where(paired, AFTER, INSERT), np.where(paired, BEFORE, DELETE)).astype(np.int8)
        order = sorted_order([owner, turns, after])
    else:
        kinds = np.where(after, INSERT, DELETE).astype(np.int8)
        order = sorted_order([owner, after])
    rank = np.concatenate([ranked.old[left], ranked.new[entered]])
    return rows[order], kinds[order], rank[order]


def _pairs(left: Integers, entered: Integers) -> tuple[Integers, Bools]:
    """(place among the rows of its owner that left, or entered; whether there is one at this place on the other side) of each row."""
    owners = int(max(left.max(initial=-1), entered.max(initial=-1))) + 1
    left_turn, entered_turn = _turns(left), _turns(entered)
    paired_left = left_turn < np.bincount(entered, minlength=owners)[left]
    paired_entered = entered_turn < np.bincount(left, minlength=owners)[entered]
    return np.concatenate([left_turn, entered_turn]), np.concatenate([paired_left, paired_entered])


def _turns(owners: Integers) -> Integers:
    """How many rows of its owner stand before each row; rows of one owner stand together."""
    return ranks(RankFunction.ROW_NUMBER, owners, owners) - 1
