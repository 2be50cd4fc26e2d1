"""Writes values as text, a column at a time: for CSV fields, JSON values and partition folders. `text_values` is the inverse."""

from __future__ import annotations

import binascii
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot

_SAMPLE = 1024


def value_text(values: pa.Array, source: DataType, *, iso: bool = False) -> pa.Array:
    """The text of each value as a string array; NULL stays NULL.

    Decimals are written without exponent, BYTES in base64, floating point numbers with the fewest digits that are read back as the same
    number, timestamps as `2024-03-01 10:00:00.123` (zeros at the end of the fraction are left out, as in Flink), TIMESTAMP_LTZ with a `Z`.

    Args:
        values: the column.
        source: its type, which is not nested.
        iso: whether `T` is between date and time, as in Flink's ISO-8601 standard.

    >>> from flowrun.core.types import timestamp
    >>> value_text(pa.array([1500], pa.timestamp("ms")), timestamp(3)).to_pylist()
    ['1970-01-01 00:00:01.5']
    """
    match source.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return values
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return _base64(values)
        case TypeRoot.DECIMAL:
            return plain_decimal(values)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return floating_text(values)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _timestamps(values, iso)
        case TypeRoot.TIME:
            return _without_zeros(pc.cast(values, pa.string()))
        case TypeRoot.INTERVAL_DAY_TIME:
            return pc.cast(values.view(pa.int64()), pa.string())
        case _:
            return pc.cast(values, pa.string())


def _base64(values: pa.Array) -> pa.Array:
    encode: Callable[..., bytes] = binascii.b2a_base64
    return pa.array([None if v is None else encode(v, newline=False).decode() for v in values.to_pylist()], pa.string())


def plain_decimal(values: pa.Array) -> pa.Array:
    """DECIMALs as text, never with an exponent.

    >>> from decimal import Decimal
    >>> plain_decimal(pa.array([Decimal("-1E-10")], pa.decimal128(38, 10))).to_pylist()
    ['-0.0000000001']
    """
    text = pc.cast(values, pa.string())
    if values.type.scale <= 6:  # Arrow writes an exponent only below 1e-6
        return text
    scientific = pc.match_substring(text, "E")
    if not pc.any(scientific).as_py():
        return text
    plain = [format(v, "f") for v in values.filter(scientific).to_pylist()]
    return pc.replace_with_mask(text, pc.fill_null(scientific, False), pa.array(plain, pa.string()))


def floating_text(values: pa.Array) -> pa.Array:
    """FLOATs and DOUBLEs as text, in Flink's spelling.

    >>> floating_text(pa.array([1.0, 0.5, float("nan"), float("-inf")])).to_pylist()
    ['1.0', '0.5', 'NaN', '-Infinity']
    """
    text = pc.cast(values, pa.string())
    finite = pc.is_finite(values)
    if not pc.all(finite).as_py():
        spelled = pc.if_else(pc.is_nan(values), "NaN", pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity"))
        text = pc.if_else(finite, text, spelled)
    integral = pc.and_(finite, pc.equal(pc.floor(values), values))
    if pc.any(integral).as_py():  # 1 becomes 1.0, but 1e+20 does not change
        plain = pc.and_(integral, pc.invert(pc.match_substring(text, "e")))
        text = pc.if_else(plain, pc.binary_join_element_wise(text, ".0", ""), text)
    return text


def _timestamps(values: pa.Array, iso: bool) -> pa.Array:
    """The text of timestamps. If the first rows repeat values, as times of rows often do, each different value is written once."""
    first = values.slice(0, _SAMPLE)
    if 2 * len(pc.unique(first)) > len(first):
        return _timestamp(values, iso)
    distinct = pc.dictionary_encode(values)
    return _timestamp(distinct.dictionary, iso).take(distinct.indices)


def _timestamp(values: pa.Array, iso: bool) -> pa.Array:
    zone = values.type.tz
    text = _without_zeros(pc.cast(values.view(pa.timestamp(values.type.unit)), pa.string()))
    if iso:
        text = pc.replace_substring(text, " ", "T")
    return text if zone is None else pc.binary_join_element_wise(text, "Z", "")


def _without_zeros(text: pa.Array) -> pa.Array:
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")
