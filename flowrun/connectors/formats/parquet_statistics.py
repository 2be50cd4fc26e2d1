"""Decides from the statistics of a Parquet file that no row of a row group can pass a filter."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

from flowrun.api.connector import Comparison, PushedFilter, PushedValue
from flowrun.core.types import DataType, TypeRoot

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = datetime.date(1970, 1, 1)


def may_match(row_group: Any, filters: tuple[PushedFilter, ...], types: dict[str, DataType]) -> bool:
    """Whether some row of a row group may pass all filters, as far as the statistics say.

    Args:
        row_group: a `pyarrow.parquet.RowGroupMetaData`.
        filters: the filters, all of which a row must pass.
        types: column of the table → its type.
    """
    if not filters:
        return True
    places = {row_group.column(i).path_in_schema: i for i in range(row_group.num_columns)}
    for pushed in filters:
        place = places.get(pushed.column)
        kind = types.get(pushed.column)
        if place is None or kind is None:
            continue
        statistics = row_group.column(place).statistics
        if statistics is not None and not column_may_match(statistics, row_group.num_rows, pushed, kind):
            return False
    return True


def column_may_match(statistics: Any, rows: int, pushed: PushedFilter, kind: DataType) -> bool:
    """Whether some values of a column may pass a filter.

    Args:
        statistics: a `pyarrow.parquet.Statistics`, or an object with the same properties.
        rows: how many values the statistics are about, with NULLs.
        pushed: the filter.
        kind: the type of the column.
    """
    if statistics.has_null_count:
        if pushed.comparison is Comparison.IS_NULL:
            return bool(statistics.null_count > 0)
        if statistics.null_count == rows:
            return False
    if pushed.comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL) or not statistics.has_min_max:
        return True
    low, high = _comparable(statistics.min, kind), _comparable(statistics.max, kind)
    value = _pushed(pushed.value, kind)
    if low is None or high is None or value is None or type(low) is not type(value):
        return True
    match pushed.comparison:
        case Comparison.EQ:
            return bool(low <= value <= high)
        case Comparison.NE:
            return not low == high == value
        case Comparison.LT:
            return bool(low < value)
        case Comparison.LE:
            return bool(low <= value)
        case Comparison.GT:
            return bool(high > value)
        case _:
            return bool(high >= value)


def _comparable(value: Any, kind: DataType) -> Any:
    """A value of the statistics in the form of pushed values, as int, Decimal, float, str, bytes or bool; None if it says nothing.

    Timestamps are floored to ms, the precision of pushed values; a group is skipped only by bounds that hold after flooring.
    """
    match value:
        case bool() | str() | bytes():
            return value
        case int() if kind.is_timestamp:  # nanoseconds are an int if pandas is not installed
            return None
        case int():
            return Decimal(value)
        case float():
            return Decimal(value) if math.isfinite(value) else None
        case Decimal():
            return value
        case datetime.datetime():
            naive = value.replace(tzinfo=None)
            return (naive - _EPOCH) // datetime.timedelta(microseconds=1)
        case datetime.date():
            return (value - _EPOCH_DAY).days
        case _:
            return None


def _pushed(value: PushedValue, kind: DataType) -> Any:
    if kind.root is TypeRoot.DATE:
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if kind.is_timestamp:
        return value * 1000 if isinstance(value, int) and not isinstance(value, bool) else None
    if kind.is_numeric and isinstance(value, str):
        return Decimal(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(value)
    return value
