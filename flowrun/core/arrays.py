"""Types of NumPy arrays by name, and what NumPy and Arrow arrays need everywhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Words = npt.NDArray[np.int64]
"""Rows × 64-bit words, in which numbers of any kind are stored as their bits."""
UInt64s = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Kinds = npt.NDArray[np.int8]
"""A `RowKind` for each row."""


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column with another Arrow type; the column itself if it has that type already.

    >>> as_type(pa.array([1, None], pa.int32()), pa.int64()).type
    DataType(int64)

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
    """
    return column if column.type == kind else pc.cast(column, kind)


def decoded(column: pa.DictionaryArray) -> pa.Array:
    """The values of a column that is encoded by a dictionary, as large ones if they are views, of which Arrow 26 takes none by position.

    >>> views = pa.array(["a", "b"], pa.string_view())
    >>> decoded(pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), views)).to_pylist()
    ['b', None, 'a']
    """
    values = column.dictionary
    for is_view, large in ((pa.types.is_string_view, pa.large_string()), (pa.types.is_binary_view, pa.large_binary())):
        if is_view(values.type):
            values = values.cast(large)
    return values.take(column.indices)


def any_null(columns: pa.RecordBatch) -> Bools:
    """Which rows have a NULL in some column.

    >>> any_null(pa.record_batch({"a": [1, None], "b": ["x", "y"]})).tolist()
    [False, True]
    """
    missing = np.zeros(columns.num_rows, np.bool_)
    for column in columns.columns:
        if column.null_count:
            missing |= column.is_null().to_numpy(zero_copy_only=False)
    return missing
