"""An append-only log of rows that are found again by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.operators.keyed.integers import Integers

_LITTLE = 1024
_LARGEST_BYTES = 16 << 20
"""Chunks of a log do not grow beyond that: one that is merged holds up all other work. (Offsets of texts are 32 bits wide anyway.)"""


class RowLog:
    """An append-only sequence of rows, addressed by position. Chunks are merged by size tiers: a row is copied O(log n) times.

    Taking rows costs in proportion to the rows taken, whatever the log holds.
    """

    def __init__(self) -> None:
        self._chunks: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: pa.RecordBatch) -> int:
        """Add rows, all of one schema; gives the position of the first."""
        first = self._rows
        if rows.num_rows == 0 and self._chunks:
            return first
        self._chunks.append(rows)
        self._starts.append(first)
        self._rows += rows.num_rows
        merged = len(self._chunks)
        size = rows.num_rows
        size_bytes = rows.nbytes
        while merged > 1 and self._chunks[merged - 2].num_rows <= 2 * size + _LITTLE:
            size_bytes += self._chunks[merged - 2].nbytes
            if size_bytes > _LARGEST_BYTES:
                break
            merged -= 1
            size += self._chunks[merged - 1].num_rows
        if merged < len(self._chunks):
            self._chunks[merged - 1 :] = [pa.concat_batches(self._chunks[merged - 1 :])]
            del self._starts[merged:]
        return first

    def view(self) -> RowLog:
        """The log as it is now; it shares the rows and never changes by itself."""
        view = RowLog()
        view._chunks, view._starts, view._rows = list(self._chunks), list(self._starts), self._rows
        return view

    def take(self, positions: Integers) -> pa.RecordBatch:
        """The rows at some positions, in that order; something must have been appended before."""
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(positions))
        chunk_of = np.searchsorted(np.array(self._starts), positions, side="right") - 1
        if len(self._chunks) <= np.iinfo(np.uint16).max:
            chunk_of = chunk_of.astype(np.uint16)  # sorted in linear time
        order = np.argsort(chunk_of, kind="stable")
        bounds = np.searchsorted(chunk_of[order], np.arange(len(self._chunks) + 1))
        parts = [
            chunk.take(pa.array(positions[order[bounds[i] : bounds[i + 1]]] - start))
            for i, (chunk, start) in enumerate(zip(self._chunks, self._starts, strict=True))
            if bounds[i] < bounds[i + 1]
        ]
        if not parts:
            return self._chunks[0].slice(0, 0)
        taken = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if (order[1:] > order[:-1]).all():
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
        self._chunks, self._starts, self._rows = [kept], [0], kept.num_rows
