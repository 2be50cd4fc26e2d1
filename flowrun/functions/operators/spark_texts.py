# ruff: noqa: ARG001 - texts share one signature
"""The operators as Spark SQL text of exactly the same value, as far as Spark has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.operators.comparison import like_regex, similar_regex
from flowrun.functions.spark_text import integer_literal, micros_text, quote_text, spark_type, string_literal

_DAY_MS = 86_400_000
_NUMBER = re.compile(r"\(?-?[\d.]+([eE][+-]?\d+)?D\)?|CAST\(\(?-?[\d.]+([eE][+-]?\d+)?D\)? AS FLOAT\)")


@record
class Binary:
    """A symbol between two operands."""

    symbol: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        return f"({texts[0]} {self.symbol} {texts[1]})"


@record
class Arithmetic:
    """+ − * / %, over numbers, points in time and intervals; Spark derives the same decimal types, and rounds half up into them."""

    symbol: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        left, right = texts
        if any(t.is_temporal for t in types):
            if self.symbol == "+" and types[0].is_interval:
                left, right, types = right, left, types[::-1]
            return _moved(left, right, types, result, self.symbol)
        used = "DIV" if self.symbol == "/" and result.is_integer else self.symbol
        call = f"({left} {used} {right})"
        same = result.is_interval or (types[0] == types[1] == result and self.symbol != "/" and not _is_decimal(result))
        return call if same else f"CAST({call} AS {spark_type(result)})"


def _is_decimal(type: DataType) -> bool:
    return type.root is TypeRoot.DECIMAL


def _moved(left: str, right: str, types: Sequence[DataType], result: DataType, symbol: str) -> str | None:
    """A point in time plus or minus an interval, or the interval between two."""
    point, other = types
    if not other.is_interval:
        if point.root is TypeRoot.TIME or (
            point.root is not other.root and TypeRoot.TIMESTAMP_LTZ in (point.root, other.root)
        ):
            return None
        return f"(({micros_text(left, point)} - {micros_text(right, other)}) DIV 1000)"
    count = right if symbol == "+" else f"(- {right})"
    if other.root is TypeRoot.INTERVAL_YEAR_MONTH:
        return (
            f"add_months({left}, {count})" if point.root is TypeRoot.DATE else f"timestampadd(MONTH, {count}, {left})"
        )
    if point.root is TypeRoot.TIME:
        return _turned(left, right, point, symbol)
    if result.root is TypeRoot.DATE:
        return f"date_add({left}, CAST({count} DIV {_DAY_MS} AS INT))"
    start = f"CAST({left} AS {spark_type(result)})" if point.root is TypeRoot.DATE else left
    return f"timestampadd(MILLISECOND, {count}, {start})"


def _turned(left: str, right: str, point: DataType, symbol: str) -> str | None:
    ms = integer_literal(right)
    if (point.precision or 0) < 3 and (ms is None or ms % 1000):
        return None  # the sum may be finer than its type, which Spark's TIME cannot be
    micros = f"pmod(time_to_micros({left}) {symbol} pmod({right}, {_DAY_MS}L) * 1000L, {_DAY_MS * 1000}L)"
    return f"CAST(time_from_micros({micros}) AS {spark_type(point)})"


def negate_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """Unary minus. Spark's own rounds decimals to 34 digits."""
    if _is_decimal(result) and (result.precision or 0) > 34:
        return negated_decimal(texts[0], result)
    return f"(- {texts[0]})"


def negated_decimal(text: str, type: DataType) -> str:
    """A DECIMAL with the other sign, all 38 digits kept."""
    shown = f"CAST({text} AS STRING)"
    return f"CAST(CASE WHEN {text} < 0 THEN substring({shown}, 2) ELSE concat('-', {shown}) END AS {spark_type(type)})"


