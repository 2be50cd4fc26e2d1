"""How kernels see columns: constants against arrays, evaluation once per distinct value, fast paths for ASCII text.

Arrow has no kernel for much of SQL (Java regular expressions, JSON paths, digests, date patterns). `map_distinct` evaluates a Python
function once per distinct value of a column and spreads the results with one `take`, so that its cost follows the number of distinct
values, not of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.errors import DataError
from flowrun.functions.contract import Datum


def is_constant(datum: Datum) -> bool:
    """Whether the argument is one value for all rows."""
    return isinstance(datum, pa.Scalar)


def null_of(type: DataType) -> pa.Scalar:
    """NULL as a constant of the given type."""
    return pa.scalar(None, type.arrow)


def as_array(datum: Datum, rows: int) -> pa.Array:
    """The argument as an array of `rows` values; constants are repeated."""
    if isinstance(datum, pa.Scalar):
        # Arrow cannot repeat a nested value no times
        return pa.nulls(rows, datum.type) if not datum.is_valid or not rows else pa.repeat(datum, rows)
    return datum


def any_null_constant(arguments: Sequence[Datum]) -> bool:
    """Whether one of the arguments is a constant NULL, which makes the result of most functions NULL."""
    return any(isinstance(a, pa.Scalar) and not a.is_valid for a in arguments)


def all_constant(arguments: Sequence[Datum]) -> bool:
    """Whether no argument varies by row."""
    return all(isinstance(a, pa.Scalar) for a in arguments)


def map_distinct(
    function: Callable[..., Any],
    arguments: Sequence[Datum],
    rows: int,
    result: pa.DataType,
    *,
    pass_nulls: bool = False,
) -> Datum:
    """`function` of the arguments' Python values, evaluated once per distinct value if one argument varies, else once a row.

    Args:
        function: gets one Python value an argument; returns what `pa.scalar(…, result)` accepts.
        arguments: columns and constants.
        rows: length of the columns.
        result: Arrow type of the result.
        pass_nulls: call it with None too; otherwise NULL in any argument gives NULL.

    Raises:
        DataError: from `function`, with the row of the first value that failed.
    """
    if not pass_nulls and any_null_constant(arguments):
        return pa.scalar(None, result)
    varying = [i for i, a in enumerate(arguments) if not isinstance(a, pa.Scalar)]
    constants = [a.as_py() if isinstance(a, pa.Scalar) else None for a in arguments]
    if not varying:
        return pa.scalar(function(*constants), result)
    if len(varying) == 1 and not pa.types.is_nested(arguments[varying[0]].type):
        column = arguments[varying[0]]
        encoded = pc.dictionary_encode(column, null_encoding="encode" if pass_nulls else "mask")
        values = _spread(function, constants, varying[0], encoded)
        return gather(pa.array(values, result), encoded.indices)
    columns = [a.to_pylist() if i in varying else [constants[i]] * rows for i, a in enumerate(arguments)]
    computed: list[Any] = []
    for row, given in enumerate(zip(*columns, strict=True)):
        try:
            computed.append(None if not pass_nulls and None in given else function(*given))
        except DataError as error:
            raise _at_row(error, row) from error
    return pa.array(computed, result)


def _spread(
    function: Callable[..., Any], constants: list[Any], position: int, encoded: pa.DictionaryArray
) -> list[Any]:
    distinct = encoded.dictionary.to_pylist()
    before, after = constants[:position], constants[position + 1 :]
    computed: list[Any] = []
    try:
        if not before and not after:
            computed.extend(map(function, distinct))
        else:
            computed.extend(function(*before, value, *after) for value in distinct)
    except DataError as error:
        row = pc.index(encoded.indices, len(computed)).as_py()
        raise _at_row(error, row) from error
    return computed


def gather(values: pa.Array, indices: pa.Array) -> pa.Array:
    """The value of each row, from those of a dictionary's entries."""
    if len(values) == len(indices) and not indices.null_count:
        return values  # every row was distinct, so the dictionary is the column itself
    return values.take(indices)


