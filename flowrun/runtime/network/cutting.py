"""Cutting batches by rows, without copying: what is larger than its buffers goes in several pieces.

A row is never cut, nor is an update pair (−U, +U), whose rows stay together on every exchange. Dictionaries of columns go with every
piece; a batch that is mostly dictionaries is therefore not cut below twice their size.
"""

from __future__ import annotations

from flowrun.core.elements import RecordBatch, RowKind


def rows_within(batch: RecordBatch, most_bytes: int) -> int:
    """How many rows from the beginning of a batch take `most_bytes` at most; at least one row, or one update pair.

    >>> import pyarrow as pa
    >>> rows = RecordBatch(pa.record_batch({"n": pa.array(range(100), pa.int64())}))
    >>> rows_within(rows, 240), rows_within(rows, 8_000), rows_within(rows, 0)
    (30, 100, 1)
    """
    shared = batch.slice(0, 0).nbytes
    most_bytes = max(most_bytes, 2 * shared)
    fits, too_many = 0, batch.num_rows + 1
    while too_many - fits > 1:
        rows = (fits + too_many) // 2
        if batch.slice(0, rows).nbytes <= most_bytes:
            fits = rows
        else:
            too_many = rows
    return _whole_pairs(batch, fits)


def _whole_pairs(batch: RecordBatch, rows: int) -> int:
    """The number nearest to `rows`, at least 1, at which no update pair is torn apart."""
    rows = max(rows, 1)
    if batch.row_kinds is None or rows >= batch.num_rows:
        return min(rows, batch.num_rows)
    before, behind = (batch.row_kinds[i].as_py() for i in (rows - 1, rows))
    if before == RowKind.UPDATE_BEFORE and behind == RowKind.UPDATE_AFTER:
        return rows - 1 if rows > 1 else 2
    return rows
