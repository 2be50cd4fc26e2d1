"""Parses values from text in Spark SQL: only spellings that Spark certainly reads as flowrun does (`formats.text_values`)."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import is_counted, quote_text, spark_type
from flowrun.spark.input.exactness import NotExactError

_INTEGER = "^-?[0-9]+$"
_NUMBER = r"^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_DECIMAL = r"^-?[0-9]{1,38}([.][0-9]{1,38})?$"
_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?Z?$"
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@record
class Leaf:
    """How a value is parsed from a text.

    Attributes:
        value: Spark SQL of the value, with the type's Spark type; NULL if the text is in no such spelling.
        sure: Spark SQL that is true if flowrun reads the same value; NULL counts as false.
    """

    value: str
    sure: str


def leaf_of_text(text: str, type: DataType) -> Leaf:
    """How a value of a type is parsed from a text, which may be NULL.

    Raises:
        NotExactError: there is no Spark SQL for this type.
    """
    if is_counted(type):
        raise NotExactError(f"text as {type}")
    match type.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return Leaf(text, "TRUE")
        case TypeRoot.BOOLEAN:
            return Leaf(f"{text} = 'true'", f"({text} IS NULL OR {text} IN ('true', 'false'))")
        case TypeRoot.DATE:
            return _plain(text, type, _DATE, text)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            length = 23 if (type.precision or 0) <= 3 else 26
            return _plain(text, type, _TIMESTAMP, f"rtrim('Z', substring({text}, 1, {length}))")
        case TypeRoot.DECIMAL:
            return _plain(text, type, _DECIMAL, text)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return Leaf(f"unbase64({text})", f"({text} IS NULL OR {_is_like(text, _BASE64)})")
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            leaf = _plain(text, type, _NUMBER, text)
            return Leaf(
                leaf.value, f"({text} IS NULL OR ({leaf.sure} AND abs({leaf.value}) < CAST('Infinity' AS DOUBLE)))"
            )
        case _ if type.is_integer:
            return _plain(text, type, _INTEGER, text)
    raise NotExactError(f"text as {type}")


def _plain(text: str, type: DataType, pattern: str, cut: str) -> Leaf:
    value = f"TRY_CAST({cut} AS {spark_type(type)})"
    return Leaf(value, f"({text} IS NULL OR ({_is_like(text, pattern)} AND {value} IS NOT NULL))")


def _is_like(text: str, pattern: str) -> str:
    return f"{text} RLIKE {quote_text(pattern)}"