@record
class Comparison:
    """A comparison. To Spark NaN is the greatest number and equal to itself; here no comparison with it is true, except <>."""

    symbol: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        left, right = texts
        plain = f"({left} {self.symbol} {right})"
        if types[0].is_nested:
            return None if _holds(types[0], lambda t: t.is_approximate) else plain
        if not types[0].is_approximate:
            return plain
        suspect, other = (right, left) if self.symbol.startswith("<") and self.symbol != "<>" else (left, right)
        if self.symbol in ("=", "<>") and _NUMBER.fullmatch(suspect):
            suspect, other = other, suspect
        if _NUMBER.fullmatch(suspect) or (self.symbol in ("=", "<>") and _NUMBER.fullmatch(other)):
            return plain
        if _NUMBER.fullmatch(other):
            return f"({plain} AND NOT isnan({suspect}))"
        never = f"({other} {'=' if self.symbol == '<>' else '<>'} {other})"  # of NaN too; NULL of NULL
        return f"CASE WHEN isnan({suspect}) THEN {never} ELSE {plain} END"


@record
class Distinct:
    """IS [NOT] DISTINCT FROM."""

    negated: bool

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        left, right = texts
        if types[0].is_nested and _holds(types[0], lambda t: t.is_approximate):
            return None
        same = f"{left} <=> {right}"
        if types[0].is_approximate:
            same = f"{same} AND NOT isnan({left})"
        return f"({same})" if self.negated else f"(NOT ({same}))"


def _holds(type: DataType, test: object) -> bool:
    assert callable(test)
    return bool(test(type)) or any(_holds(c, test) for c in type.children)


@record
class Form:
    """A template with `{0}`, `{1}` … for the operands and `{all}` for all of them."""

    form: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        return self.form.format(*texts, all=", ".join(texts))


def like_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """LIKE a constant. Spark always has an escape character: without one of the user's, it is one that the pattern has not.

    There `_` may be a line end, too, so that patterns with one are regular expressions.
    """
    text, pattern = texts[:2]
    known = string_literal(pattern)
    if known is None:
        return None
    if len(texts) > 2:
        escape = string_literal(texts[2])
        unlike = escape is None or ord(escape) > 0xFFFF or "_" in known
        return None if unlike else f"({text} LIKE {pattern} ESCAPE {texts[2]})"
    if "_" in known:
        return f"({text} RLIKE {_whole(like_regex(known))})"
    unused = next(c for c in "\\!^~|#\x01\x02" if c not in known) if known.isascii() else "\\"
    if unused in known:
        return None
    return f"({text} LIKE {pattern} ESCAPE {quote_text(unused)})"


def _whole(regex: str) -> str:
    """The text of a Java regular expression that matches what one of RE2 between `^` and `$` does."""
    return quote_text(rf"\A{regex.removeprefix('^').removesuffix('$')}\z")


def similar_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """SIMILAR TO a constant pattern, as a Java regular expression."""
    pattern = string_literal(texts[1])
    escape = string_literal(texts[2]) if len(texts) > 2 else None
    if pattern is None or "[" in pattern:
        return None  # classes are written differently in Java
    return f"({texts[0]} RLIKE {_whole(similar_regex(pattern, escape))})"


def row_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """ROW(…)."""
    return "named_struct(" + ", ".join(f"{quote_text(n)}, {t}" for n, t in zip(result.names, texts, strict=True)) + ")"


def map_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """MAP[…]; of equal keys the last one stays in both."""
    key = types[0]
    return None if key.is_approximate or _holds(key, lambda t: t.root is TypeRoot.MAP) else f"map({', '.join(texts)})"


def item_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """array[i], map[key]."""
    container, index = texts
    if types[0].root is TypeRoot.ARRAY:
        place = integer_literal(index)
        if place is not None and 0 < place < 2**31:
            return f"get({container}, {place - 1})"
        return f"get({container}, TRY_CAST(try_subtract({index}, 1L) AS INT))"
    return None if types[1].is_approximate else f"try_element_at({container}, {index})"
