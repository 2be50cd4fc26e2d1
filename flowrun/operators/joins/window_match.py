"""A hash join of two finished sets of rows: which row of the right side has the key of which row of the left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.operators.aggregation.grouping import group_ids
from flowrun.operators.keyed.hash_lists import Pairs
from flowrun.operators.keyed.integers import ranges


@record
class KeyMatch:
    """For each left row the right rows with its key.

    Attributes:
        order: positions of right rows, by key.
        starts: for each left row where in `order` its matches begin.
        counts: and how many it has.
    """

    order: Integers
    starts: Integers
    counts: Integers

    @classmethod
    def of(cls, left: Sequence[pa.Array], right: Sequence[pa.Array], left_rows: int, right_rows: int) -> KeyMatch:
        """Matches by key columns of types that can be grouped (see `group_ids`); NULL matches nothing; no columns: all rows match.

        >>> match = KeyMatch.of([pa.array([1, 2, None])], [pa.array([2, 1, 2])], 3, 3)
        >>> match.counts.tolist(), next(match.pairs(8)).numbers.tolist()
        ([1, 2, 0], [1, 0, 2])
        """
        rows = left_rows + right_rows
        if not left or not left_rows or not right_rows:
            matched = right_rows if not left else 0
            zeros = np.zeros(left_rows, np.int64)
            return cls(np.arange(right_rows), zeros, zeros + matched)
        keys = [_joined(a, b) for a, b in zip(left, right, strict=True)]
        ids, total = group_ids(keys, rows)
        known = np.ones(rows, np.bool_)
        for key in keys:
            if key.null_count:
                known &= key.is_valid().to_numpy(zero_copy_only=False)
        mine, theirs = ids[:left_rows], ids[left_rows:]
        matchable = np.flatnonzero(known[left_rows:])
        by_key = np.argsort(theirs[matchable], kind="stable")
        order = matchable[by_key]
        per_key = np.bincount(theirs[matchable], minlength=total)
        starts = (np.cumsum(per_key) - per_key)[mine]
        return cls(order, starts, np.where(known[:left_rows], per_key[mine], 0))

    def pairs(self, most: int) -> Iterator[Pairs]:
        """Pairs (left, right) of positions ordered by left row, about `most` at a time unless one left row has more."""
        ends = np.cumsum(self.counts)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            counts = self.counts[start:stop]
            if counts.any():
                numbers = self.order[ranges(self.starts[start:stop], counts)]
                yield Pairs(np.repeat(np.arange(start, stop), counts), numbers)
            start = stop


def _joined(left: pa.Array, right: pa.Array) -> pa.Array:
    return pa.concat_arrays([left, right])
