# ruff: noqa: ARG001 - kernels share one signature
"""Times as text and back: DATE_FORMAT, TO_TIMESTAMP, TO_DATE, FROM_UNIXTIME, UNIX_TIMESTAMP, TO_TIMESTAMP_LTZ, CONVERT_TZ.

Text that is not a time gives NULL (UNIX_TIMESTAMP: the least BIGINT), as in Flink; a wrong constant pattern is an error at validation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BIGINT, DATE, STRING, DataType, TypeRoot, timestamp, timestamp_ltz
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.rules import ANYTHING, LONG, TEXT, Parameter, Rule
from flowrun.functions.times import spark_texts as texts
from flowrun.functions.times.calendar_units import naive
from flowrun.functions.times.current_time import current_ms
from flowrun.functions.times.date_fields import month_lengths, ms_from_fields
from flowrun.functions.times.date_format import PatternError, compile_pattern, pattern_problem
from flowrun.functions.vectors import all_constant, any_null_constant, as_array, is_constant, map_distinct, null_of

DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
LEAST_BIGINT = -(2**63)
_MS = pa.timestamp("ms")
_LENIENT = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?)?\s*", re.ASCII
)
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?\d{2})?")

PATTERN = Parameter("a date pattern", TEXT.resolve, STRING, check=pattern_problem)
"""A parameter that takes a `DateTimeFormatter` pattern."""


def lenient_ms(text: str) -> int | None:
    """Milliseconds since the epoch of `yyyy-M-d[ H:m[:s[.f…]]]`, or None; a day the month lacks becomes its last one.

    >>> lenient_ms("2024-03-01 09:58:30.64"), lenient_ms("2024-3-1"), lenient_ms("yesterday")
    (1709287110640, 1709251200000, None)
    """
    match = _LENIENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(g or 0) for g in match.groups()[:6])
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        return None
    milli = int((match[7] or "")[:3].ljust(3, "0"))
    fields = dict(zip("yMdHmsS", map(_one, (year, month, day, hour, minute, second, milli)), strict=True))
    return int(ms_from_fields(fields)[0])


def _one(value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([value])


def strict_date(text: str) -> int | None:
    """Days since the epoch of `yyyy-M-d`, or None if there is no such day.

    >>> strict_date("2024-02-29"), strict_date("2023-02-29")
    (19782, None)
    """
    match = _LENIENT.fullmatch(text)
    ms = lenient_ms(text)
    if match is None or ms is None or int(match[3]) > month_lengths(_one(int(match[1])), _one(int(match[2])))[0]:
        return None
    return ms // 86_400_000


def parse_ms(text: Datum, pattern: Datum | None, rows: int) -> Datum:
    """Milliseconds since the epoch of text in a pattern, or in the default form without one; NULL where it does not fit."""
    if any_null_constant([text] if pattern is None else [text, pattern]):
        return pa.scalar(None, pa.int64())
    if pattern is not None and not is_constant(pattern):
        return map_distinct(_parse_in, [text, pattern], rows, pa.int64())
    if is_constant(text):
        return pa.scalar(_parse_in(text.as_py(), None if pattern is None else pattern.as_py()), pa.int64())
    if pattern is not None:
        return _parse_column(text, pattern.as_py())
    for form in (DEFAULT_PATTERN, "yyyy-MM-dd HH:mm:ss.SSS", "yyyy-MM-dd"):
        if len(text) and pc.binary_length(text)[0].as_py() == len(form):
            parsed = compile_pattern(form).parse(text)
            return parsed if not parsed.null_count else map_distinct(lenient_ms, [text], rows, pa.int64())
    return map_distinct(lenient_ms, [text], rows, pa.int64())


def _parse_in(text: str, pattern: str | None) -> int | None:
    if pattern is None:
        return lenient_ms(text)
    try:
        found = compile_pattern(pattern).parse_text(text)
    except PatternError:
        return None
    return lenient_ms(text) if found is None else found


def _parse_column(text: pa.Array, pattern: str) -> pa.Array:
    try:
        parsed = compile_pattern(pattern).parse(text)
    except PatternError:
        return pa.nulls(len(text), pa.int64())
    missed = pc.and_(pc.is_null(parsed), pc.is_valid(text))
    if not pc.any(missed).as_py():
        return parsed
    # like Flink, give text that misses the pattern a second chance in the default form
    return pc.replace_with_mask(parsed, missed, map_distinct(lenient_ms, [text.filter(missed)], 0, pa.int64()))


def _to_timestamp(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return parse_ms(arguments[0], arguments[1] if len(arguments) > 1 else None, rows).cast(result.arrow)


def _to_date(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if len(arguments) == 1:
        return map_distinct(strict_date, arguments, rows, pa.int32()).cast(pa.date32())
    ms = parse_ms(arguments[0], arguments[1], rows)
    return pc.floor_temporal(ms.cast(_MS), unit="day").cast(pa.date32())


def _date_format(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    moment, pattern = arguments
    if any_null_constant(arguments):
        return null_of(result)
    if pa.types.is_string(moment.type):
        moment = parse_ms(moment, None, rows).cast(_MS)
    local = naive(moment)
    if pa.types.is_date(local.type):
        local = local.cast(_MS)
    if not is_constant(pattern):
        times, patterns = as_array(local, rows), pattern.to_pylist()
        return pa.array([_format_one(times.slice(i, 1), p) for i, p in enumerate(patterns)], pa.string())
    compiled = compile_pattern(pattern.as_py())
    return compiled.format(local) if not is_constant(local) else compiled.format(as_array(local, 1))[0]


def _format_one(moment: pa.Array, pattern: str | None) -> str | None:
    if pattern is None or moment.null_count:
        return None
    try:
        text: str = compile_pattern(pattern).format(moment)[0].as_py()
    except PatternError as error:
        raise DataError(str(error)) from error
    return text


def _date_format_check(arguments: Sequence[Argument]) -> str | None:
    given = arguments[0].type
    ok = given.is_timestamp or given.root is TypeRoot.DATE or given.is_character
    return None if ok else f"the first argument must be a DATE, TIMESTAMP or character string, {given} given"


def _from_unixtime(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    try:
        moment = pc.multiply_checked(arguments[0], pa.scalar(1000, pa.int64())).cast(_MS)
    except pa.ArrowInvalid as error:
        raise DataError("FROM_UNIXTIME: the seconds are out of range") from error
    pattern = arguments[1] if len(arguments) == 2 else pa.scalar(DEFAULT_PATTERN)
    return _date_format([moment, pattern], rows, result)


def _unix_timestamp(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if not arguments:
        return pa.scalar(current_ms() // 1000, pa.int64())
    if any_null_constant(arguments):
        return null_of(result)
    constant = all_constant(arguments)
    texts = [as_array(a, 1) if constant else a for a in arguments]
    ms = as_array(parse_ms(texts[0], texts[1] if len(texts) == 2 else None, 1 if constant else rows), rows)
    seconds = pc.floor_temporal(ms.cast(_MS), unit="second").cast(pa.timestamp("s")).cast(pa.int64())
    missing = pc.is_null(as_array(texts[0], rows))
    for other in texts[1:]:
        missing = pc.or_(missing, pc.is_null(as_array(other, len(missing))))
    known = pc.if_else(missing, pa.scalar(None, pa.int64()), pc.fill_null(seconds, LEAST_BIGINT))
    return known[0] if constant else known


def _to_timestamp_ltz(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    if pa.types.is_string(arguments[0].type):
        return _zoned(arguments, rows, result)
    ticks = arguments[0]
    if pa.types.is_decimal(ticks.type) or pa.types.is_floating(ticks.type):
        ticks = pc.trunc(ticks).cast(pa.int64(), safe=False)
    precision = arguments[1].as_py() if len(arguments) == 2 else 3
    try:
        ms = ticks.cast(pa.int64()) if precision == 3 else pc.multiply_checked(ticks.cast(pa.int64()), 1000)
    except pa.ArrowInvalid as error:
        raise DataError("TO_TIMESTAMP_LTZ: the seconds are out of range") from error
    return ms.cast(result.arrow)


def _zoned(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    local = parse_ms(arguments[0], arguments[1] if len(arguments) > 1 else None, rows)
    if len(arguments) < 3:
        return local.cast(result.arrow)
    return map_distinct(_instant_ms, [local, arguments[2]], rows, pa.int64()).cast(result.arrow)


def _instant_ms(local: int, zone: str) -> int:
    return local - _offset_ms(local, zone)


def _offset_ms(local: int, zone: str) -> int:
    """The zone's offset at a local time, ms; a skipped local time counts with the offset before the gap, as in Java."""
    wall = datetime(1970, 1, 1) + timedelta(milliseconds=local)
    offset = wall.replace(tzinfo=find_zone(zone)).utcoffset()
    assert offset is not None
    return round(offset.total_seconds() * 1000)


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo:
    """The zone of an id (Europe/Berlin, UTC) or offset (GMT-08:00, +02:00).

    Raises:
        DataError: there is no such zone.
    """
    if name in ("UTC", "GMT", "Z", "UT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    try:
        if match is not None:
            offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
            return timezone(-offset if match[1] == "-" else offset)
        return ZoneInfo({"PST": "America/Los_Angeles", "CST": "America/Chicago"}.get(name, name))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise DataError(
            f"'{name}' is not a time zone", hint="use an id like Europe/Berlin or an offset like GMT+02:00"
        ) from error


def zone_problem(name: object) -> str | None:
    """What is wrong with a constant time zone, or None."""
    if name is None:
        return None
    try:
        find_zone(str(name))
    except DataError as error:
        return error.message
    return None


def convert_tz(text: str, source: str, target: str) -> str | None:
    """A local time of one zone as `yyyy-MM-dd HH:mm:ss` of another; NULL if the text is not a time.

    >>> convert_tz("1970-01-01 00:00:00", "UTC", "America/Los_Angeles")
    '1969-12-31 16:00:00'
    """
    local = lenient_ms(text)
    if local is None:
        return None
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=_instant_ms(local, source))
    return instant.astimezone(find_zone(target)).strftime("%Y-%m-%d %H:%M:%S")


