"""An append-only log of rows that are found again by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Integers
from flowrun.operators.keyed.integers import sorted_with_places

_FAN_BITS = 3
_FAN = 1 << _FAN_BITS
"""So many chunks of about one size become one."""

_SMALLEST_FULL_BYTES, _LARGEST_FULL_BYTES = 2 << 20, 16 << 20
_MANY = 32
"""Chunks do not grow beyond one part in so many of the log, within bounds: copies of much data cost more than chunks do, and hold up
all other work. (Offsets of texts are 32 bits wide anyway.)"""


class RowLog:
    """An append-only sequence of rows, addressed by position. Chunks are merged by size tiers: a row is copied O(log n) times.

    Taking rows costs in proportion to the rows taken, whatever the log holds.
    """

    def __init__(self) -> None:
        self._chunks: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def chunks(self) -> int:
        """In how many pieces the rows are kept."""
        return len(self._chunks)

    def append(self, rows: pa.RecordBatch) -> int:
        """Add rows, all of one schema; gives the position of the first."""
        first = self._rows
        if rows.num_rows == 0 and self._chunks:
            return first
        self._chunks.append(rows)
        self._starts.append(first)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        while (merged := self._mergeable()) > 1:  # one of the next tier may be the eighth there
            self._chunks[-merged:] = [pa.concat_batches(self._chunks[-merged:])]
            del self._starts[len(self._chunks) :]
        return first

    def _mergeable(self) -> int:
        """How many of the last chunks are to become one: little ones at once, others when there are many of one tier."""
        sizes = [c.num_rows for c in self._chunks[-_FAN:]]
        tier = _tier(sizes[-1])
        if tier == 0:
            return 2 if len(sizes) > 1 and _tier(sizes[-2]) == 0 else 1
        if len(sizes) < _FAN or any(_tier(s) > tier for s in sizes):
            return 1
        size_bytes = np.cumsum([c.nbytes for c in reversed(self._chunks[-_FAN:])])
        return int(np.count_nonzero(size_bytes <= self._full_bytes))

    @property
    def _full_bytes(self) -> int:
        return min(max(self._bytes // _MANY, _SMALLEST_FULL_BYTES), _LARGEST_FULL_BYTES)

    def view(self) -> RowLog:
        """The log as it is now; it shares the rows and never changes by itself."""
        view = RowLog()
        view._chunks, view._starts, view._rows = list(self._chunks), list(self._starts), self._rows
        return view

    def take(self, positions: Integers) -> pa.RecordBatch:
        """The rows at some positions, in that order; something must have been appended before."""
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(positions))
        order = None
        if (positions[1:] < positions[:-1]).any():
            positions, order = sorted_with_places(positions)
        bounds = np.searchsorted(positions, [*self._starts, self._rows])
        parts = [
            chunk.take(pa.array(positions[a:b] - start))
            for chunk, start, a, b in zip(self._chunks, self._starts, bounds[:-1], bounds[1:], strict=True)
            if a < b
        ]
        if not parts:
            return self._chunks[0].slice(0, 0)
        taken = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if order is None:
            return taken
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return taken.take(pa.array(back))

    def take_columns(self, positions: Integers, columns: Sequence[int]) -> list[pa.Array]:
        """Some columns of the rows at some positions; something must have been appended before."""
        view = RowLog()
        view._starts, view._rows = self._starts, self._rows
        view._chunks = [c.select(list(columns)) for c in self._chunks]
        return list(view.take(positions).columns)

    def keep(self, positions: Integers) -> None:
        """Keep only these rows, which get the positions 0, 1, … in the order given."""
        if not self._chunks:
            return
        kept = self.take(positions)
        self._chunks, self._starts, self._rows, self._bytes = [kept], [0], kept.num_rows, kept.nbytes


def _tier(rows: int) -> int:
    """0 for less than 1024 rows, 1 for less than 8 times as many, and so on."""
    return ((rows >> 10).bit_length() + _FAN_BITS - 1) // _FAN_BITS
