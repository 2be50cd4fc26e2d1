"""Internal functions: what rewrites of plans compute and users cannot name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.types import INT, DataType
from flowrun.functions.contract import Argument, Datum, ScalarFunction, Signature
from flowrun.functions.vectors import as_array, map_distinct

BUCKET = "$BUCKET"


def bucket_of(value: object, buckets: int) -> int:
    """The bucket of a value that is no integer: equal values have one, in every process.

    >>> bucket_of(0.0, 8) == bucket_of(-0.0, 8), 0 <= bucket_of("a", 8) < 8
    (True, True)
    """
    if isinstance(value, float):
        value += 0.0  # -0.0 equals 0.0
    octets = value if isinstance(value, bytes) else str(value).encode()
    return zlib.crc32(octets) % buckets


def _kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """NULL is in no bucket: the result is NULL."""
    values, buckets = arguments
    if pa.types.is_integer(values.type):
        array = as_array(values, rows)
        remainders = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) % buckets.as_py()
        mask = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(remainders.astype(np.int32), result.arrow, mask=mask)
    return map_distinct(bucket_of, arguments, rows, result.arrow)


def _rule(arguments: Sequence[Argument]) -> Signature:
    return Signature(tuple(a.type for a in arguments), INT)


INTERNALS = (
    ScalarFunction(BUCKET, _rule, _kernel, "$BUCKET(value, buckets)", "One of so many buckets, by the value."),
)
"""Functions that are in no reference."""
