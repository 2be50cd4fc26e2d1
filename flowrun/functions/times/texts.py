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
from flowrun.functions.times.cast_forms import date_days, lenient_ms, plain_timestamps, timestamp_ns
from flowrun.functions.times.current_time import current_ms
from flowrun.functions.times.date_format import PatternError, compile_pattern, pattern_problem
from flowrun.functions.times.simple_format import GREGORIAN_START_MS, as_shown, compile_simple, simple_problem
from flowrun.functions.vectors import (
    all_constant,
    any_null_constant,
    as_array,
    directly,
    is_constant,
    map_distinct,
    null_of,
)

DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
LEAST_BIGINT = -(2**63)
_MS = pa.timestamp("ms")
_DAY_MS = 86_400_000
_CYCLE_MS = 146_097 * _DAY_MS
"""400 years."""
_YEARS_MS = (-62_135_596_800_000, 253_402_300_800_000)
"""The years 1 to 9999."""
_ZONES_START_MS = -2_208_988_800_000
"""1900."""
_YEARS_END_MS = 253_000_000_000_000
"""A time near the end of the years that Python has."""
_DEFAULT = pa.scalar(DEFAULT_PATTERN)
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?\d{2})?")

PATTERN = Parameter("a date pattern", TEXT.resolve, STRING, check=pattern_problem)
"""A parameter that takes a `DateTimeFormatter` pattern."""
_READING = Parameter("a date pattern", TEXT.resolve, STRING, check=simple_problem)
"""A parameter that takes a `SimpleDateFormat` pattern to read by."""


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
    plain = plain_timestamps(text, "ms")
    return map_distinct(_default_ms, [text], rows, pa.int64()) if plain is None else plain.view(pa.int64())


def _default_ms(text: str) -> int | None:
    nanos = timestamp_ns(text)
    return None if nanos is None else nanos // 1_000_000


def _parse_in(text: str, pattern: str | None) -> int | None:
    if pattern is None:
        return _default_ms(text)
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


def simple_ms(text: Datum, pattern: Datum, rows: int) -> Datum:
    """Milliseconds since the epoch of text read by a pattern of `SimpleDateFormat`; NULL where it does not fit."""
    if is_constant(text) or not is_constant(pattern) or not pattern.is_valid:
        return map_distinct(_simple_in, [text, pattern], rows, pa.int64())
    try:
        return compile_simple(pattern.as_py()).parse(text)
    except PatternError:
        return pa.nulls(len(text), pa.int64())


def _simple_in(text: str, pattern: str) -> int | None:
    try:
        return compile_simple(pattern).parse_text(text)
    except PatternError:
        return None


