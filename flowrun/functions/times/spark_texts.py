# ruff: noqa: ARG001 - texts share one signature
"""Functions of dates and times as Spark SQL text of exactly the same value, as far as Spark has them. Spark's session zone is UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import integer_literal, let, micros_text, quote_text, spark_type, string_literal
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
        if type.is_interval:
            return None
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


_YMD = r"(?!0000)\d{4}-\d{1,2}-\d{1,2}"
_CONTROL = r"[\x{0}-\x{20}]+"
"""What Java's `String.trim` takes away."""


def _extract(text: str, form: str) -> str:
    """The first group of a form that the whole text has; empty if it has another."""
    whole = quote_text(rf"\A{form}\z")
    return f"regexp_extract({text}, {whole}, 1)"


def _replace(text: str, form: str, by: str) -> str:
    return f"regexp_replace({text}, {quote_text(form)}, {quote_text(by)})"


def read_timestamp(text: str, digits: int, type: str, *, safe: bool) -> str:
    """The timestamp (`type` in Spark) of up to six digits that a text spells to CAST; if none, NULL or, unless `safe`, an error."""
    clock, point = r"\d{1,2}:\d{1,2}:\d{1,2}", r"(?<=:\d{1,2}:\d{1,2})\."
    if digits:
        rest = rf"{point}|(?<=\.\d{{{digits}}})\d{{0,{9 - digits}}}"
        found = _extract(text, rf"({_YMD}(?: {clock}(?:\.\d{{1,{digits}}})?)?)(?:{rest})?")
    else:
        found = _extract(text, rf"({_YMD}(?: {clock})?)(?:{point}\d{{0,9}})?")
    before = _extract(text, rf"({_YMD}) 24:0?0:0?0(?:\.0{{0,9}})?")
    tries = [
        f"TRY_CAST({found} AS {type})",
        *_last_days(found, type),
        *(f"timestampadd(DAY, 1, {t})" for t in (f"TRY_CAST({before} AS {type})", *_last_days(before, type))),
        *([] if safe else [f"CAST({found} AS {type})"]),
    ]
    return f"coalesce({', '.join(tries)})"


def _last_days(found: str, type: str) -> list[str]:
    """The same with a day up to 31 that the month lacks as one that it may have, the later first."""
    day = r"^(\d{4}-\d{1,2}-)(?:29|30|31)(?!\d)"
    return [f"TRY_CAST({_replace(found, day, f'$1{last}')} AS {type})" for last in (30, 29, 28)]


def read_date(text: str, *, safe: bool) -> str:
    """The date that a text spells to CAST; if none, NULL or, unless `safe`, an error."""
    usual = _extract(text, r"(\d{4}-\d{1,2}-\d{1,2})(?: (?s:.*))?")
    cut = _replace(text, r"(?s)\A([^ ]+) .*\z", "$1")
    bare = _replace(cut, rf"\A{_CONTROL}|{_CONTROL}\z|(?<=-){_CONTROL}|{_CONTROL}(?=-)", "")
    padded = f"concat('000', {_replace(bare, '-0+(?=[0-9])', '-')})"
    other = _extract(padded, r"0*(\d{4}(?:-\d{1,2}){0,2})")
    return f"coalesce(TRY_CAST({usual} AS DATE), {'TRY_' * safe}CAST({other} AS DATE))"


def read_time(text: str, digits: int, type: str, *, safe: bool) -> str:
    """The time of day (`type` in Spark) of up to six digits that a text spells to CAST; if none, NULL or, unless `safe`, an error."""
    kept = max(digits, 4)  # up to three digits are those of milliseconds, rounded by the fourth
    form = rf"(\d{{1,2}}:\d{{1,2}}(?::\d{{1,2}}(?:\.\d{{1,{kept}}})?)?)(?:(?<=:\d{{1,2}}:\d{{1,2}})\.|(?<=\.\d{{{kept}}})\d*)?"
    bare = _replace(text, rf"\A{_CONTROL}|{_CONTROL}\z|(?<=[:.]){_CONTROL}|{_CONTROL}(?=[:.])", "")
    whole = _replace(_replace(bare, r"(\A|:)0+(?=\d)", "$1"), r"\A(\d{1,2})\z", "$1:00")
    other = f"{'TRY_' * safe}CAST({_extract(whole, form)} AS TIME(6))"
    found = f"coalesce(TRY_CAST({_extract(text, form)} AS TIME(6)), {other})"
    if digits > 3:
        return f"CAST({found} AS {type})"
    step = 10 ** (3 - digits)
    rounded = f"((time_to_micros({found}) + 500) DIV 1000 DIV {step} * {step}000)"
    if not safe:
        return f"CAST(time_from_micros({rounded}) AS {type})"
    fits = f"CASE WHEN `$micros` < {_DAY_MS}000 THEN CAST(time_from_micros(`$micros`) AS {type}) END"
    return let("$micros", rounded, fits)


def to_timestamp_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TO_TIMESTAMP in the default form."""
    return read_timestamp(texts[0], 3, "TIMESTAMP_NTZ", safe=True) if len(texts) == 1 else None


def to_date_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TO_DATE in the default form."""
    return read_date(texts[0], safe=True) if len(texts) == 1 else None


def unix_timestamp_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """UNIX_TIMESTAMP now; Spark reads no text as `SimpleDateFormat` does."""
    return None if texts else f"{current_ms() // 1000}L"


def to_ltz_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TO_TIMESTAMP_LTZ of a number, or of a text in the default form."""
    if types[0].is_character:
        return read_timestamp(texts[0], 3, "TIMESTAMP", safe=True) if len(texts) == 1 else None
    if types[0].is_approximate:
        return None  # what does not fit is an error there and a wrong number here
    precision = integer_literal(texts[1]) if len(texts) > 1 else 3
    units = {0: "seconds", 3: "millis", 6: "micros"}
    if precision not in units:
        return None
    unit = units[precision]
    return f"timestamp_{unit}(CAST({texts[0]} AS BIGINT))"
