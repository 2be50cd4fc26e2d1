# ruff: noqa: ARG001 - kernels share one signature
"""CAST and TRY_CAST over Arrow columns, with Flink's meaning; values that do not fit are errors that name value and row, never NULL or
a wrong number, unless the cast is safe.

`cast_datum` is the entry. Which pairs exist at all is `flowrun.functions.coercion.castable`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools
from flowrun.core.types import STRING, DataType, TypeRoot
from flowrun.errors import DataError, InternalError
from flowrun.functions.casts.numeric import (
    Outcome,
    as_numpy,
    boolean_to_number,
    number_to_boolean,
    number_to_number,
)
from flowrun.functions.casts.parsing import (
    approximate_to_decimal,
    text_to_approximate,
    text_to_binary,
    text_to_boolean,
    text_to_decimal,
    text_to_integer,
    written_boolean,
)
from flowrun.functions.casts.time_texts import (
    text_to_date,
    text_to_time,
    text_to_timestamp,
    written_date,
    written_time,
    written_timestamp,
)
from flowrun.functions.casts.to_text import entries, relist, sized, to_text
from flowrun.functions.contract import Datum
from flowrun.functions.decimals import to_mask

_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}

Kernel = Callable[[pa.Array, DataType, DataType], Outcome]


def cast_datum(datum: Datum, source: DataType, target: DataType, *, safe: bool = False) -> Datum:
    """The column or constant converted to `target`.

    With `safe` (TRY_CAST), values that cannot be converted become NULL.

    Raises:
        DataError: a value cannot be converted; names the value, `row` is its index (0 for a constant).
    """
    if isinstance(datum, pa.Scalar):
        if not datum.is_valid:
            return pa.scalar(None, target.arrow)
        return cast_array(pa.array([datum.as_py()], datum.type), source, target, safe=safe)[0]
    return cast_array(datum, source, target, safe=safe)


def cast_array(array: pa.Array, source: DataType, target: DataType, *, safe: bool = False) -> pa.Array:
    """The column converted to `target`; see `cast_datum`.

    >>> from flowrun.core.types import INT, STRING
    >>> cast_array(pa.array([" 12 ", "x", None]), STRING, INT, safe=True).to_pylist()
    [12, None, None]
    """
    if is_relabelling(source, target):
        return array
    result, bad = _convert(array, source, target)
    return result if safe else _all_of(result, bad, array, source, target)


def read_array(text: pa.Array, target: DataType) -> pa.Array:
    """Texts that somebody has written as values of a type: as CAST, and dates, times and truth values in some more forms.

    These are `2024-03-01T10:00`, a `Z` at the end of a TIMESTAMP_LTZ, and spaces around; but no day that the month lacks and no year alone.

    Raises:
        DataError: a text is none; names the text, `row` is its index.

    >>> from flowrun.core.types import timestamp
    >>> str(read_array(pa.array(["2024-03-01T10:00"]), timestamp(0))[0])
    '2024-03-01 10:00:00'
    """
    kernel = _WRITTEN.get(target.root)
    if kernel is None or text.null_count == len(text):
        return cast_array(text, STRING, target)
    return _all_of(*kernel(text, STRING, target), text, STRING, target)


def _all_of(result: pa.Array, bad: Bools | None, array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if bad is not None and bad.any():
        row = int(np.argmax(bad))
        value = array[row].as_py()
        shown = f"'{value}'" if isinstance(value, str) else str(value)
        hint = (
            "use TRY_CAST to get NULL instead, or a wider type"
            if source.is_numeric
            else "use TRY_CAST to get NULL instead"
        )
        raise DataError(f"cannot cast {shown} to {target}", row=row, hint=hint)
    return result


def is_relabelling(source: DataType, target: DataType) -> bool:
    """Whether the cast changes no value and no Arrow type: CHAR(3) to STRING, TIMESTAMP(0) to TIMESTAMP(3).

    >>> from flowrun.core.types import STRING, char, varchar
    >>> is_relabelling(char(3), STRING), is_relabelling(STRING, varchar(3))
    (True, False)
    """
    if source == target:
        return True
    texts = source.is_character and target.root is TypeRoot.VARCHAR
    if texts or (source.is_binary and target.root is TypeRoot.VARBINARY):
        return target.length is None or (source.length is not None and source.length <= target.length)
    if source.root is target.root and source.is_temporal:
        return source.arrow == target.arrow and (source.precision or 0) <= (target.precision or 0)
    return False


def is_fallible(source: DataType, target: DataType) -> bool:
    """Whether some value of `source` has no counterpart in `target`, so that the cast may fail.

    >>> from flowrun.core.types import BIGINT, INT, STRING
    >>> is_fallible(INT, BIGINT), is_fallible(BIGINT, INT), is_fallible(STRING, INT), is_fallible(INT, STRING)
    (False, True, True, False)
    """
    if is_relabelling(source, target) or target.is_character or target.is_binary or source.root is TypeRoot.NULL:
        return False
    if source.is_character:
        return True
    if source.is_numeric and target.is_numeric:
        return not _fits(source, target)
    if source.is_nested:
        return any(is_fallible(s, t) for s, t in zip(source.children, target.children, strict=True))
    return source.root is TypeRoot.BOOLEAN and target.root is TypeRoot.DECIMAL


def _fits(source: DataType, target: DataType) -> bool:
    if target.is_approximate:
        return source.is_integer or source.root is target.root or target.root is TypeRoot.DOUBLE
    digits = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INTEGER: 10, TypeRoot.BIGINT: 19}
    if source.is_integer and target.is_integer:
        return digits[source.root] <= digits[target.root]
    if source.is_approximate or target.is_integer:
        return False
    room = (target.precision or 0) - (target.scale or 0)
    if source.is_integer:
        return digits[source.root] <= room
    rounds = (source.scale or 0) > (target.scale or 0)  # rounding 9.9 to no fraction needs a digit more
    return (source.precision or 0) - (source.scale or 0) + rounds <= room


def _convert(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    if source.root is TypeRoot.NULL or array.null_count == len(array):
        return pa.nulls(len(array), target.arrow), None
    if target.is_character:
        return sized(to_text(array, source), source, target), None
    if source.root is target.root and source.is_nested:
        return _nested(array, source, target)
    kernel = _kernel(source, target)
    if kernel is None:
        raise InternalError(f"no kernel casts {source} to {target}")
    return kernel(array, source, target)


def _kernel(source: DataType, target: DataType) -> Kernel | None:
    if source.is_character:
        return _FROM_TEXT.get(target.root)
    if source.is_approximate and target.root is TypeRoot.DECIMAL:
        return approximate_to_decimal
    if source.is_numeric and target.is_numeric:
        return number_to_number
    if source.root is TypeRoot.BOOLEAN and target.is_numeric:
        return boolean_to_number
    if source.is_numeric and target.root is TypeRoot.BOOLEAN:
        return number_to_boolean
    if source.is_binary and target.is_binary:
        return _binary_to_binary
    if source.is_temporal and target.is_temporal:
        return _temporal
    if source.is_interval and target.is_integer:
        return _interval_to_integer
    return None


def _binary_to_binary(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    if target.length is not None:
        array = pc.binary_slice(array, 0, target.length)
    if target.root is TypeRoot.BINARY:
        short = [None if v is None else v.ljust(target.length or 1, b"\0") for v in array.to_pylist()]
        return pa.array(short, pa.binary()), None
    return array, None


def _text_to_sized_binary(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    return _binary_to_binary(text_to_binary(array, source, target)[0], source, target)


def _interval_to_integer(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    counts = array.view(pa.int64()) if source.root is TypeRoot.INTERVAL_DAY_TIME else array
    return pc.cast(counts, target.arrow), None


def _temporal(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Dates, times and timestamps into each other through the count of units since midnight or the epoch; UTC."""
    unit = "ms" if source.root is TypeRoot.DATE else source.arrow.unit
    goal = "ms" if target.root is TypeRoot.DATE else target.arrow.unit
    plain = (
        pc.cast(array, pa.int64()) if array.type.bit_width == 64 else pc.cast(pc.cast(array, pa.int32()), pa.int64())
    )
    counts = as_numpy(plain)
    if source.root is TypeRoot.DATE:
        counts = counts * _PER_DAY["ms"]
    if target.root is TypeRoot.TIME:
        counts = counts % _PER_DAY[unit]
    bad: Bools | None = None
    if _PER_MS[goal] > _PER_MS[unit]:
        factor = _PER_MS[goal] // _PER_MS[unit]
        limit = (2**63 - 1) // factor
        outside: Bools = (counts > limit) | (counts < -limit)
        bad = outside & to_mask(pc.is_valid(array)) if outside.any() else None
        counts = np.where(outside, 0, counts) * factor
    elif _PER_MS[goal] < _PER_MS[unit]:
        counts = counts // (_PER_MS[unit] // _PER_MS[goal])
    if target.root is TypeRoot.DATE:
        counts = counts // _PER_DAY["ms"]
    elif (target.precision or 0) < _UNIT_DIGITS[goal]:
        step = 10 ** (_UNIT_DIGITS[goal] - (target.precision or 0))
        counts = counts // step * step
    invalid = ~to_mask(pc.is_valid(array)) if array.null_count else None
    if bad is not None:
        invalid = bad if invalid is None else invalid | bad
    narrow = np.int32 if target.arrow.bit_width == 32 else np.int64
    return pa.array(counts.astype(narrow), mask=invalid).view(target.arrow), bad


