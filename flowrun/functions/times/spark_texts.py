# ruff: noqa: ARG001 - texts share one signature
"""Functions of dates and times as Spark SQL text of exactly the same value, as far as Spark has them. Spark's session zone is UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import integer_literal, micros_text, quote_text, spark_type, string_literal
from flowrun.functions.times.calendar_units import CLOCK_UNITS, MONTHS_PER_UNIT, MS_PER_UNIT
from flowrun.functions.times.current_time import current_ms

_DAY_MS = 86_400_000
_FIELDS = {
    "YEAR": "year({0})", "QUARTER": "quarter({0})", "MONTH": "month({0})", "WEEK": "weekofyear({0})",
    "DOY": "dayofyear({0})", "DAY": "dayofmonth({0})", "DOW": "dayofweek({0})", "ISODOW": "(weekday({0}) + 1)",
    "ISOYEAR": "extract(YEAROFWEEK FROM {0})", "HOUR": "hour({0})", "MINUTE": "minute({0})", "SECOND": "second({0})",
    "DECADE": "floor(year({0}) / 10BD)", "CENTURY": "floor((year({0}) + 99) / 100BD)",
    "MILLENNIUM": "floor((year({0}) + 999) / 1000BD)",
}  # fmt: skip
_FRACTIONS = {
    "MILLISECOND": "(pmod({0}, 1000000L) DIV 1000)",
    "MICROSECOND": "pmod({0}, 1000000L)",
    "NANOSECOND": "(pmod({0}, 1000000L) * 1000L)",
}
_TRUNCATED = ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_LETTERS = frozenset("yMdHhmsaSEDkK")
"""Letters of a date pattern that mean the same to Spark."""
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"


def extract_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """EXTRACT of a constant field."""
    unit = string_literal(texts[0])
    return None if unit is None else Field(unit.upper())([texts[1]], [types[1]], result)


@record
class Field:
    """One field of a date or time."""

    unit: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        text, type = texts[0], types[0]
        if type.root is TypeRoot.DATE and self.unit in CLOCK_UNITS:
            return f"CAST(unix_date({text}) * 0 AS BIGINT)"
        if self.unit in _FRACTIONS:
            return _FRACTIONS[self.unit].format(micros_text(text, type))
        if self.unit == "EPOCH":
            seconds = text if type.root is TypeRoot.TIMESTAMP_LTZ else f"CAST({text} AS TIMESTAMP)"
            return None if type.root is TypeRoot.TIME else f"unix_seconds({seconds})"
        form = _FIELDS.get(self.unit)
        return None if form is None else f"CAST({form.format(text)} AS BIGINT)"


def add_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TIMESTAMPADD of a constant unit."""
    unit, (_, count, point) = string_literal(texts[0]), texts
    if unit is None or types[2].root is TypeRoot.TIME:
        return None
    unit = unit.upper()
    if result.root is not TypeRoot.DATE:
        start = f"CAST({point} AS {spark_type(result)})" if types[2].root is TypeRoot.DATE else point
        return f"timestampadd({unit}, {count}, {start})"
    if unit in MONTHS_PER_UNIT:
        return f"add_months({point}, CAST({count} * {MONTHS_PER_UNIT[unit]} AS INT))"
    return f"date_add({point}, CAST({count} * {MS_PER_UNIT[unit] // _DAY_MS} AS INT))"


