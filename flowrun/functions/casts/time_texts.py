# ruff: noqa: ARG001 - kernels share one signature
"""Cast kernels from text to dates and times, and how literals and rows of tests are read.

Arrow parses text as it mostly is, with two digits each. What it cannot parse is brought into that form if it has the usual shape, and
what is left then is read one distinct text at a time by the rules of `flowrun.functions.times.cast_forms`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot, time
from flowrun.functions.casts.numeric import Outcome, as_numpy
from flowrun.functions.casts.parsing import (
    Parse,
    merged,
    parse_or_bisect,
    trimmed,
    well_formed,
)
from flowrun.functions.decimals import to_mask
from flowrun.functions.times.cast_forms import date_days, plain_timestamps, time_ns, timestamp_ns
from flowrun.functions.vectors import directly, map_distinct, text_bytes

_DATE = r"^\d{4}-\d{1,2}-\d{1,2}$"
_TIME = r"^\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?$"
_TIMESTAMP = r"^([1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d{1,2}-\d{1,2}( \d{1,2}:\d{1,2}:\d{1,2}(\.\d{1,9})?)?$"
_WRITTEN_TIMESTAMP = r"^\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,9})?)?)?$"
_WRITTEN_INSTANT = _WRITTEN_TIMESTAMP.removesuffix("$") + r"(Z|\+00:00)?$"
_DAY_MS = 86_400_000
_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}
_UNIT_NS = {"ms": 1_000_000, "us": 1_000, "ns": 1}


# -- CAST ----------------------------------------------------------------------------------------------------------------------


def text_to_date(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """y[-M[-d]]; what follows a space is ignored."""
    if (values := directly(text, pa.date32())) is not None:
        return values, None
    days = pc.replace_substring_regex(text, r"^(\d{4}-\d{1,2}-\d{1,2}) [^\n]*$", r"\1")
    return _with_rest(_date(days), text, date_days)


def text_to_time(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """H[:m[:s[.fraction]]]; rounded to milliseconds, all that Flink has, or, where the type has more digits, cut to those."""
    digits, per_unit = target.precision or 0, _UNIT_NS[target.arrow.unit]
    cut = 10 ** (3 - min(digits, 3))

    def rule(one: str) -> int | None:
        nanos = time_ns(one)
        if nanos is None or digits > 3:
            return None if nanos is None else nanos // 10 ** (9 - digits) * 10 ** (9 - digits) // per_unit
        ms = (nanos + 500_000) // 1_000_000
        return ms // cut * cut if ms < _DAY_MS else None

    if digits > 3 or not _has_fractions(text) or not pc.any(pc.match_substring_regex(text, r"\.\d{4}")).as_py():
        return _with_rest(_time(text, target), text, rule)
    finer, bad = _time(pc.replace_substring_regex(text, r"(\.\d{4})\d*", r"\1"), time(4))
    ms = (as_numpy(finer.view(pa.int64())) + 500) // 1000
    over = ms >= _DAY_MS
    result = pa.array((ms // cut * cut).astype(np.int32), mask=over | ~to_mask(pc.is_valid(finer))).view(target.arrow)
    return _with_rest(merged((result, bad), over & to_mask(pc.is_valid(finer))), text, rule)


def text_to_timestamp(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """yyyy-M-d[ H:m:s[.fraction]], in UTC; further digits than the type has are cut off.

    24:00:00 is the next day's midnight, a day that the month lacks is the month's last one.
    """
    unit, digits = target.arrow.unit, target.precision or 0
    if (digits == _UNIT_DIGITS[unit] or not _has_fractions(text)) and (
        values := plain_timestamps(text, unit)
    ) is not None:
        return values.view(target.arrow), None
    step, per_unit = 10 ** (9 - digits), _UNIT_NS[unit]
    farthest = (2**63 - 1) * per_unit

    def rule(one: str) -> int | None:
        nanos = timestamp_ns(one)
        return None if nanos is None or abs(nanos) > farthest else nanos // step * step // per_unit

    moments, bad = well_formed(text, _TIMESTAMP)
    return _with_rest(merged(_timestamp(moments, target), bad), text, rule)


def _has_fractions(text: pa.Array) -> bool:
    return bool((text_bytes(text) == ord(".")).any())


def _with_rest(outcome: Outcome, text: pa.Array, rule: Callable[[str], int | None]) -> Outcome:
    """The outcome, and the values of `rule` for the texts that have none yet."""
    result, bad = outcome
    if bad is None or not bad.any():
        return result, None
    width = pa.int32() if result.type.bit_width == 32 else pa.int64()
    rest = map_distinct(rule, [text.filter(pa.array(bad))], 0, width)
    result = pc.replace_with_mask(result.view(width), pa.array(bad), rest).view(result.type)
    bad = to_mask(pc.is_valid(text)) & ~to_mask(pc.is_valid(result))
    return result, bad if bad.any() else None


# -- written by hand -----------------------------------------------------------------------------------------------------------


def written_date(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """yyyy-M-d; a time of day after it is ignored, and spaces around it."""
    return _date(pc.replace_substring_regex(trimmed(text), r"[ T].*$", ""))


def written_time(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """H:m[:s[.fraction]]; spaces around it are ignored, and further digits than the type has."""
    return _time(trimmed(text), target)


def written_timestamp(text: pa.Array, source: DataType, target: DataType) -> Outcome:
    """yyyy-M-d[ H:m[:s[.fraction]]], a T instead of the space, and for TIMESTAMP_LTZ a Z at the end; without an offset, UTC.

    Spaces around it are ignored, and further digits than the type has.
    """
    instant = target.root is TypeRoot.TIMESTAMP_LTZ
    moments, bad = well_formed(trimmed(text), _WRITTEN_INSTANT if instant else _WRITTEN_TIMESTAMP)
    if instant:
        moments = pc.replace_substring_regex(moments, r"(Z|\+00:00)$", "")
    return merged(_timestamp(moments, target), bad)


# -- text in its usual shape ---------------------------------------------------------------------------------------------------


def _date(days: pa.Array) -> Outcome:
    days, bad = well_formed(days, _DATE)
    return merged(parse_or_bisect(_padded(days), lambda v: pc.cast(v, pa.date32())), bad)


def _time(text: pa.Array, target: DataType) -> Outcome:
    times, bad = well_formed(text, _TIME)
    unit = target.arrow.unit
    instants = pc.binary_join_element_wise("1970-01-01", _cut_fraction(_padded(times), target.precision or 0), " ")

    def parse(values: pa.Array) -> pa.Array:
        count = pc.cast(values, pa.timestamp(unit)).view(pa.int64())
        return pc.cast(count, pa.int32()).view(target.arrow) if unit == "ms" else count.view(target.arrow)

    return merged(parse_or_bisect(instants, parse), bad)


def _timestamp(moments: pa.Array, target: DataType) -> Outcome:
    parse: Parse = lambda v: pc.cast(v, pa.timestamp(target.arrow.unit))  # noqa: E731
    result, impossible = parse_or_bisect(_cut_fraction(_padded(moments), target.precision or 0), parse)
    return result.view(target.arrow), impossible


def _padded(text: pa.Array) -> pa.Array:
    """Date and time parts with two digits each, as Arrow wants them."""
    if not pc.any(pc.match_substring_regex(text, r"(^|[-: T])\d([-: T.]|$)")).as_py():
        return text
    # twice, because neighbouring single digits share a separator; RE2 has one-digit group numbers, so \10 is group 1 and a zero
    once = pc.replace_substring_regex(text, r"(^|[-: T])(\d)([-: T.]|$)", r"\10\2\3")
    return pc.replace_substring_regex(once, r"([-: T])(\d)([-: T.]|$)", r"\10\2\3")


def _cut_fraction(text: pa.Array, digits: int) -> pa.Array:
    if digits == 9 or not pc.any(pc.match_substring_regex(text, rf"\.\d{{{digits + 1}}}")).as_py():
        return text
    return pc.replace_substring_regex(text, rf"(\.\d{{{digits}}})\d*", r"\1") if digits else _without_fraction(text)


def _without_fraction(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"\.\d*", "")
