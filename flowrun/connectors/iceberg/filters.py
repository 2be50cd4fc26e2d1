"""Filters that the planner pushes, as Iceberg's expressions: by them, files are left out that hold no row that passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.connectors.iceberg.catalog import library
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot

_MS_US = 1000


def iceberg_filter(filters: Sequence[PushedFilter], declared: Schema, schema: Any) -> Any:
    """An expression that all rows satisfy which pass the filters; other rows may satisfy it, too.

    Args:
        filters: on declared columns.
        declared: those columns.
        schema: the client library's schema of the table.
    """
    expressions = library("pyiceberg.expressions")
    found = expressions.AlwaysTrue()
    for pushed in filters:
        if pushed.column in declared:
            made = _expression(pushed, declared.field(pushed.column).type, schema.find_field(pushed.column).field_type)
            found = found if made is None else expressions.And(found, made)
    return found


def _expression(pushed: PushedFilter, kind: DataType, stored: Any) -> Any:
    """The expression of one filter; None: it has none."""
    expressions = library("pyiceberg.expressions")
    name = pushed.column
    if pushed.comparison is Comparison.IS_NULL:
        return expressions.IsNull(name)
    if pushed.comparison is Comparison.IS_NOT_NULL:
        return expressions.NotNull(name)
    low = high = _literal(pushed, kind, stored)
    if low is None:
        return None
    if kind.is_timestamp:  # a column of the table may be finer than its declared type, and is floored when it is read
        low, high = low * _MS_US, low * _MS_US + _MS_US - 1
    match pushed.comparison:
        case Comparison.EQ:
            return expressions.And(expressions.GreaterThanOrEqual(name, low), expressions.LessThanOrEqual(name, high))
        case Comparison.NE:
            return None
        case Comparison.LT:
            return expressions.LessThan(name, low)
        case Comparison.LE:
            return expressions.LessThanOrEqual(name, high)
        case Comparison.GT:
            return expressions.GreaterThan(name, low)
        case _:
            return expressions.GreaterThanOrEqual(name, low)


def _literal(pushed: PushedFilter, kind: DataType, stored: Any) -> Any:
    """A value as Iceberg compares it; None: it has no such form."""
    value = pushed.value
    types = library("pyiceberg.types")
    if kind.root in (TypeRoot.BOOLEAN, TypeRoot.TIME) or kind.is_binary or isinstance(value, bool):
        return None
    if kind.root is TypeRoot.DECIMAL:
        if not isinstance(stored, types.DecimalType) or not isinstance(value, str | int):
            return None
        exact = Decimal(value)
        rounded = round(exact, stored.scale)
        return rounded if rounded == exact else None
    if kind.is_approximate:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    if kind.is_integer or kind.is_timestamp or kind.root is TypeRoot.DATE:
        return value if isinstance(value, int) else None
    return value if isinstance(value, str) else None
