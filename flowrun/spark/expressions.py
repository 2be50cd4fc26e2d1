"""Translates expression trees to Spark SQL text that gives exactly the same value for each row."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.types import DataType
from flowrun.errors import InternalError
from flowrun.functions.registry import scalar
from flowrun.functions.spark_text import is_counted, quoted
from flowrun.plan import expressions as trees
from flowrun.spark.casts import cast_text
from flowrun.spark.frame import NotNative
from flowrun.spark.literals import literal_text

__all__ = ["cast_text", "literal_text", "spark_text"]

_LOOKS_INSIDE_NO_TIME = frozenset(
    {
        *("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "IS NULL", "IS NOT NULL"),
        *("ROW", "ARRAY", "MAP", "ITEM", "GREATEST", "LEAST", "CARDINALITY"),
    }
)
"""Functions that give the same result for the numbers that times in nanoseconds are in Spark."""


def spark_text(expression: trees.Expression, columns: Sequence[str]) -> str:
    """An expression as Spark SQL text, which has exactly the Spark type of its type.

    Args:
        expression: an expression over the input columns.
        columns: Spark SQL text of each input column.

    Raises:
        NotNative: no Spark SQL gives the same result for a part of it.
    """

    def text(node: trees.Expression) -> str:
        match node:
            case trees.ColumnRef(index=index):
                return columns[index]
            case trees.Literal():
                return literal_text(node.value, node.type)
            case trees.Call():
                return _call(node, [text(a) for a in node.arguments])
            case trees.And(operands=operands):
                return "(" + " AND ".join(map(text, operands)) + ")"
            case trees.Or(operands=operands):
                return "(" + " OR ".join(map(text, operands)) + ")"
            case trees.Case(branches=branches, otherwise=otherwise):
                whens = " ".join(f"WHEN {text(condition)} THEN {text(value)}" for condition, value in branches)
                return f"CASE {whens} ELSE {text(otherwise)} END"
            case trees.Cast(operand=operand, safe=safe):
                return cast_text(text(operand), operand.type, node.type, safe)
            case trees.InList(operand=operand, values=values, negated=negated):
                inner = ", ".join(literal_text(v, operand.type) for v in values)
                return f"({text(operand)} {'NOT ' * negated}IN ({inner}))"
            case trees.FieldAccess(operand=operand, name=name):
                return f"{text(operand)}.{quoted(name)}"
            case trees.PythonCall(name=name):
                raise NotNative(f"the Python function {name}")
        raise InternalError(f"no Spark SQL for {type(node).__name__}")

    return text(expression)


def _call(call: trees.Call, texts: list[str]) -> str:
    function = scalar(call.function)
    if function is None:
        raise InternalError(f"function {call.function} is not registered")
    types = [a.type for a in call.arguments]
    if call.function not in _LOOKS_INSIDE_NO_TIME and any(map(_has_nanoseconds, (*types, call.type))):
        raise NotNative(f"{call.function} of times finer than microseconds")
    found = function.spark(texts, types, call.type) if function.spark is not None else None
    if found is None:
        shown = ", ".join(map(str, types))
        raise NotNative(f"{call.function}({shown}) has no equal in Spark")
    return found


def _has_nanoseconds(type: DataType) -> bool:
    return (type.is_temporal and is_counted(type)) or any(map(_has_nanoseconds, type.children))
