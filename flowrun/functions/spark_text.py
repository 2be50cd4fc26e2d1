"""Builders of Spark SQL text for functions that mean the same there (Spark 4, ANSI mode, session zone UTC)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowrun.core.types import DataType, TypeRoot


@dataclass(frozen=True, slots=True)
class Function:
    """A Spark function of the same arguments in the same order, optionally cast to flowrun's result type."""

    name: str
    cast: bool = False

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        call = f"{self.name}({', '.join(texts)})"
        return f"CAST({call} AS {spark_type(result)})" if self.cast else call


@dataclass(frozen=True, slots=True)
class Template:
    """A Spark expression with `{0}`, `{1}` … for the arguments, `{all}` for all of them and `{type}` for the result type.

    `by_count` holds templates for calls with fewer or more arguments than `text` is made for.
    """

    text: str
    by_count: tuple[tuple[int, str], ...] = ()

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        text = dict(self.by_count).get(len(texts), self.text)
        return text.format(*texts, all=", ".join(texts), type=spark_type(result))


def spark_type(type: DataType) -> str:
    """The Spark SQL spelling of a type: TIMESTAMP is Spark's TIMESTAMP_NTZ, TIMESTAMP_LTZ its TIMESTAMP.

    >>> from flowrun.core.types import BIGINT, array, timestamp, varchar
    >>> spark_type(array(BIGINT)), spark_type(timestamp(3)), spark_type(varchar(7))
    ('ARRAY<BIGINT>', 'TIMESTAMP_NTZ', 'STRING')
    """
    match type.root:
        case TypeRoot.TIMESTAMP:
            return "TIMESTAMP_NTZ"
        case TypeRoot.TIMESTAMP_LTZ:
            return "TIMESTAMP"
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
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
            fields = (f"`{n}`: {spark_type(c)}" for n, c in zip(type.names, type.children, strict=True))
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return str(type.root.value)


def integer_literal(text: str) -> int | None:
    """The value of a rendered integer constant, else None.

    >>> integer_literal("-3"), integer_literal("CAST(2 AS INT)"), integer_literal("x")
    (-3, 2, None)
    """
    inner = text.strip()
    if inner.upper().startswith("CAST(") and inner.endswith(")"):
        inner = inner[5:].rpartition(" AS ")[0].strip()
    inner = inner.strip("()")
    digits = inner.removeprefix("-")
    return int(inner) if digits.isdecimal() else None


def string_literal(text: str) -> str | None:
    """The inside of a rendered string constant as it is written (escapes kept), else None."""
    stripped = text.strip()
    if len(stripped) >= 2 and stripped[0] == stripped[-1] == "'" and "'" not in stripped[1:-1].replace("''", ""):
        return stripped[1:-1]
    return None
