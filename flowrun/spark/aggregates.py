"""Aggregate calls → Spark SQL text, of a group or OVER a window."""

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

PLACES = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"})
"""Functions of a row's place in its partition: their window has an order and no frame."""


def aggregate_text(call: AggregateCall, columns: Sequence[str], order: str | None = None) -> str:
    """An aggregate of a group as Spark SQL text, for `groupBy().agg`, of exactly the Spark type of the call's type.

    Args:
        call: DISTINCT and FILTER included.
        columns: Spark SQL text of each input column.
        order: Spark SQL text of the columns that give the order in which rows came, comma-separated; they order every row. None: in
            any order (where it matters, what FIRST_VALUE and the like give is then undefined).

    Raises:
        NotNative: Spark has no equal.
    """
    return _rendered(call, columns, order, None)


def over_text(call: AggregateCall, columns: Sequence[str], window: str, order: str | None = None) -> str:
    """The same as a window call: `window` is what stands in OVER (…), of calls in `PLACES` without a frame.

    Args:
        call: an aggregate, or one of `PLACES`.
        columns: Spark SQL text of each input column.
        window: PARTITION BY …, ORDER BY … and the frame.
        order: as for `aggregate_text`, where the window's own order leaves ties (RANGE); None: the window's order will do.

    Raises:
        NotNative: Spark has no equal.
    """
    if call.function not in PLACES:
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
