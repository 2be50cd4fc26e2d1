"""Rows of outer joins that found no match: padded with NULLs for the other side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Integers


def padded_right(left: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Left rows without match: their columns, then NULLs for the rest of `schema`.

    >>> padded_right(pa.record_batch({"a": [1]}), pa.schema([("l", pa.int64()), ("r", pa.string())])).to_pylist()
    [{'l': 1, 'r': None}]
    """
    nulls = [pa.nulls(left.num_rows, f.type) for f in list(schema)[left.num_columns :]]
    return pa.RecordBatch.from_arrays([*left.columns, *nulls], schema=schema)


def padded_left(right: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Right rows without match: NULLs for the first columns of `schema`, then their columns.

    >>> padded_left(pa.record_batch({"b": ["x"]}), pa.schema([("l", pa.int64()), ("r", pa.string())])).to_pylist()
    [{'l': None, 'r': 'x'}]
    """
    nulls = [pa.nulls(right.num_rows, f.type) for f in list(schema)[: len(schema) - right.num_columns]]
    return pa.RecordBatch.from_arrays([*nulls, *right.columns], schema=schema)


def left_joined(left: pa.RecordBatch, right: pa.RecordBatch, at: Integers, schema: pa.Schema) -> pa.RecordBatch:
    """All left rows in order, each with its right row: row i of `right` belongs to left row `at[i]` (ascending), the others get NULLs.

    >>> rows = left_joined(
    ...     pa.record_batch({"a": [1, 2]}), pa.record_batch({"b": ["x"]}), np.array([1]), pa.schema([("a", pa.int64()), ("b", pa.string())])
    ... )
    >>> rows.to_pylist()
    [{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}]
    """
    if len(at) == left.num_rows:
        return pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=schema)
    if not len(at):
        return padded_right(left, schema)
    missing = np.ones(left.num_rows, np.bool_)
    missing[at] = False
    places = np.zeros(left.num_rows, np.int64)
    places[at] = np.arange(len(at))
    chosen = pa.array(places, mask=missing)
    return pa.RecordBatch.from_arrays([*left.columns, *(c.take(chosen) for c in right.columns)], schema=schema)
