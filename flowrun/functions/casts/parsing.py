# ruff: noqa: ARG001 - kernels share one signature
"""Cast kernels from text: what Flink accepts as a number, truth value, date or time, spaces around it ignored.

A regular expression decides what is well-formed, Arrow's parsers do the conversion. Values that are well-formed but impossible
(the 13th month) make Arrow's kernel fail without saying where, so distinct values are then bisected.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools
from flowrun.core.types import STRING, DataType, TypeRoot
from flowrun.functions.casts.numeric import Outcome, integer_range
from flowrun.functions.decimals import fit, null_where, to_mask

_INTEGER = r"^[+-]?\d+(\.\d*)?$"
_APPROXIMATE = r"^[+-]?((\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|Infinity)$|^NaN$"
_EXACT = r"^[+-]?(\d+(\.\d*)?|\.\d+)$"
_TOO_LONG = r"^[+-]?0*[1-9]\d{38}"
_SCIENTIFIC = r"^[+-]?(\d+(\.\d*)?|\.\d+)[eE][+-]?\d{1,3}$"
_DATE = r"^\d{4}-\d{1,2}-\d{1,2}$"
_TIME = r"^\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?$"
_TIMESTAMP = r"^\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?)?$"
_INSTANT = _TIMESTAMP.removesuffix("$") + r"(Z|\+00:00)?$"
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}

Parse = Callable[[pa.Array], pa.Array]


def trimmed(text: pa.Array) -> pa.Array:
    """Text without spaces around it."""
    return pc.utf8_trim_whitespace(text)


def _well_formed(text: pa.Array, pattern: str) -> tuple[pa.Array, Bools]:
    good = to_mask(pc.match_substring_regex(text, pattern))
    bad = to_mask(pc.is_valid(text)) & ~good
    return (null_where(text, bad) if bad.any() else text), bad


def parse_or_bisect(values: pa.Array, parse: Parse) -> Outcome:
    """`parse(values)`; values that make it raise ArrowInvalid become NULL and are reported."""
    try:
        return parse(values), None
    except pa.ArrowInvalid:
        pass
    encoded = values.dictionary_encode()
    good = _parseable(encoded.dictionary, parse)
    bad = ~good[np.asarray(pc.fill_null(encoded.indices, 0))] & to_mask(pc.is_valid(values))
    return parse(null_where(values, bad)), bad


def _parseable(values: pa.Array, parse: Parse) -> Bools:
    try:
        parse(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return np.zeros(1, np.bool_)
        half = len(values) // 2
        return np.concatenate([_parseable(values.slice(0, half), parse), _parseable(values.slice(half), parse)])
    return np.ones(len(values), np.bool_)


def _merged(outcome: Outcome, bad: Bools) -> Outcome:
    result, more = outcome
    total = bad if more is None else bad | more
    return result, total if total.any() else None


def _directly(text: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Arrow's own parse of text that needs no help, which is most text; None if some value does."""
    try:
        # Arrow goes on after a failure and pays for each one: a few values tell whether there will be many
        pc.cast(text.slice(0, 64), target)
        return pc.cast(text, target)
    except pa.ArrowInvalid:
        return None


def _contains(text: pa.Array, part: str) -> bool:
    return bool(pc.any(pc.match_substring(text, part, ignore_case=True)).as_py())