def _nested(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    if source.root is TypeRoot.ROW:
        return _row_to_row(array, source, target)
    if source.root is TypeRoot.MAP:
        return _map_to_map(array, source, target)
    values, bad = _element(pc.list_flatten(array), source.children[0], target.children[0])
    result = pc.cast(relist(array, values), target.arrow)
    if bad is None:
        return result, None
    failed = _owners(array, bad)
    return _without(result, failed), failed


def _map_to_map(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    pairs = entries(array)
    flat = pc.list_flatten(pairs)
    key, bad_key = _element(flat.field(0), source.children[0], target.children[0])
    value, bad_value = _element(flat.field(1), source.children[1], target.children[1])
    if bad_key is not None or bad_value is not None:
        bad = bad_value if bad_key is None else bad_key if bad_value is None else bad_key | bad_value
        assert bad is not None
        failed = _owners(pairs, bad)
        # again without the rows that failed: a map cannot even be built with the NULL keys they would have
        return _map_to_map(_without(array, failed), source, target)[0], failed
    shape = relist(pairs, key)
    offsets = shape.offsets
    if pairs.null_count:
        present = pa.concat_arrays([pc.is_valid(pairs), pa.array([True])])
        offsets = pc.if_else(present, offsets, pa.scalar(None, pa.int32()))
    return pa.MapArray.from_arrays(offsets, key, value, target.arrow), None


def _owners(lists: pa.ListArray, bad: Bools) -> Bools:
    """The rows that hold one of the bad elements."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    failed = np.zeros(len(lists), np.bool_)
    failed[np.repeat(np.arange(len(lists)), lengths)[bad]] = True
    return failed


def _element(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    return (array, None) if is_relabelling(source, target) else _convert(array, source, target)


def _without(array: pa.Array, failed: Bools) -> pa.Array:
    # if_else has no kernel for maps; take with NULL indices works for every type
    indices = pa.array(np.arange(len(array)), mask=failed)
    return array.take(indices)


def _row_to_row(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    fields, failed = [], np.zeros(len(array), np.bool_)
    for i, (s, t) in enumerate(zip(source.children, target.children, strict=True)):
        result, bad = _element(pc.struct_field(array, [i]), s, t)
        fields.append(result)
        if bad is not None:
            failed |= bad
    missing = pc.or_(pc.is_null(array), pa.array(failed))
    struct = pa.StructArray.from_arrays(fields, fields=list(target.arrow), mask=missing)
    return struct, failed if failed.any() else None


_FROM_TEXT: dict[TypeRoot, Kernel] = {
    TypeRoot.TINYINT: text_to_integer,
    TypeRoot.SMALLINT: text_to_integer,
    TypeRoot.INTEGER: text_to_integer,
    TypeRoot.BIGINT: text_to_integer,
    TypeRoot.FLOAT: text_to_approximate,
    TypeRoot.DOUBLE: text_to_approximate,
    TypeRoot.DECIMAL: text_to_decimal,
    TypeRoot.BOOLEAN: text_to_boolean,
    TypeRoot.DATE: text_to_date,
    TypeRoot.TIME: text_to_time,
    TypeRoot.TIMESTAMP: text_to_timestamp,
    TypeRoot.TIMESTAMP_LTZ: text_to_timestamp,
    TypeRoot.BINARY: _text_to_sized_binary,
    TypeRoot.VARBINARY: _text_to_sized_binary,
}
_WRITTEN: dict[TypeRoot, Kernel] = {
    TypeRoot.BOOLEAN: written_boolean,
    TypeRoot.DATE: written_date,
    TypeRoot.TIME: written_time,
    TypeRoot.TIMESTAMP: written_timestamp,
    TypeRoot.TIMESTAMP_LTZ: written_timestamp,
}
