"""Translates aggregate calls of a group, or OVER a window, to Spark SQL text."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.types import DataType
from flowrun.errors import InternalError
from flowrun.functions.registry import aggregate
from flowrun.functions.spark_rows import SparkRows
from flowrun.functions.spark_text import spark_type
from flowrun.plan.expressions import AggregateCall
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import NotNative

POSITION_FUNCTIONS = frozenset(
    {"ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"}
)
"""Functions of a row's position in its partition: their window has an order and no frame."""


def aggregate_text(call: AggregateCall, columns: Sequence[str], order: str | None = None) -> str:
    """An aggregate of a group as Spark SQL text for `groupBy().agg`, which has exactly the Spark type of the call's type.

    Args:
        call: the call, with its DISTINCT and FILTER.
        columns: Spark SQL text of each input column.
        order: Spark SQL text of the columns, separated by commas, that order all rows as they came. None: there are no such columns, and
            the result of FIRST_VALUE and similar functions is undefined.

    Raises:
        NotNative: Spark has no equal aggregate.
    """
    return _rendered(call, columns, order, None)


def over_text(call: AggregateCall, columns: Sequence[str], window: str, order: str | None = None) -> str:
    """A call OVER a window as Spark SQL text.

    Args:
        call: an aggregate, or a call of one of `POSITION_FUNCTIONS`.
        columns: Spark SQL text of each input column.
        window: the text between the parentheses of OVER (…): PARTITION BY, ORDER BY and, for aggregates, the frame.
        order: as for `aggregate_text`, if several rows may be equal in the order of the window (RANGE); None: the window's order is enough.

    Raises:
        NotNative: Spark has no equal function.
    """
    if call.function not in POSITION_FUNCTIONS:
        return _rendered(call, columns, order, window)
    arguments = ", ".join(spark_text(a, columns) for a in call.arguments)
    return f"CAST({call.function.lower()}({arguments}) OVER ({window}) AS {spark_type(call.type)})"


def _rendered(call: AggregateCall, columns: Sequence[str], order: str | None, window: str | None) -> str:
    if call.reference is not None:
        raise NotNative(f"the Python aggregate {call.function}")
    function = aggregate(call.function)
    if function is None:
        raise InternalError(f"aggregate {call.function} is not registered")
    types = [a.type for a in call.arguments]
    where = None if call.filter is None else spark_text(call.filter, columns)
    rows = SparkRows(call.distinct, where, order, window)
    text = function.spark(rows, [spark_text(a, columns) for a in call.arguments], types, call.type)
    if text is None:
        raise NotNative(f"{call.function}({_listed(types)}) has no equal in Spark")
    return text


def _listed(types: Sequence[DataType]) -> str:
    return ", ".join(map(str, types))