def difference_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TIMESTAMPDIFF in units of fixed length: of milliseconds, truncated. Spark counts months by another rule."""
    unit = (string_literal(texts[0]) or "").upper()
    if unit not in MS_PER_UNIT:
        return None
    start, end = (_millis(text, type) for text, type in zip(texts[1:], types[1:], strict=True))
    return f"CAST(({end} - {start}) DIV {MS_PER_UNIT[unit]} AS INT)"


def _millis(text: str, type: DataType) -> str:
    return f"unix_millis({text if type.root is TypeRoot.TIMESTAMP_LTZ else f'CAST({text} AS TIMESTAMP)'})"


@record
class Rounded:
    """FLOOR, or CEIL (`up`), of a date or time to a constant unit."""

    up: bool

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        text, unit = texts[0], (string_literal(texts[1]) or "").upper()
        if result.root is TypeRoot.TIME:
            clock = unit in _TRUNCATED and unit in CLOCK_UNITS and not self.up
            return f"CAST(time_trunc('{unit}', {text}) AS {spark_type(result)})" if clock else None
        if unit not in (*_TRUNCATED, "WEEK"):
            return None
        if result.root is TypeRoot.DATE and (unit == "DAY" or unit in CLOCK_UNITS):
            return text
        if self.up:
            before = f"timestampadd(MICROSECOND, -1, CAST({text} AS TIMESTAMP))"
            return f"CAST(timestampadd({unit}, 1, {_truncated(before, unit)}) AS {spark_type(result)})"
        return f"CAST({_truncated(text, unit)} AS {spark_type(result)})"


def _truncated(text: str, unit: str) -> str:
    if unit != "WEEK":
        return f"date_trunc('{unit}', {text})"
    return f"timestampadd(DAY, 1 - dayofweek({text}), date_trunc('DAY', {text}))"  # weeks start on Sunday


# -- text ----------------------------------------------------------------------------------------------------------------------


def format_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """DATE_FORMAT of a time in a constant pattern."""
    if not (types[0].is_timestamp or types[0].root is TypeRoot.DATE) or not _is_shared(string_literal(texts[1])):
        return None
    return f"date_format({texts[0]}, {texts[1]})"


def _is_shared(pattern: str | None) -> bool:
    """Whether a pattern means the same to Spark."""
    if not pattern:
        return False
    return all(c in _LETTERS or c in " -/:.,_" for c in re.sub("'[^']*'", "", pattern))


def from_unixtime_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """FROM_UNIXTIME."""
    pattern = string_literal(texts[1]) if len(texts) > 1 else _DEFAULT_PATTERN
    if pattern is None or not _is_shared(pattern):
        return None
    return f"date_format(timestamp_seconds({texts[0]}), {quote_text(pattern)})"


def _read(text: str, *, lenient: bool) -> str:
    """The TIMESTAMP_NTZ that a text spells, in ms, NULL if none; `lenient`: a day that its month lacks becomes the last one."""
    form = (
        r"\A\s*((?!0000)\d{4}-\d{1,2}-\d{1,2}(?:[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d{1,3})?)?)?)"
        r"(?:(?<=:\d{1,2}:\d{1,2})\.|(?<=\.\d{3})\d{0,6})?\s*\z"
    )
    found = f"regexp_extract({text}, {quote_text(form)}, 1)"
    tries = [f"TRY_CAST({found} AS TIMESTAMP_NTZ)"]
    if lenient:
        day = quote_text(r"^(\d{4}-\d{1,2}-)(?:29|30|31)(?!\d)")
        for last in (30, 29, 28):
            other = quote_text(rf"$1{last}").replace("$1", "\\u00241")
            tries.append(f"TRY_CAST(regexp_replace({found}, {day}, {other}) AS TIMESTAMP_NTZ)")
    return f"coalesce({', '.join(tries)})" if lenient else tries[0]


def _is_default(texts: Sequence[str]) -> bool:
    return len(texts) < 2 or string_literal(texts[1]) == _DEFAULT_PATTERN


def to_timestamp_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TO_TIMESTAMP in the default form."""
    return _read(texts[0], lenient=True) if _is_default(texts) else None


def to_date_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TO_DATE in the default form."""
    return f"CAST({_read(texts[0], lenient=False)} AS DATE)" if len(texts) == 1 else None


def unix_timestamp_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """UNIX_TIMESTAMP now, or of a text in the default form."""
    if not texts:
        return f"{current_ms() // 1000}L"
    if not _is_default(texts):
        return None
    seconds = f"unix_seconds(CAST({_read(texts[0], lenient=True)} AS TIMESTAMP))"
    return f"CASE WHEN {texts[0]} IS NOT NULL THEN coalesce({seconds}, -9223372036854775808L) END"


def to_ltz_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TO_TIMESTAMP_LTZ of a number, or of a text in the default form."""
    if types[0].is_character:
        return f"CAST({_read(texts[0], lenient=True)} AS TIMESTAMP)" if len(texts) == 1 else None
    if types[0].is_approximate:
        return None  # what does not fit is an error there and a wrong number here
    unit = "seconds" if len(texts) > 1 and integer_literal(texts[1]) == 0 else "millis"
    return f"timestamp_{unit}(CAST({texts[0]} AS BIGINT))"
