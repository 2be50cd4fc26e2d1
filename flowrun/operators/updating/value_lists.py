"""All values of an argument in each group, in order of arrival; of equal values the one that came first leaves first, as in Flink."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Integers
from flowrun.core.schema import Schema
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.updating.group_feeds import ListRows

NOWHERE = -1


class ValueListTable:
    """A list of values for each group, found by the group's key columns. Values are known by numbers until `compact`.

    Args:
        schema: keys, value.
        retracting: whether values leave.
    """

    def __init__(self, schema: Schema, max_parallelism: int, *, retracting: bool) -> None:
        self._schema = schema
        self._keys = range(len(schema) - 1)
        null_safe = [True] * len(self._keys)
        self._store = RowStore(schema, self._keys, max_parallelism, null_safe=null_safe, by_row=retracting)

    def __len__(self) -> int:
        return len(self._store)

    def apply(self, keys: Sequence[pa.Array], rows: ListRows) -> tuple[Integers, Integers, int]:
        """Let values join and leave; `keys` are the key columns of each of them.

        Joining first does not change which values leave: of equal ones those that came first.

        Returns:
            (group of each value that joined, their numbers, how many should have left that were not there).
        """
        batch = pa.RecordBatch.from_arrays([*keys, rows.values], schema=self._schema.arrow)
        if rows.joins is None:
            return rows.ids, self._store.append(batch), 0
        joined = np.flatnonzero(rows.joins)
        numbers = self._store.append(batch.take(pa.array(joined)))
        found = self._store.find_equal(batch.filter(pa.array(~rows.joins)))
        known = found[found != NOWHERE]
        self._store.remove(known)
        return rows.ids[joined], numbers, len(found) - len(known)

    def lists(self, keys: Sequence[pa.Array], groups: int) -> pa.ListArray:
        """The values of each group, whose key columns are given."""
        pairs = self._store.find(keys, groups)
        offsets = np.zeros(groups + 1, np.int32)
        np.cumsum(np.bincount(pairs.probe, minlength=groups), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), self.values(pairs.numbers))

    def values(self, numbers: Integers) -> pa.Array:
        """The values of these numbers."""
        return self._store.take_columns(numbers, (len(self._keys),))[0]

    def end(self, keys: Sequence[pa.Array], groups: int, *, last: bool) -> Integers:
        """The number of the first (or last) value of each group, −1 where there is none. Reads all values of the groups."""
        pairs = self._store.find(keys, groups)
        ends = np.full(groups, NOWHERE, np.int64)
        if last:
            ends[pairs.probe] = pairs.numbers  # of several assignments to one place the last one stays
        else:
            ends[pairs.probe[::-1]] = pairs.numbers[::-1]
        return ends

    def is_live(self, numbers: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether values are still in their lists; −1 is not."""
        known = numbers != NOWHERE
        live = np.zeros(len(numbers), np.bool_)
        live[known] = self._store.is_live(numbers[known])
        return live

    def purge(self, keys: Sequence[pa.Array], groups: int) -> None:
        """Forget all values of some groups."""
        self._store.remove(self._store.find(keys, groups).numbers)

    def compact(self) -> Integers | None:
        """Let go of what has left; the new number of each old one, or None if nothing changed."""
        return self._store.compact()

    def snapshot(self) -> SegmentedTable:
        """The state table."""
        return self._store.snapshot_table()

    def restore(self, table: pa.Table) -> None:
        """Take back rows of a state table."""
        self._store.restore(table)
