"""The keys of a lookup: which of them an outside system is asked for, and for which of them each row that it gives was found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.connectors.newest_rows import key_numbers
from flowrun.core.arrays import Integers, any_null


class AskedKeys:
    """Keys as `Lookup.find` is given them.

    Args:
        keys: one column a key column.

    Attributes:
        distinct: each key once, without those that have a NULL in them, which find nothing.

    >>> asked = AskedKeys(pa.record_batch({"id": [7, None, 5, 7]}))
    >>> asked.distinct.to_pydict()
    {'id': [7, 5]}
    >>> positions, probe = asked.spread(asked.owners([pa.array([5, 6, 7])]))
    >>> positions.tolist(), probe.tolist()
    ([2, 0, 2], [0, 2, 3])
    """

    def __init__(self, keys: pa.RecordBatch) -> None:
        self._asked = np.flatnonzero(~any_null(keys))
        known = keys if len(self._asked) == keys.num_rows else keys.take(pa.array(self._asked))
        self._numbers = key_numbers(known.columns, range(known.num_columns))
        first = _first_of_each(self._numbers)
        self.distinct: pa.RecordBatch = known if len(first) == known.num_rows else known.take(pa.array(first))

    def owners(self, found: Sequence[pa.Array]) -> Integers:
        """For each row that was found, by its key columns, the position of its key in `distinct`; −1: nobody asked for it."""
        number = self.distinct.num_rows
        both = [pa.concat_arrays([k, f]) for k, f in zip(self.distinct.columns, found, strict=True)]
        of_found: Integers = key_numbers(both, range(len(both)))[
            number:
        ]  # distinct keys have the numbers of their positions
        return np.where(of_found < number, of_found, -1)

    def spread(self, owners: Integers) -> tuple[Integers, Integers]:
        """(positions of rows that were found, positions of the keys that they are for), by ascending key position.

        Args:
            owners: for each row that was found the position of its key in `distinct`; −1: it is left out.
        """
        order = np.argsort(owners, kind="stable")
        order = order[owners[order] >= 0]
        held = owners[order]
        starts = np.searchsorted(held, self._numbers, "left")
        counts = np.searchsorted(held, self._numbers, "right") - starts
        probe = np.repeat(self._asked, counts)
        ends = np.cumsum(counts)
        at = np.arange(len(probe)) + np.repeat(starts - (ends - counts), counts)
        return order[at], probe


def _first_of_each(numbers: Integers) -> Integers:
    """The first position of each number 0, 1, …, which occur in this order for the first time."""
    first = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first
