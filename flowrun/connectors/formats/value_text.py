"""Writes values as text, a column at a time: for CSV fields, JSON values and partition folders. `text_values` is the inverse."""

from __future__ import annotations

import binascii
import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bytes
from flowrun.core.types import DataType, TypeRoot

_SAMPLE = 1024
_SCANNED_BYTES = 1 << 18
"""How many bytes of text are scanned at a time: as many as fit into the cache of a core."""


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


def pieces_of(text: pa.StringArray) -> Iterator[Bytes]:
    """The bytes of all texts, one behind the other, in pieces that fit into the cache of a core.

    >>> [bytes(piece) for piece in pieces_of(pa.array(["a", None, "bc"]))]
    [b'abc']
    """
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return
    ends = np.frombuffer(offsets, np.int32)
    every = np.frombuffer(data, np.uint8)[ends[text.offset] : ends[text.offset + len(text)]]
    for begin in range(0, len(every), _SCANNED_BYTES):
        yield every[begin : begin + _SCANNED_BYTES]


def _base64(values: pa.Array) -> pa.StringArray:
    """BYTES in base64. All of them are encoded at once, each filled up with zeros to groups of three bytes, whose digits become `=`."""
    if values.null_count:
        known = values.drop_null()
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return _base64(known).take(pa.array(np.cumsum(valid) - 1, mask=~valid))
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    if 4 * int(lengths.sum()) // 3 + 4 * len(values) >= 1 << 31:
        middle = len(values) // 2
        return pa.concat_arrays([_base64(values.slice(0, middle)), _base64(values.slice(middle))])
    missing = -lengths % 3
    filling = pa.array([b"", b"\0", b"\0\0"], values.type).take(pa.array(missing))
    _, offsets, data = pc.binary_join_element_wise(values, filling, b"").buffers()
    if data is None or not lengths.any():
        return pa.array([""] * len(values), pa.string())
    ends = np.frombuffer(offsets, np.int32)[: len(values) + 1] // 3 * 4
    digits = np.frombuffer(binascii.b2a_base64(data.slice(0, int(ends[-1]) // 4 * 3), newline=False), np.uint8).copy()
    for place in (1, 2):
        digits[ends[1:][missing >= place] - place] = ord("=")
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(digits))


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


def non_finite_text(value: float) -> str:
    """How a number is written that is not finite.

    >>> non_finite_text(float("nan")), non_finite_text(float("-inf"))
    ('NaN', '-Infinity')
    """
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
