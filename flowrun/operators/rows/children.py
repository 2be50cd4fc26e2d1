"""Rows made of other rows: each keeps event time and kind of the row that it came from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema

_MOST_ROWS = 128 * 1024


def with_columns_of(batch: RecordBatch, parents: pa.Array, added: list[pa.Array], schema: Schema) -> RecordBatch:
    """Rows of a batch, each as often as it is in `parents` (positions), with the added columns behind theirs."""
    rows = batch.take(parents)
    return rows.with_columns(pa.RecordBatch.from_arrays([*rows.columns.columns, *added], schema=schema.arrow))


def pieces(batch: RecordBatch, children: Integers, most: int = _MOST_ROWS) -> Iterator[tuple[RecordBatch, Integers]]:
    """The batch in slices that give about `most` rows each, with the numbers of children of their rows.

    No cut is made where not needed: a batch with few children comes whole.

    >>> from flowrun.core.elements import RecordBatch
    >>> batch = RecordBatch(pa.record_batch({"a": [1, 2, 3]}))
    >>> [(part.num_rows, counts.tolist()) for part, counts in pieces(batch, np.array([4, 4, 1]), most=5)]
    [(1, [4]), (2, [4, 1])]
    """
    ends = np.cumsum(children)
    start = 0
    while start < len(children):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield (
            (batch, children)
            if stop - start == len(children)
            else (
                batch.slice(start, stop - start),
                children[start:stop],
            )
        )
        start = stop