def _to_timestamp(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return parse_ms(arguments[0], arguments[1] if len(arguments) > 1 else None, rows).cast(result.arrow)


def _to_date(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if len(arguments) == 2:
        ms = simple_ms(arguments[0], arguments[1], rows)
        ms = pc.if_else(
            pc.and_(pc.greater_equal(ms, _YEARS_MS[0]), pc.less(ms, _YEARS_MS[1])), ms, pa.scalar(None, pa.int64())
        )
        return pc.floor_temporal(ms.cast(_MS), unit="day").cast(pa.date32())
    text = arguments[0]
    plain = None if is_constant(text) else directly(text, pa.date32())
    return plain if plain is not None else map_distinct(date_days, arguments, rows, pa.int32()).cast(pa.date32())


def _date_format(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    moment, pattern = arguments
    if any_null_constant(arguments):
        return null_of(result)
    if pa.types.is_string(moment.type):
        moment = _as_shown(simple_ms(moment, _DEFAULT, rows)).cast(_MS)
    local = naive(moment)
    if pa.types.is_date(local.type):
        local = local.cast(_MS)
    if not is_constant(pattern):
        times, patterns = as_array(local, rows), pattern.to_pylist()
        return pa.array([_format_one(times.slice(i, 1), p) for i, p in enumerate(patterns)], pa.string())
    compiled = compile_pattern(pattern.as_py())
    return compiled.format(local) if not is_constant(local) else compiled.format(as_array(local, 1))[0]


def _as_shown(ms: Datum) -> Datum:
    """Times whose fields are those that Java's calendar has of `ms`."""
    least = (ms if is_constant(ms) else pc.min(ms)).as_py()
    if least is None or least >= GREGORIAN_START_MS:
        return ms
    column = as_array(ms, 1)
    shown = pa.array(
        as_shown(pc.fill_null(column, 0).to_numpy()), mask=pc.is_null(column).to_numpy(zero_copy_only=False)
    )
    return shown[0] if is_constant(ms) else shown


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
    ms = as_array(simple_ms(texts[0], arguments[1] if len(texts) == 2 else _DEFAULT, 1 if constant else rows), rows)
    seconds = pc.divide(ms, 1000)  # truncated, as in Java
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
    precision = arguments[1].as_py() if len(arguments) == 2 else 3
    factor = {"ms": 10**3, "us": 10**6, "ns": 10**9}[result.arrow.unit] / 10**precision
    try:
        if pa.types.is_floating(ticks.type):  # keeps its fraction, a DECIMAL does not
            steps = pc.floor(pc.multiply(ticks.cast(pa.float64()), factor)).cast(pa.int64())
        else:
            whole = pc.trunc(ticks) if pa.types.is_decimal(ticks.type) else ticks
            steps = pc.multiply_checked(whole.cast(pa.int64(), safe=False), pa.scalar(int(factor), pa.int64()))
    except pa.ArrowInvalid as error:
        raise DataError("TO_TIMESTAMP_LTZ: the number is out of range") from error
    return steps.cast(result.arrow)


def _ltz_result(arguments: Sequence[Argument]) -> DataType:
    """As many digits as a number's precision, at least three."""
    of_number = len(arguments) == 2 and not arguments[0].type.is_character
    return timestamp_ltz(max(3, arguments[1].literal) if of_number else 3)


def _zoned(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    local = parse_ms(arguments[0], arguments[1] if len(arguments) > 1 else None, rows)
    if len(arguments) < 3:
        return local.cast(result.arrow)
    return map_distinct(_instant_ms, [local, arguments[2]], rows, pa.int64()).cast(result.arrow)


def _instant_ms(local: int, zone: str) -> int:
    return local - _offset_ms(local, find_zone(zone))


def _offset_ms(ms: int, zone: tzinfo, *, local: bool = True) -> int:
    """The zone's offset at a local time or at an instant, ms; a skipped local time counts with the offset before the gap, as in Java.

    Before 1900 it is that of today's standard time, as Java has it.
    """
    if ms < _ZONES_START_MS:
        moment = datetime(2030, 1, 1)
    else:
        moment = datetime(1970, 1, 1) + timedelta(
            milliseconds=ms if ms < _YEARS_END_MS else _YEARS_END_MS - (-ms) % _CYCLE_MS
        )
    placed = moment.replace(tzinfo=zone) if local else moment.replace(tzinfo=UTC).astimezone(zone)
    offset = placed.utcoffset() or timedelta()
    if ms < _ZONES_START_MS:
        offset -= placed.dst() or timedelta()
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
    local = compile_simple(DEFAULT_PATTERN).parse_text(text)
    if local is None:
        return None
    instant = _instant_ms(local, source)
    shown = as_shown(np.array([instant + _offset_ms(instant, find_zone(target), local=False)]))
    written: str = compile_pattern(DEFAULT_PATTERN).format(pa.array(shown).cast(_MS))[0].as_py()
    return written


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
    if len(others) > 1 or (others and (not others[0].is_literal or others[0].literal not in range(10))):
        return "of a number, the second argument is the precision: 0 (seconds), 3 (milliseconds), up to 9 (nanoseconds)"
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
        "TO_DATE", Rule("TO_DATE(string[, pattern])", DATE, (TEXT,), (_READING,)), _to_date,
        "TO_DATE(string[, pattern])", "The date that a text spells; NULL if it does not fit the pattern.",
        texts.to_date_text,
    ),
    ScalarFunction(
        "FROM_UNIXTIME", Rule("FROM_UNIXTIME(seconds[, pattern])", STRING, (LONG,), (PATTERN,)), _from_unixtime,
        "FROM_UNIXTIME(seconds[, pattern])", "Seconds since the epoch as text (UTC).", texts.from_unixtime_text, fallible=True,
    ),
    ScalarFunction(
        "UNIX_TIMESTAMP", Rule("UNIX_TIMESTAMP([string[, pattern]])", BIGINT, (), (TEXT, _READING)), _unix_timestamp,
        "UNIX_TIMESTAMP([string[, pattern]])",
        "Seconds since the epoch, now or of a text; the least BIGINT if the text is not a time.",
        texts.unix_timestamp_text, deterministic=False,
    ),
    ScalarFunction(
        "TO_TIMESTAMP_LTZ",
        Rule(_LTZ, _ltz_result, (ANYTHING,), (ANYTHING, _ZONE), check=_ltz_check), _to_timestamp_ltz, _LTZ,
        "The instant of a number of seconds (precision 0), milliseconds (3) or finer units, or of a text in a zone.",
        texts.to_ltz_text, fallible=True,
    ),
    ScalarFunction(
        "CONVERT_TZ", Rule("CONVERT_TZ(string, from zone, to zone)", STRING, (TEXT, _ZONE, _ZONE)), _convert_tz,
        "CONVERT_TZ(string, from zone, to zone)", "A local time of one zone as text in another.", fallible=True,
    ),
)  # fmt: skip
"""Functions between times and text."""
