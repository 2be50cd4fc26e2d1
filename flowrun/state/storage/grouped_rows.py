"""Rows of a keyed table by key group, without moving more of them at a time than a run of key groups has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import KeyGroupRange
from flowrun.core.arrays import Int32s, Integers
from flowrun.errors import InternalError
from flowrun.state.storage.key_order import sorted_by_group_and_key

Int64s = Integers


class GroupedRows:
    """A keyed table whose rows can be had by key group.

    Args:
        rows: first column the key group.
        keys: names of the key columns.
        groups: all that rows may be of.

    Attributes:
        batches: the rows as given, in few pieces (more than one only beyond 2 GB of text).
        offsets: int64, len(groups) + 1: where the rows of each key group begin, once they are in order.
    """

    def __init__(self, rows: pa.Table, keys: Sequence[str], groups: KeyGroupRange) -> None:
        self._blocks = [_Block(batch, keys, groups) for batch in rows.combine_chunks().to_batches()]
        self._schema = rows.schema
        self.batches = [b.rows for b in self._blocks]
        self.offsets: Int64s = np.sum([b.offsets for b in self._blocks], axis=0, dtype=np.int64)
        if not self._blocks:
            self.offsets = np.zeros(len(groups) + 1, np.int64)

    def run(self, first: int, last: int) -> pa.RecordBatch:
        """Rows of the first-th to before the last-th key group; those of one key group are in the order that they were given in."""
        parts = [b.cut(first, last) for b in self._blocks]
        return pa.concat_batches(parts) if len(parts) > 1 else parts[0]

    def sorted_run(self, first: int, last: int) -> pa.RecordBatch:
        """The same by (key group, keys); rows of one key are in the order that they were given in."""
        if len(self._blocks) == 1 and not self._blocks[0].in_order:
            return self._blocks[0].sorted_cut(first, last)
        rows = self.run(first, last)
        keys = [rows.column(k) for k in self._blocks[0].keys]
        order = sorted_by_group_and_key(rows.column(0).to_numpy(), keys)
        return rows if bool((np.diff(order) == 1).all()) else rows.take(pa.array(order))


class _Block:
    def __init__(self, rows: pa.RecordBatch, keys: Sequence[str], groups: KeyGroupRange) -> None:
        self.rows = rows
        self.keys = [rows.schema.get_field_index(k) for k in keys]
        self._groups: Int32s = rows.column(0).to_numpy()
        if (
            self._groups.min(initial=groups.start) < groups.start
            or self._groups.max(initial=groups.start) >= groups.stop
        ):
            raise InternalError(
                f"state of key groups {self._groups.min()} to {self._groups.max()} in a subtask that owns {groups.start} "
                f"to {groups.stop - 1}"
            )
        counts = np.bincount(self._groups - groups.start, minlength=len(groups))
        self.offsets: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self.in_order = bool((self._groups[1:] >= self._groups[:-1]).all())
        # a stable sort of 16-bit integers is a radix sort
        self._order = None if self.in_order else np.argsort(self._groups.astype(np.int16), kind="stable")

    def cut(self, first: int, last: int) -> pa.RecordBatch:
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        if self._order is None:
            return self.rows.slice(begin, end - begin)
        return self.rows.take(pa.array(self._order[begin:end]))

    def sorted_cut(self, first: int, last: int) -> pa.RecordBatch:
        """Moves the rows once: first only their keys, to learn the order."""
        assert self._order is not None
        where = self._order[int(self.offsets[first]) : int(self.offsets[last])]
        if self.keys:
            indices = pa.array(where)
            keys = [self.rows.column(k).take(indices) for k in self.keys]
            where = where[sorted_by_group_and_key(self._groups[where], keys)]
        return self.rows.take(pa.array(where))


def runs_of_groups(offsets: Int64s, least: int) -> list[tuple[int, int]]:
    """Cuts key groups into runs of at least `least` rows (the whole, if there are fewer), as pairs of first and past the last.

    >>> runs_of_groups(np.array([0, 5, 5, 9, 12, 13]), 6)
    [(0, 3), (3, 5)]
    """
    runs: list[tuple[int, int]] = []
    first, groups = 0, len(offsets) - 1
    while first < groups and offsets[first] < offsets[-1]:
        last = min(int(np.searchsorted(offsets, offsets[first] + least)), groups)
        runs.append((first, last))
        first = last
    if not runs:
        return runs
    runs[-1] = (runs[-1][0], groups)
    if len(runs) > 1 and offsets[-1] - offsets[runs[-1][0]] < least // 2:
        runs[-2:] = [(runs[-2][0], groups)]
    return runs
