"""Builders of Spark SQL text for functions that mean the same there (Spark 4, ANSI mode, session zone UTC)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot


@record
class Function:
    """A Spark function of the same arguments in the same order, optionally cast to flowrun's result type."""

    name: str
    cast: bool = False

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        call = f"{self.name}({', '.join(texts)})"
        return f"CAST({call} AS {spark_type(result)})" if self.cast else call


@record
class Template:
    """A Spark expression with `{0}`, `{1}` … for the arguments, `{all}` for all of them and `{type}` for the result type.

    `by_count` holds templates for calls with fewer or more arguments than `text` is made for.
    """

    text: str
    by_count: tuple[tuple[int, str], ...] = ()

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        text = dict(self.by_count).get(len(texts), self.text)
        return text.format(*texts, all=", ".join(texts), type=spark_type(result))


def is_counted(type: DataType) -> bool:
    """Whether Spark holds the type as a number: intervals (ms, months), and times finer than microseconds (ns since 1970 or midnight).

    >>> from flowrun.core.types import INTERVAL_DAY_TIME, timestamp
    >>> is_counted(INTERVAL_DAY_TIME), is_counted(timestamp(9)), is_counted(timestamp(6))
    (True, True, False)
    """
    return type.is_interval or (type.is_temporal and (type.precision or 0) > 6)


def spark_type(type: DataType) -> str:
    """The Spark SQL spelling of a type: TIMESTAMP is Spark's TIMESTAMP_NTZ, TIMESTAMP_LTZ its TIMESTAMP.

    Intervals and times finer than microseconds are the numbers that `flowrun` holds them as (see `is_counted`): Spark's intervals
    cannot leave it as Arrow, its times have six digits.

    >>> from flowrun.core.types import BIGINT, array, timestamp, varchar
    >>> spark_type(array(BIGINT)), spark_type(timestamp(3)), spark_type(varchar(7))
    ('ARRAY<BIGINT>', 'TIMESTAMP_NTZ', 'STRING')
    """
    if is_counted(type):
        return "INT" if type.root is TypeRoot.INTERVAL_YEAR_MONTH else "BIGINT"
    match type.root:
        case TypeRoot.NULL:
            return "VOID"
        case TypeRoot.TIME:
            return f"TIME({type.precision or 0})"
        case TypeRoot.TIMESTAMP:
            return "TIMESTAMP_NTZ"
        case TypeRoot.TIMESTAMP_LTZ:
            return "TIMESTAMP"
        case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.VARIANT:
            return "STRING"
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return "BINARY"
        case TypeRoot.DECIMAL:
            return f"DECIMAL({type.precision}, {type.scale})"
        case TypeRoot.ARRAY:
            return f"ARRAY<{spark_type(type.children[0])}>"
        case TypeRoot.MAP:
            return f"MAP<{spark_type(type.children[0])}, {spark_type(type.children[1])}>"
        case TypeRoot.ROW:
            fields = (f"{quoted(n)}: {spark_type(c)}" for n, c in zip(type.names, type.children, strict=True))
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return str(type.root.value)


def quoted(name: str) -> str:
    """A column or field name as Spark SQL text.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def let(name: str, value: str, body: str) -> str:
    """`body` with a name for a value that is computed once; no lambda inside of the value may leave that name open.

    >>> let("x", "a + 1", "`x` * `x`")
    'get(transform(array(a + 1), `x` -> `x` * `x`), 0)'
    """
    return f"get(transform(array({value}), {quoted(name)} -> {body}), 0)"


_ESCAPED = re.compile(r"[\\'$\x00-\x1f\x7f\x85\u2028\u2029]")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_INTEGER_CAST = re.compile(r"CAST\((.*) AS (?:TINYINT|SMALLINT|INT|BIGINT)\)")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})|\\(.)")


def quote_text(value: str) -> str:
    r"""A text as a Spark SQL string constant. `$` too is escaped: Spark replaces variables in SQL, `${env:HOME}` among them.

    >>> print(quote_text("it's $1"))
    'it\'s \u00241'
    """
    return "'" + _ESCAPED.sub(_escape, value) + "'"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return "\\" + character if character in "\\'" else f"\\u{ord(character):04x}"


def micros_text(text: str, type: DataType) -> str:
    """Microseconds since 1970, or midnight, of a DATE, TIME or timestamp, as BIGINT; of finer times without what is below."""
    if is_counted(type):
        return floor_div(text, 1000)
    if type.root is TypeRoot.TIME:
        return f"time_to_micros({text})"
    return f"unix_micros({text if type.root is TypeRoot.TIMESTAMP_LTZ else f'CAST({text} AS TIMESTAMP)'})"


def floor_div(text: str, step: int) -> str:
    """A BIGINT divided by a constant, rounded down."""
    return f"CAST(floor(CAST({text} AS DECIMAL(19, 0)) / {step}BD) AS BIGINT)"


def integer_literal(text: str) -> int | None:
    """The value of a rendered integer constant, else None.

    >>> integer_literal("-3"), integer_literal("(-2L)"), integer_literal("CAST(2 AS BIGINT)"), integer_literal("x")
    (-3, -2, 2, None)
    """
    cast = _INTEGER_CAST.fullmatch(text)
    inner = (cast[1] if cast else text).strip().strip("()").rstrip("YSL")
    return int(inner) if inner.removeprefix("-").isdecimal() else None


def string_literal(text: str) -> str | None:
    r"""The value of a rendered string constant, else None.

    >>> string_literal("'it\\'s'"), string_literal("c0"), string_literal("'a' || 'b'")
    ("it's", None, None)
    """
    if _STRING.fullmatch(text) is None:
        return None
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text[1:-1])