def _convert_tz(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return map_distinct(convert_tz, arguments, rows, result.arrow)


def _ltz_check(arguments: Sequence[Argument]) -> str | None:
    first, *others = arguments
    if first.type.is_character:
        if any(not a.type.is_character for a in others):
            return "of a string, the second argument is a pattern and the third a time zone"
        problems = [check(a.literal) for check, a in zip((pattern_problem, zone_problem), others, strict=False)]
        return next((p for p in problems if p), None)
    if not first.type.is_numeric:
        return f"the first argument must be a number or a character string, {first.type} given"
    if len(others) > 1 or (others and (not others[0].is_literal or others[0].literal not in (0, 3))):
        return "of a number, the second argument is the precision: 0 (seconds) or 3 (milliseconds)"
    return None


_ZONE = Parameter("a time zone", TEXT.resolve, STRING, check=zone_problem)
_LTZ = "TO_TIMESTAMP_LTZ(number[, precision]) or (string[, pattern[, zone]])"

TEMPORAL_TEXTS = (
    ScalarFunction(
        "DATE_FORMAT", Rule("DATE_FORMAT(time, pattern)", STRING, (ANYTHING, PATTERN), check=_date_format_check),
        _date_format, "DATE_FORMAT(time, pattern)", "The time as text in a pattern of Java's DateTimeFormatter.",
        texts.format_text, fallible=True,
    ),
    ScalarFunction(
        "TO_TIMESTAMP", Rule("TO_TIMESTAMP(string[, pattern])", timestamp(3), (TEXT,), (PATTERN,)), _to_timestamp,
        "TO_TIMESTAMP(string[, pattern])", "The TIMESTAMP(3) that a text spells; NULL if it does not fit the pattern.",
        texts.to_timestamp_text,
    ),
    ScalarFunction(
        "TO_DATE", Rule("TO_DATE(string[, pattern])", DATE, (TEXT,), (PATTERN,)), _to_date,
        "TO_DATE(string[, pattern])", "The date that a text spells; NULL if it does not fit the pattern.",
        texts.to_date_text,
    ),
    ScalarFunction(
        "FROM_UNIXTIME", Rule("FROM_UNIXTIME(seconds[, pattern])", STRING, (LONG,), (PATTERN,)), _from_unixtime,
        "FROM_UNIXTIME(seconds[, pattern])", "Seconds since the epoch as text (UTC).", texts.from_unixtime_text, fallible=True,
    ),
    ScalarFunction(
        "UNIX_TIMESTAMP", Rule("UNIX_TIMESTAMP([string[, pattern]])", BIGINT, (), (TEXT, PATTERN)), _unix_timestamp,
        "UNIX_TIMESTAMP([string[, pattern]])",
        "Seconds since the epoch, now or of a text; the least BIGINT if the text is not a time.",
        texts.unix_timestamp_text, deterministic=False,
    ),
    ScalarFunction(
        "TO_TIMESTAMP_LTZ",
        Rule(_LTZ, timestamp_ltz(3), (ANYTHING,), (ANYTHING, _ZONE), check=_ltz_check), _to_timestamp_ltz, _LTZ,
        "The instant of seconds or milliseconds since the epoch, or of a text in a zone.", texts.to_ltz_text, fallible=True,
    ),
    ScalarFunction(
        "CONVERT_TZ", Rule("CONVERT_TZ(string, from zone, to zone)", STRING, (TEXT, _ZONE, _ZONE)), _convert_tz,
        "CONVERT_TZ(string, from zone, to zone)", "A local time of one zone as text in another.", fallible=True,
    ),
)  # fmt: skip
"""Functions between times and text."""
