# ruff: noqa: ARG001 - converters share one signature
"""CAST and TRY_CAST as Spark SQL text, by the rules of `flowrun.functions.casts.casts`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

from flowrun.core.types import DataType, TypeRoot, timestamp, timestamp_ltz
from flowrun.functions.casts.casts import is_fallible, is_relabelling
from flowrun.functions.coercion import castable
from flowrun.functions.numbers.spark_texts import approximate_text
from flowrun.functions.spark_text import floor_div, is_counted, micros_text, quote_text, quoted, spark_type
from flowrun.functions.times.spark_texts import read_date, read_time, read_timestamp
from flowrun.spark.frame import NotNative

_SPACE = r"[\x{0}-\x{20}]*"
"""What Java's `String.trim` takes away."""
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PER_DAY_NS = 86_400_000_000_000
_GREATEST_FLOAT = "3.4028235677973362E38D"
"""The least double that is infinity as a FLOAT."""
_VARIABLES = count()


def cast_text(text: str, given: DataType, wanted: DataType, safe: bool = False) -> str:
    """A Spark SQL expression of type `given` converted to `wanted`; what cannot be converted is an error, or NULL if `safe`.

    Raises:
        NotNative: Spark cannot convert these exactly as flowrun does.
    """
    if given.root is TypeRoot.NULL:
        return f"CAST(NULL AS {spark_type(wanted)})"
    if is_relabelling(given, wanted):
        return text if spark_type(given) == spark_type(wanted) else f"CAST({text} AS {spark_type(wanted)})"
    if not castable(given, wanted):
        raise NotNative(f"no cast of {given} to {wanted}")
    if wanted.is_character:
        return _sized(to_text(text, given), given, wanted)
    convert = _converter(given, wanted)
    if convert is None:
        raise NotNative(f"Spark has no cast of {given} to {wanted}")
    return convert(text, given, wanted, safe)


Convert = Callable[[str, DataType, DataType, bool], str]


def _converter(given: DataType, wanted: DataType) -> Convert | None:
    if given.is_character:
        return _FROM_TEXT.get(wanted.root)
    if given.is_temporal and wanted.is_temporal:
        return _temporal
    if given.is_binary and wanted.is_binary:
        return _binary
    if given.is_interval and wanted.is_integer:
        return _plainly
    if given.root is wanted.root and given.is_nested:
        return {TypeRoot.ARRAY: _array, TypeRoot.MAP: _map, TypeRoot.ROW: _row}[given.root]
    if given.root is TypeRoot.DOUBLE and wanted.root is TypeRoot.FLOAT:
        return _double_to_float
    if given.is_approximate and wanted.root is TypeRoot.DECIMAL:
        return _approximate_to_decimal
    simple = given.is_numeric or given.root is TypeRoot.BOOLEAN
    return _plainly if simple and (wanted.is_numeric or wanted.root is TypeRoot.BOOLEAN) else None


def _cast(text: str, wanted: DataType, safe: bool) -> str:
    return f"{'TRY_' * safe}CAST({text} AS {spark_type(wanted)})"


