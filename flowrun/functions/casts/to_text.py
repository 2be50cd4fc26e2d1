"""Cast kernels to text: every type's spelling as Flink prints it (numbers as Java does), then CHAR(n) and VARCHAR(n) lengths."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.decimals import plain_text, to_mask

_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}


def to_text(array: pa.Array, source: DataType) -> pa.StringArray:
    """The values of any type as text; NULL stays NULL, inside nested values it reads `NULL`."""
    match source.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return array
        case TypeRoot.BOOLEAN:
            return pc.if_else(array, "TRUE", "FALSE")
        case TypeRoot.DECIMAL:
            return plain_text(array)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return approximate_text(array)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return _decoded(array)
        case TypeRoot.TIME | TypeRoot.TIMESTAMP:
            return _clock_text(array, source.precision or 0)
        case TypeRoot.TIMESTAMP_LTZ:
            return _clock_text(array.view(pa.timestamp(array.type.unit)), source.precision or 0)
        case TypeRoot.INTERVAL_DAY_TIME:
            return _interval_text(array.view(pa.int64()), _day_time)
        case TypeRoot.INTERVAL_YEAR_MONTH:
            return _interval_text(array, _year_month)
        case TypeRoot.ARRAY:
            return _enclosed("[", pc.binary_join(_list_of_texts(array, source.children[0]), ", "), "]")
        case TypeRoot.MAP:
            return _map_text(array, source)
        case TypeRoot.ROW:
            return _row_text(array, source)
        case _:
            return pc.cast(array, pa.string())


def sized(text: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Text cut to the target's length and, for CHAR(n), filled up with spaces."""
    length = target.length
    if length is None:
        return text
    known = source.length if source.is_character else None
    if known is None or known > length:
        text = pc.utf8_slice_codeunits(text, 0, length)
    if target.root is TypeRoot.CHAR and not (source.root is TypeRoot.CHAR and known == length):
        text = pc.utf8_rpad(text, length, " ")
    return text


def approximate_text(array: pa.Array) -> pa.StringArray:
    """FLOAT and DOUBLE as Java's toString: `1.0`, `1.0E10`, `1.0E-4`, `NaN`, `Infinity`; plain from 0.001 up to ten million.

    The digits are the shortest that read back to the same number; at least two, of which the nearest (`4.9E-324`, as Java since 19).
    """
    magnitude = pc.abs(array)
    low, high = pa.scalar(1e-3, array.type), pa.scalar(1e7, array.type)
    plain = pc.or_(
        pc.and_(pc.greater_equal(magnitude, low), pc.less(magnitude, high)),
        pc.equal(magnitude, pa.scalar(0, array.type)),
    )
    text = pc.cast(array, pa.string())
    whole = pc.invert(pc.match_substring(text, "."))
    if pc.any(whole).as_py():
        text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    special = to_mask(pc.is_valid(array)) & ~to_mask(plain)
    if not special.any():
        return text
    mask = pa.array(special)
    chosen = array.filter(mask)
    pairs = zip(pc.cast(chosen, pa.string()).to_pylist(), chosen.to_pylist(), strict=True)
    return pc.replace_with_mask(text, mask, pa.array([_java_scientific(*pair) for pair in pairs], pa.string()))


def _java_scientific(text: str, value: float) -> str:
    named = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text)
    if named is not None:
        return named
    sign, digits, exponent = decimal.Decimal(text).normalize().as_tuple()
    if len(digits) == 1:
        sign, digits, exponent = decimal.Decimal(f"{value:.1e}").normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    return f"{'-' * sign}{shown[0]}.{shown[1:] or '0'}E{exponent + len(digits) - 1}"


def _decoded(array: pa.Array) -> pa.Array:
    try:
        return pc.cast(array, pa.string())
    except pa.ArrowInvalid:  # not UTF-8: Java puts U+FFFD, and so do we
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()], pa.string())


def _clock_text(array: pa.Array, precision: int) -> pa.Array:
    text = pc.cast(array, pa.string())
    surplus = _UNIT_DIGITS[array.type.unit] - precision
    if surplus <= 0:
        return text
    return pc.utf8_slice_codeunits(text, 0, -(surplus if precision else surplus + 1))


def _interval_text(counts: pa.Array, form: object) -> pa.Array:
    encoded = counts.dictionary_encode()
    assert callable(form)
    return pa.array([form(v) for v in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _day_time(ms: int) -> str:
    seconds, fraction = divmod(abs(ms), 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{'-' if ms < 0 else '+'}{day} {hour:02}:{minute:02}:{second:02}.{fraction:03}"


def _year_month(months: int) -> str:
    year, month = divmod(abs(months), 12)
    return f"{'-' if months < 0 else '+'}{year}-{month:02}"


def _shown(array: pa.Array, source: DataType) -> pa.Array:
    return pc.fill_null(to_text(array, source), "NULL")


def _enclosed(opening: str, text: pa.Array, closing: str) -> pa.Array:
    return pc.binary_join_element_wise(opening, text, closing, "")


def _list_of_texts(array: pa.Array, element: DataType) -> pa.ListArray:
    return relist(array, _shown(pc.list_flatten(array), element))


def relist(array: pa.Array, values: pa.Array) -> pa.ListArray:
    """A list array of the same shape and NULLs over other flattened values."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pc.is_null(array) if array.null_count else None)


def entries(array: pa.MapArray) -> pa.ListArray:
    """A map column as a list of (key, value) structs."""
    return pc.cast(array, pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))


def _map_text(array: pa.Array, source: DataType) -> pa.Array:
    pairs = entries(array)
    flat = pc.list_flatten(pairs)
    key, value = source.children
    shown = pc.binary_join_element_wise(_shown(flat.field(0), key), _shown(flat.field(1), value), "=")
    return _enclosed("{", pc.binary_join(relist(pairs, shown), ", "), "}")


def _row_text(array: pa.Array, source: DataType) -> pa.Array:
    fields = [_shown(pc.struct_field(array, [i]), c) for i, c in enumerate(source.children)]
    joined = pc.binary_join_element_wise(*fields, ", ") if fields else pa.array([""] * len(array))
    return pc.if_else(pc.is_valid(array), _enclosed("(", joined, ")"), pa.scalar(None, pa.string()))
