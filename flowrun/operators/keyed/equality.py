"""Which rows are equal, as keys and results are: NULL equals NULL, NaN equals NaN, and −0.0 equals 0.0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers
from flowrun.state.key_groups import hash_columns


def rows_equal(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Bools:
    """For each row whether all columns agree; both sides have `rows` rows and the same types.

    >>> rows_equal([pa.array([1, None, 3])], [pa.array([1, None, 4])], 3).tolist()
    [True, True, False]
    """
    same = np.ones(rows, np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= columns_equal(a, b)
    return same


def columns_equal(left: pa.Array, right: pa.Array) -> Bools:
    """For each row whether two columns of one type agree.

    >>> columns_equal(pa.array([0.0, float("nan")]), pa.array([-0.0, float("nan")])).tolist()
    [True, True]
    """
    kind = left.type
    if pa.types.is_null(kind):
        return np.ones(len(left), np.bool_)
    if pa.types.is_struct(kind):
        alike = rows_equal(left.flatten(), right.flatten(), len(left))
        return _with_nulls(alike, left, right)
    if pa.types.is_nested(kind):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), np.bool_, len(left))
    equal = pc.equal(left, right)
    if pa.types.is_floating(kind):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if not equal.null_count:
        return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)
    return _with_nulls(pc.fill_null(equal, False).to_numpy(zero_copy_only=False), left, right)


def equal_rows(rows: pa.RecordBatch, hashed: tuple[int, ...]) -> Integers:
    """A number for each row, equal rows (NULL equals NULL) having the same; `hashed` are columns that can be hashed.

    >>> equal_rows(pa.record_batch({"n": [4, None, 4, None]}), (0,)).tolist()
    [0, 1, 0, 1]
    """
    count = rows.num_rows
    hashes = hash_columns([rows.column(i) for i in hashed]).view(np.int64) if hashed else np.zeros(count, np.int64)
    groups = np.zeros(count, np.int64)
    waiting = np.arange(count)
    numbered = 0
    while len(waiting):  # again only for rows that are different although their hashes are not
        encoded = pa.array(hashes[waiting]).dictionary_encode()
        local = encoded.indices.to_numpy().astype(np.int64)
        total = len(encoded.dictionary)
        leaders = np.empty(total, np.int64)
        leaders[local[::-1]] = waiting[::-1]
        mine, theirs = rows.take(pa.array(waiting)), rows.take(pa.array(leaders[local]))
        same = rows_equal(mine.columns, theirs.columns, len(waiting))
        groups[waiting[same]] = numbered + local[same]
        numbered += total
        waiting = waiting[~same]
    return groups


def _with_nulls(equal: Bools, left: pa.Array, right: pa.Array) -> Bools:
    if not left.null_count and not right.null_count:
        return equal
    no_left = left.is_null().to_numpy(zero_copy_only=False)
    no_right = right.is_null().to_numpy(zero_copy_only=False)
    both: Bools = np.where(no_left | no_right, no_left & no_right, equal)
    return both
