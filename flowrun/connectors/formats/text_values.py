"""Parses values from text, a column at a time: from CSV fields, JSON strings and partition folders.

Each type has a kernel that parses a whole string array. If it fails, the array is halved until the wrong values are alone: a few bad
values in a large column cost a few more calls of the kernel, and all other values are still parsed together.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import ParsedColumn
from flowrun.core.types import DataType, TypeRoot

TextKernel = Callable[[pa.Array, DataType], pa.Array]

_SHOWN_CHARACTERS = 60
_MAX_DECIMAL_CHARACTERS = 70
_TIMESTAMP = (
    r"^\s*(?P<main>[+-]?\d{4,}-\d{2}-\d{2}(?:[ T]\d{2}(?::\d{2}(?::\d{2})?)?)?)(?P<fraction>\.\d+)?"
    r"\s*(?P<zone>Z|z|[+-]\d{2}(?::?\d{2})?)?\s*$"
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ZONE = re.compile(r"([+-])(\d{2}):?(\d{2})?")
_UNITS_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class OddTextError(ValueError):
    """Some text of a column is no value of its type: the records must be parsed one by one."""


def parse_text(text: pa.Array, target: DataType) -> ParsedColumn:
    """A string array as values of `target`; NULL stays NULL.

    It accepts what Flink's formats accept: blanks around a value and the plus sign of a number are ignored, decimals are rounded half up
    to the scale, timestamps may have either separator, any number of fraction digits (which are cut) and a zone, which is applied.

    >>> from flowrun.core.types import BIGINT
    >>> parsed = parse_text(pa.array(["1", "x"]), BIGINT)
    >>> parsed.values.to_pylist(), list(parsed.bad)
    ([1, None], [1])
    """
    kernel = _KERNELS.get(target.root, _no_text)
    try:
        return ParsedColumn(kernel(text, target))
    except (pa.ArrowInvalid, ValueError):
        pieces: list[pa.Array] = []
        bad: dict[int, str] = {}
        _bisect(text, 0, len(text), target, kernel, pieces, bad)
        return ParsedColumn(pa.concat_arrays(pieces), bad)


def parse_whole(text: pa.Array, target: DataType) -> pa.Array:
    """A string array as values of `target`, if each text is one.

    Raises:
        OddTextError: one is not.
    """
    parsed = parse_text(text, target)
    if parsed.bad:
        raise OddTextError(next(iter(parsed.bad.values())))
    return parsed.values


def is_textual(target: DataType) -> bool:
    """Whether values of this type can be parsed from text; those of nested types cannot."""
    return target.root in _KERNELS


def _bisect(
    text: pa.Array,
    start: int,
    stop: int,
    target: DataType,
    kernel: TextKernel,
    pieces: list[pa.Array],
    bad: dict[int, str],
) -> None:
    if stop - start == 1:
        bad[start] = f"'{_shorten(str(text[start].as_py()))}' is no {target}"
        pieces.append(pa.nulls(1, target.arrow))
        return
    middle = (start + stop) // 2
    for low, high in ((start, middle), (middle, stop)):
        try:
            pieces.append(kernel(text.slice(low, high - low), target))
        except (pa.ArrowInvalid, ValueError):
            _bisect(text, low, high, target, kernel, pieces, bad)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _no_text(_text: pa.Array, target: DataType) -> pa.Array:
    raise ValueError(f"{target} has no text form")


def _string(text: pa.Array, _target: DataType) -> pa.Array:
    return text if text.type == pa.string() else pc.cast(text, pa.string())


def _null(text: pa.Array, _target: DataType) -> pa.Array:
    return pa.nulls(len(text))


def _number(text: pa.Array, target: DataType) -> pa.Array:
    try:
        return pc.cast(text, target.arrow)
    except pa.ArrowInvalid:
        return pc.cast(pc.replace_substring_regex(pc.utf8_trim_whitespace(text), r"^\+", ""), target.arrow)


def _boolean(text: pa.Array, _target: DataType) -> pa.Array:
    return pc.cast(pc.utf8_trim_whitespace(text), pa.bool_())


def _decimal(text: pa.Array, target: DataType) -> pa.Array:
    if not _is_plain_decimal(text):
        return _decimal_exactly(text, target)
    try:
        return pc.cast(text, target.arrow)
    except pa.ArrowInvalid:
        integral = (target.precision or 10) - (target.scale or 0)
        wide = pc.cast(pc.utf8_trim_whitespace(text), pa.decimal256(76, 76 - integral - 1))
        return round_decimal(wide, target)


def _is_plain_decimal(text: pa.Array) -> bool:
    """Whether Arrow can parse the text: pyarrow 26 reads beyond its tables for large scales, and crashes for 1e-999999999."""
    data = text.buffers()[2]
    if data is None:
        return True
    letters = np.frombuffer(data, np.uint8) | 0x20
    return not (letters == ord("e")).any() and (pc.max(pc.binary_length(text)).as_py() or 0) <= _MAX_DECIMAL_CHARACTERS


def _decimal_exactly(text: pa.Array, target: DataType) -> pa.Array:
    """Decimals, parsed by Python one by one.

    Raises:
        ValueError: a text is no decimal of the type.
    """
    step = Decimal(1).scaleb(-(target.scale or 0))
    with localcontext(prec=100, rounding=ROUND_HALF_UP):
        try:
            values = [None if t is None else _plain(t).quantize(step) for t in text.to_pylist()]
        except InvalidOperation:
            raise ValueError("not a decimal") from None
        return pa.array(values, target.arrow)


def _plain(text: str) -> Decimal:
    """A decimal as Arrow reads it: Python takes 1_000 and digits of other scripts, too.

    Raises:
        ValueError: the text is none.
    """
    if _DECIMAL.fullmatch(text.strip()) is None:
        raise ValueError("not a decimal")
    return Decimal(text.strip())


def round_decimal(values: pa.Array, target: DataType) -> pa.Array:
    """Decimals rounded half up (away from zero) to the scale of `target`.

    Raises:
        pa.ArrowInvalid: a value is too large for `target`.
    """
    return pc.cast(pc.round(values, ndigits=target.scale or 0, round_mode="half_towards_infinity"), target.arrow)


def _date(text: pa.Array, _target: DataType) -> pa.Array:
    try:
        return pc.cast(text, pa.date32())
    except pa.ArrowInvalid:
        return pc.cast(pc.utf8_trim_whitespace(text), pa.date32())


def _time(text: pa.Array, target: DataType) -> pa.Array:
    unit = "ns" if (target.precision or 0) > 6 else "us"
    if pc.any(pc.invert(pc.match_substring(text, ":"))).as_py():
        raise ValueError("no minutes")
    moments = _timestamps(pc.binary_join_element_wise("1970-01-01 ", pc.utf8_trim_whitespace(text), ""), unit, None)
    if pc.any(pc.greater_equal(moments.view(pa.int64()), 86_400 * _UNITS_PER_SECOND[unit])).as_py():
        raise ValueError("beyond midnight")
    return pc.cast(pc.cast(moments, pa.time64(unit)), target.arrow, safe=False)


def _timestamp(text: pa.Array, target: DataType) -> pa.Array:
    arrow = target.arrow
    try:
        moments = pc.cast(text, pa.timestamp(arrow.unit))
        return moments if arrow.tz is None else moments.view(arrow)
    except pa.ArrowInvalid:
        return _timestamps(text, arrow.unit, arrow.tz)


def _timestamps(text: pa.Array, unit: str, zone: str | None) -> pa.Array:
    """Timestamps in any of the accepted spellings; without a zone they are in UTC."""
    parts = pc.extract_regex(text, _TIMESTAMP)
    if parts.null_count > text.null_count:
        raise ValueError("not a timestamp")
    digits = {"ms": 3, "us": 6, "ns": 9}[unit]
    fraction = pc.utf8_slice_codeunits(parts.field("fraction"), 0, digits + 1)
    spelled = pc.binary_join_element_wise(parts.field("main"), fraction, "")
    if parts.null_count:  # the fields of a NULL struct are empty texts
        spelled = pc.if_else(parts.is_valid(), spelled, pa.scalar(None, pa.string()))
    naive = pc.cast(spelled, pa.timestamp(unit))
    zones = parts.field("zone").dictionary_encode()
    offsets = [_zone_seconds(z) * _UNITS_PER_SECOND[unit] for z in zones.dictionary.to_pylist()]
    values = naive.view(pa.int64())
    if any(offsets):
        values = pc.subtract_checked(values, pa.array(offsets, pa.int64()).take(zones.indices))
    return values.view(pa.timestamp(unit, zone))


def _zone_seconds(zone: str) -> int:
    match = _ZONE.fullmatch(zone)
    if match is None:
        return 0
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60
    return -seconds if match[1] == "-" else seconds


def _binary(text: pa.Array, _target: DataType) -> pa.Array:
    decode = binascii.a2b_base64
    return pa.array([None if t is None else decode(t, strict_mode=True) for t in text.to_pylist()], pa.binary())


def _interval_months(text: pa.Array, _target: DataType) -> pa.Array:
    return pc.cast(text, pa.int32())


def _interval_ms(text: pa.Array, _target: DataType) -> pa.Array:
    return pc.cast(text, pa.int64()).view(pa.duration("ms"))


def floor_to_unit(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Timestamps in the coarser unit of `arrow`, rounded down also before 1970, and with its time zone."""
    per = _UNITS_PER_SECOND[values.type.unit] // _UNITS_PER_SECOND[arrow.unit]
    numbers = values.view(pa.int64())
    if per > 1:
        mask = None if not numbers.null_count else ~numbers.is_valid().to_numpy(zero_copy_only=False)
        floored = np.floor_divide(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), per)
        numbers = pa.array(floored, pa.int64(), mask=mask)
    return numbers.view(arrow)


_KERNELS: dict[TypeRoot, TextKernel] = {
    TypeRoot.NULL: _null,
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _number,
    TypeRoot.SMALLINT: _number,
    TypeRoot.INTEGER: _number,
    TypeRoot.BIGINT: _number,
    TypeRoot.FLOAT: _number,
    TypeRoot.DOUBLE: _number,
    TypeRoot.DECIMAL: _decimal,
    TypeRoot.CHAR: _string,
    TypeRoot.VARCHAR: _string,
    TypeRoot.BINARY: _binary,
    TypeRoot.VARBINARY: _binary,
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _timestamp,
    TypeRoot.INTERVAL_YEAR_MONTH: _interval_months,
    TypeRoot.INTERVAL_DAY_TIME: _interval_ms,
}