def _plainly(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    return _cast(text, wanted, safe)


def _approximate_to_decimal(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    return _cast(
        approximate_text(text, given), wanted, safe
    )  # with its fewest digits; NaN and infinity are no decimals then


def _double_to_float(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    failure = "NULL" if safe else f"raise_error({quote_text(f'a DOUBLE does not fit into {wanted}')})"
    infinite = "CAST('Infinity' AS DOUBLE)"
    return (
        f"CASE WHEN abs({text}) >= {_GREATEST_FLOAT} AND abs({text}) < {infinite} THEN CAST({failure} AS FLOAT)"
        f" ELSE CAST({text} AS FLOAT) END"
    )


# -- from text -----------------------------------------------------------------------------------------------------------------


def _text_to(pattern: str, text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    whole = quote_text(rf"\A{pattern}\z")
    return _cast(f"regexp_extract({text}, {whole}, 1)", wanted, safe)


def _text_to_integer(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    no_digit_before = quote_text(r"\A *[+-]?\.\d* *\z")
    number = _text_to(r" *([+-]?\d+)(?:\.\d*)? *", text, given, wanted, safe)
    return f"CASE WHEN {text} RLIKE {no_digit_before} THEN CAST(0 AS {spark_type(wanted)}) ELSE {number} END"


def _text_to_date(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    return read_date(text, safe=safe)


def _text_to_clock(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    if is_counted(wanted):
        raise NotNative("Spark's times have no nanoseconds")
    read = read_time if wanted.root is TypeRoot.TIME else read_timestamp
    return read(text, wanted.precision or 0, spark_type(wanted), safe=safe)


def _text_to_binary(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    return _binary(f"CAST({text} AS BINARY)", DataType(TypeRoot.VARBINARY), wanted, safe)


_APPROXIMATE = partial(
    _text_to,
    rf"{_SPACE}(?:[+-](?=NaN))?((?:[+-]?Infinity|NaN)(?={_SPACE}\z)|[+-]?{_NUMBER}(?:[eE][+-]?\d+)?)[dDfF]?{_SPACE}",
)
_FROM_TEXT: dict[TypeRoot, Convert] = {
    TypeRoot.TINYINT: _text_to_integer,
    TypeRoot.SMALLINT: _text_to_integer,
    TypeRoot.INTEGER: _text_to_integer,
    TypeRoot.BIGINT: _text_to_integer,
    TypeRoot.FLOAT: _APPROXIMATE,
    TypeRoot.DOUBLE: _APPROXIMATE,
    TypeRoot.DECIMAL: partial(_text_to, rf"{_SPACE}([+-]?{_NUMBER}(?:[eE][+-]?\d{{1,3}})?){_SPACE}"),
    TypeRoot.BOOLEAN: partial(_text_to, r"(\S+)"),
    TypeRoot.DATE: _text_to_date,
    TypeRoot.TIME: _text_to_clock,
    TypeRoot.TIMESTAMP: _text_to_clock,
    TypeRoot.TIMESTAMP_LTZ: _text_to_clock,
    TypeRoot.BINARY: _text_to_binary,
    TypeRoot.VARBINARY: _text_to_binary,
}


# -- to text -------------------------------------------------------------------------------------------------------------------


def to_text(text: str, given: DataType) -> str:
    """Values of any type as text in flowrun's spelling, as a Spark SQL expression.

    Java before 19 writes some numbers beyond 8E37 with more digits than are needed to read them back.

    Raises:
        NotNative: the type has times finer than microseconds.
    """
    if given.is_temporal and is_counted(given):
        raise NotNative("Spark's times have no nanoseconds")
    match given.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return text
        case TypeRoot.BOOLEAN:
            return f"upper(CAST({text} AS STRING))"
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return f"make_valid_utf8(CAST({text} AS STRING))"
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return approximate_text(text, given)
        case TypeRoot.TIME:
            moment = f"make_timestamp_ntz(DATE '1970-01-01', {text})"
            return f"date_format({moment}, {quote_text(_clock_pattern(given))})"
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return f"date_format({text}, {quote_text('yyyy-MM-dd ' + _clock_pattern(given))})"
        case TypeRoot.INTERVAL_DAY_TIME:
            return _day_time(text)
        case TypeRoot.INTERVAL_YEAR_MONTH:
            months = f"abs({text})"
            sign = f"CASE WHEN {text} < 0 THEN '-' ELSE '+' END"
            return _unless_null(text, f"format_string('%s%d-%02d', {sign}, {months} DIV 12, {months} % 12)")
        case TypeRoot.ARRAY:
            return f"concat('[', array_join({_shown_each(text, given.children[0])}, ', '), ']')"
        case TypeRoot.MAP:
            return _map_to_text(text, given)
        case TypeRoot.ROW:
            return _row_to_text(text, given)
        case _:
            return f"CAST({text} AS STRING)"


def _clock_pattern(type: DataType) -> str:
    precision = type.precision or 0
    return "HH:mm:ss" + ("." + "S" * precision if precision else "")


def _day_time(text: str) -> str:
    ms = f"abs({text})"
    sign = f"CASE WHEN {text} < 0 THEN '-' ELSE '+' END"
    parts = (
        f"{ms} DIV 86400000",
        f"{ms} DIV 3600000 % 24",
        f"{ms} DIV 60000 % 60",
        f"{ms} DIV 1000 % 60",
        f"{ms} % 1000",
    )
    return _unless_null(text, f"format_string('%s%d %02d:%02d:%02d.%03d', {sign}, {', '.join(parts)})")


def _unless_null(text: str, then: str) -> str:
    return f"CASE WHEN {text} IS NOT NULL THEN {then} END"


def _shown(text: str, type: DataType) -> str:
    return f"coalesce({to_text(text, type)}, 'NULL')"


def _shown_each(text: str, element: DataType) -> str:
    each = _variable()
    return f"transform({text}, {each} -> {_shown(each, element)})"


def _map_to_text(text: str, given: DataType) -> str:
    each = _variable()
    key, value = given.children
    pair = f"concat({_shown(f'{each}.key', key)}, '=', {_shown(f'{each}.value', value)})"
    return f"concat('{{', array_join(transform(map_entries({text}), {each} -> {pair}), ', '), '}}')"


def _row_to_text(text: str, given: DataType) -> str:
    fields = zip(given.names, given.children, strict=True)
    shown = "".join(f", {_shown(f'{text}.{quoted(name)}', child)}" for name, child in fields)
    return _unless_null(text, f"concat('(', concat_ws(', '{shown}), ')')")


def _sized(text: str, given: DataType, wanted: DataType) -> str:
    length = wanted.length
    if length is None:
        return text
    if wanted.root is TypeRoot.CHAR:
        return f"rpad({text}, {length}, ' ')"
    known = given.length if given.is_character else None
    return f"substring({text}, 1, {length})" if known is None or known > length else text


def _binary(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    if wanted.length is None:
        return text
    if wanted.root is TypeRoot.BINARY:
        return f"rpad({text}, {wanted.length}, X'00')"
    return f"substring({text}, 1, {wanted.length})"


# -- between times -------------------------------------------------------------------------------------------------------------


def _temporal(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    if is_counted(given) or is_counted(wanted):
        return _counted(text, given, wanted, safe)
    if wanted.root is TypeRoot.TIME:
        clock = text if given.root is TypeRoot.TIME else f"CAST({text} AS TIMESTAMP_NTZ)"
        return f"CAST({clock} AS {spark_type(wanted)})"
    if given.root is TypeRoot.TIME:
        text, given = f"make_timestamp_ntz(DATE '1970-01-01', {text})", timestamp(given.precision or 0)
    if given.is_timestamp and wanted.is_timestamp and (wanted.precision or 0) < (given.precision or 0):
        text, given = floored(text, wanted.precision or 0), timestamp_ltz(wanted.precision or 0)
    return text if spark_type(given) == spark_type(wanted) else f"CAST({text} AS {spark_type(wanted)})"


def floored(text: str, precision: int) -> str:
    """A timestamp (with or without zone) without the digits after `precision` of its fraction, as TIMESTAMP."""
    unit = {0: "SECOND", 3: "MILLISECOND", 6: "MICROSECOND"}.get(precision)
    if unit is not None:
        return f"date_trunc('{unit}', {text})"
    step = 10 ** (6 - precision)
    return f"timestamp_micros({floor_div(f'unix_micros(CAST({text} AS TIMESTAMP))', step)} * {step}L)"


def _counted(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    """A cast from or to times in nanoseconds."""
    if not is_counted(given):
        six = DataType(wanted.root, precision=6)
        micros = micros_text(_temporal(text, given, six, safe), six)
        return f"{'try_multiply' if safe else ''}({micros}{', ' if safe else ' * '}1000L)"
    if not is_counted(wanted):
        micros = floor_div(f"pmod({text}, {_PER_DAY_NS}L)" if wanted.root is TypeRoot.TIME else text, 1000)
        if wanted.root is TypeRoot.TIME:
            return f"CAST(time_from_micros({micros}) AS {spark_type(wanted)})"
        return _temporal(f"timestamp_micros({micros})", timestamp_ltz(6), wanted, safe)
    if wanted.root is TypeRoot.TIME:
        text = f"pmod({text}, {_PER_DAY_NS}L)"
    step = 10 ** (9 - (wanted.precision or 0))
    return text if step == 1 else f"({floor_div(text, step)} * {step}L)"


# -- nested --------------------------------------------------------------------------------------------------------------------


def _variable() -> str:
    """A name for the argument of a lambda, which differs from the names of all columns and other lambdas."""
    return quoted(f"$each{next(_VARIABLES)}")


def _array(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    each, before, after = _variable(), given.children[0], wanted.children[0]
    made = f"transform({text}, {each} -> {cast_text(each, before, after, safe)})"
    if not safe or not is_fallible(before, after):
        return made
    return f"CASE WHEN NOT exists({text}, {each} -> {_failed(each, before, after)}) THEN {made} END"


def _map(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    each = _variable()
    parts = [(f"{each}.{n}", g, w) for n, g, w in zip(("key", "value"), given.children, wanted.children, strict=True)]
    pair = ", ".join(f"'{n}', {cast_text(*p, safe)}" for n, p in zip(("key", "value"), parts, strict=True))
    made = f"map_from_entries(transform(map_entries({text}), {each} -> named_struct({pair})))"
    failures = [_failed(*p) for p in parts if is_fallible(*p[1:])]
    if not safe or not failures:
        return made
    return f"CASE WHEN NOT exists(map_entries({text}), {each} -> {' OR '.join(failures)}) THEN {made} END"


def _row(text: str, given: DataType, wanted: DataType, safe: bool) -> str:
    parts = [
        (f"{text}.{quoted(n)}", g, w) for n, g, w in zip(given.names, given.children, wanted.children, strict=True)
    ]
    fields = ", ".join(f"{quote_text(n)}, {cast_text(*p, safe)}" for n, p in zip(wanted.names, parts, strict=True))
    conditions = [f"{text} IS NOT NULL", *(f"NOT ({_failed(*p)})" for p in parts if safe and is_fallible(*p[1:]))]
    return f"CASE WHEN {' AND '.join(conditions)} THEN named_struct({fields}) END"


def _failed(text: str, given: DataType, wanted: DataType) -> str:
    return f"({text} IS NOT NULL AND {cast_text(text, given, wanted, True)} IS NULL)"