def _at_row(error: DataError, row: int) -> DataError:
    return error if error.row is not None else DataError(error.message, row=row, hint=error.hint)


@record
class Distinct:
    """A kernel from a Python function of values; see `map_distinct`."""

    function: Callable[..., Any]
    pass_nulls: bool = False

    def __call__(self, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
        return map_distinct(self.function, arguments, rows, result.arrow, pass_nulls=self.pass_nulls)


@record
class ArrowKernel:
    """A kernel that is one call of `pyarrow.compute`; the result is cast if Arrow's type differs."""

    function: str
    options: Callable[[], pc.FunctionOptions] | None = None

    def __call__(self, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
        options = None if self.options is None else self.options()
        return as_type(pc.call_function(self.function, list(arguments), options), result)


def as_type(datum: Datum, type: DataType) -> Datum:
    """The datum in the Arrow type of `type`; a no-op if it is that already."""
    return datum if datum.type == type.arrow else datum.cast(type.arrow)


def join_valid(values: Sequence[Datum], separator: Datum) -> Datum:
    """The strings of each row joined by a separator, NULLs left out; empty if all are NULL; NULL if the separator is."""
    missing = pc.is_null(values[0])
    for value in values[1:]:
        missing = pc.and_(missing, pc.is_null(value))
    # Arrow (26) drops a row whose strings are all NULL from its result, so such rows get an empty one
    first = pc.if_else(missing, pa.scalar("", values[0].type), values[0])
    return pc.binary_join_element_wise(first, *values[1:], separator, null_handling="skip")


def is_all_ascii(array: pa.Array) -> bool:
    """Whether every value of a string array is ASCII, from one look at its bytes (about 0.05 ns a byte)."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return True
    bounds = np.frombuffer(offsets, np.int32, count=len(array) + 1, offset=4 * array.offset)
    span = np.frombuffer(data, np.int8)[bounds[0] : bounds[-1]]
    return not span.size or bool(span.min() >= 0)


def ascii_fast_path(
    datum: Datum, fast: Callable[[Any], Datum], function: Callable[[str], Any], result: DataType
) -> Datum:
    """`fast` (an Arrow kernel that is right for ASCII text and harmless for other) and, on other rows, `function` per distinct value."""
    if isinstance(datum, pa.Scalar):
        return pa.scalar(function(datum.as_py()) if datum.is_valid else None, result.arrow)
    quick = as_type(fast(datum), result)
    if is_all_ascii(datum):
        return quick
    other = pc.fill_null(pc.invert(pc.string_is_ascii(datum)), False)
    exact = map_distinct(function, [datum.filter(other)], 0, result.arrow)
    return pc.replace_with_mask(quick, other, exact)


def string_matrix(array: pa.Array, width: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """The bytes of a string array as rows × `width`, without a copy, or None unless every value has exactly `width` bytes."""
    if array.null_count or not len(array) or width == 0:
        return None
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, count=len(array) + 1, offset=4 * array.offset)
    if bounds[-1] - bounds[0] != width * len(array) or not bool((np.diff(bounds) == width).all()):
        return None
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].reshape(len(array), width)


def strings_from_matrix(matrix: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.StringArray:
    """A string array whose values are the rows of a C-contiguous rows × width ASCII matrix; one value a row, no NULLs."""
    rows, width = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix)))


def directly(text: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Arrow's own parse of text that needs no help, which is most text; None if some value does."""
    try:
        # Arrow goes on after a failure and pays for each one: a few values tell whether there will be many
        pc.cast(text.slice(0, 64), target)
        return pc.cast(text, target)
    except pa.ArrowInvalid:
        return None


def text_bytes(text: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of a column of text, all together, or of the column that it is a slice of; without a copy."""
    data = text.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def with_nulls_of(values: pa.Array, source: pa.Array) -> pa.Array:
    """`values` with NULL wherever `source` is NULL."""
    if not source.null_count:
        return values
    return pc.if_else(pc.is_valid(source), values, pa.scalar(None, values.type))