def text_to_integer(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Optional sign and digits; digits after a decimal point are cut off."""
    if (values := _directly(text, target.arrow)) is not None and not _contains(text, "x"):  # Arrow also reads 0x1F
        return values, None
    digits, bad = _well_formed(trimmed(text), _INTEGER)
    if pc.any(pc.match_substring_regex(digits, r"[+.]")).as_py():
        digits = pc.replace_substring_regex(digits, r"^\+|\..*$", "")
    low, high = integer_range(target)
    longest = pc.max(pc.binary_length(digits)).as_py() or 0
    if longest <= 18:
        values = pc.cast(digits, pa.int64())
        if target.root is TypeRoot.BIGINT:
            return values, bad if bad.any() else None
        outside = to_mask(pc.or_(pc.less(values, low), pc.greater(values, high)))
        return _merged((pc.cast(null_where(values, outside), target.arrow), outside), bad)
    return _merged(parse_or_bisect(digits, lambda v: pc.cast(v, target.arrow)), bad)


def text_to_approximate(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Decimal or scientific notation, NaN, Infinity."""
    if (values := _directly(text, target.arrow)) is not None and pc.all(pc.is_finite(values)).as_py() is not False:
        return values, None  # Arrow also reads other spellings of NaN and infinity
    numbers, bad = _well_formed(trimmed(text), _APPROXIMATE)
    return _merged((pc.cast(numbers, target.arrow), None), bad)


def text_to_decimal(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Decimal or scientific notation, rounded half-up to the target's scale."""
    numbers = trimmed(text)
    scientific = to_mask(pc.match_substring_regex(numbers, _SCIENTIFIC))
    if scientific.any():
        plain = [f"{decimal.Decimal(v):f}" for v in numbers.filter(pa.array(scientific)).to_pylist()]
        numbers = pc.replace_with_mask(numbers, pa.array(scientific), pa.array(plain, pa.string()))
    numbers, bad = _well_formed(numbers, _EXACT)
    too_long = to_mask(pc.match_substring_regex(numbers, _TOO_LONG))
    if too_long.any():  # Arrow reads 0 from more digits than it can hold
        numbers, bad = null_where(numbers, too_long), bad | too_long
    scale = target.scale or 0
    # half-up needs only the first digit that is dropped
    kept = pc.replace_substring_regex(numbers, rf"(\.\d{{{scale + 1}}})\d*", r"\1")
    parsed, too_big = parse_or_bisect(kept, lambda v: pc.cast(v, pa.decimal256(76, scale + 1)))
    if too_big is not None:
        bad = bad | too_big
    return _merged(fit(parsed, target.arrow), bad)


def approximate_to_decimal(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """FLOAT or DOUBLE as DECIMAL by the shortest decimal text of the number, as Java's BigDecimal.valueOf does."""
    bad = to_mask(pc.is_valid(array)) & ~to_mask(pc.is_finite(array))
    text = pc.cast(null_where(array, bad) if bad.any() else array, pa.string())
    return _merged(text_to_decimal(text, STRING, target), bad)


def text_to_boolean(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """t, true, y, yes, 1 and f, false, n, no, 0, in any case."""
    words = pc.utf8_lower(trimmed(text))
    true = pc.is_in(words, pa.array(_TRUE))
    known = to_mask(pc.or_(true, pc.is_in(words, pa.array(_FALSE))))
    valid = to_mask(pc.is_valid(text))
    bad = valid & ~known
    return pc.if_else(pa.array(known), true, pa.scalar(None, pa.bool_())), bad if bad.any() else None


def _padded(text: pa.Array) -> pa.Array:
    """Date and time parts with two digits each, as Arrow wants them."""
    if not pc.any(pc.match_substring_regex(text, r"(^|[-: T])\d([-: T.]|$)")).as_py():
        return text
    # twice, because neighbouring single digits share a separator; RE2 has one-digit group numbers, so \10 is group 1 and a zero
    once = pc.replace_substring_regex(text, r"(^|[-: T])(\d)([-: T.]|$)", r"\10\2\3")
    return pc.replace_substring_regex(once, r"([-: T])(\d)([-: T.]|$)", r"\10\2\3")


def text_to_date(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """yyyy-m-d; a time of day after it is ignored."""
    if (values := _directly(text, pa.date32())) is not None:
        return values, None
    days = pc.replace_substring_regex(trimmed(text), r"[ T].*$", "")
    days, bad = _well_formed(days, _DATE)
    return _merged(parse_or_bisect(_padded(days), lambda v: pc.cast(v, pa.date32())), bad)


def text_to_time(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """h:m[:s[.fraction]]; further digits than the type has are cut off."""
    times, bad = _well_formed(trimmed(text), _TIME)
    unit = target.arrow.unit
    instants = pc.binary_join_element_wise("1970-01-01", _cut_fraction(_padded(times), target.precision or 0), " ")

    def parse(values: pa.Array) -> pa.Array:
        count = pc.cast(values, pa.timestamp(unit)).view(pa.int64())
        return pc.cast(count, pa.int32()).view(target.arrow) if unit == "ms" else count.view(target.arrow)

    return _merged(parse_or_bisect(instants, parse), bad)


def _cut_fraction(text: pa.Array, digits: int) -> pa.Array:
    if digits == 9 or not pc.any(pc.match_substring_regex(text, rf"\.\d{{{digits + 1}}}")).as_py():
        return text
    return pc.replace_substring_regex(text, rf"(\.\d{{{digits}}})\d*", r"\1") if digits else _without_fraction(text)


def _without_fraction(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"\.\d*", "")


def text_to_timestamp(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """yyyy-m-d[ h:m[:s[.fraction]]], a T instead of the space, and for TIMESTAMP_LTZ a Z at the end; without an offset, UTC.

    Further digits than the type has are cut off.
    """
    instant = target.root is TypeRoot.TIMESTAMP_LTZ
    unit, digits = target.arrow.unit, target.precision or 0
    direct = not instant and (digits == _UNIT_DIGITS[unit] or not _contains(text, "."))
    if direct and (values := _directly(text, target.arrow)) is not None:
        shortest = pc.min(pc.binary_length(text)).as_py()
        if shortest is None or shortest >= 16:  # Arrow also reads an hour without minutes
            return values, None
    moments, bad = _well_formed(trimmed(text), _INSTANT if instant else _TIMESTAMP)
    if instant:
        moments = pc.replace_substring_regex(moments, r"(Z|\+00:00)$", "")
    result, impossible = parse_or_bisect(
        _cut_fraction(_padded(moments), digits), lambda v: pc.cast(v, pa.timestamp(unit))
    )
    return _merged((result.view(target.arrow), impossible), bad)


def text_to_binary(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """The UTF-8 bytes."""
    return pc.cast(text, pa.binary()), None
