# ruff: noqa: ARG001 - kernels share one signature
"""Kernels of dates, times and timestamps plus or minus intervals, and of intervals among themselves.

Arrow types tell the families apart: a day-time interval is duration[ms], a year-month interval is int32 months. Adding months keeps
the day of the month, or takes the last day of a shorter month.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.casts.numeric import as_numpy
from flowrun.functions.contract import Datum
from flowrun.functions.decimals import to_mask
from flowrun.functions.operators.arithmetic import checked

_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def plus(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Point in time + interval (in either order), or interval + interval."""
    left, right = arguments
    if _is_interval(left) and not _is_interval(right):
        left, right = right, left
    return _shift(left, right, rows, result, 1)


def minus(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Point in time − interval, interval − interval, or the interval between two points in time."""
    left, right = arguments
    if result.root is TypeRoot.INTERVAL_DAY_TIME and not pa.types.is_duration(left.type):
        return pc.cast(checked(pc.subtract_checked, _instant(left), _instant(right), result), result.arrow, safe=False)
    return _shift(left, right, rows, result, -1)


def scale(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Interval * whole number, in either order."""
    left, right = arguments
    return checked(pc.multiply_checked, left, right, result)


def _is_interval(datum: Datum) -> bool:
    return bool(pa.types.is_duration(datum.type) or pa.types.is_int32(datum.type))


def _instant(datum: Datum) -> Datum:
    return pc.cast(datum, pa.timestamp("ms")) if pa.types.is_date(datum.type) else datum


def _shift(left: Datum, right: Datum, rows: int, result: DataType, sign: int) -> Datum:
    operation = pc.add_checked if sign > 0 else pc.subtract_checked
    if _is_interval(left):
        return checked(operation, left, right, result)
    if pa.types.is_int32(right.type):
        return _add_months(left, right, rows, sign)
    if result.root is TypeRoot.DATE:
        days = pc.divide(pc.cast(right, pa.int64()), _PER_DAY["ms"])
        moved = checked(operation, pc.cast(pc.cast(left, pa.int32()), pa.int64()), days, result)
        return pc.cast(pc.cast(moved, pa.int32()), pa.date32())
    if result.root is TypeRoot.TIME:
        return _turn_clock(left, right, rows, sign)
    moved = checked(operation, _instant(left), right, result)
    return moved if moved.type == result.arrow else pc.cast(moved, result.arrow, safe=False)


def _broadcast(left: Datum, right: Datum, rows: int) -> tuple[pa.Array, pa.Array]:
    a = pa.repeat(left, rows) if isinstance(left, pa.Scalar) else left
    b = pa.repeat(right, rows) if isinstance(right, pa.Scalar) else right
    return a, b


def _missing(a: pa.Array, b: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    if not a.null_count and not b.null_count:
        return None
    return ~(to_mask(pc.is_valid(a)) & to_mask(pc.is_valid(b)))


def _turn_clock(left: Datum, right: Datum, rows: int, sign: int) -> pa.Array:
    times, spans = _broadcast(left, right, rows)
    unit = times.type.unit
    width = pa.int32() if unit == "ms" else pa.int64()
    per_ms = _PER_DAY[unit] // _PER_DAY["ms"]
    moved = (as_numpy(pc.cast(times, width)) + sign * as_numpy(pc.cast(spans, pa.int64())) * per_ms) % _PER_DAY[unit]
    return pa.array(moved, mask=_missing(times, spans)).cast(width).view(times.type)


def _add_months(left: Datum, right: Datum, rows: int, sign: int) -> pa.Array:
    points, spans = _broadcast(left, right, rows)
    if pa.types.is_date(points.type):
        days, rest = as_numpy(pc.cast(points, pa.int32())), None
    else:
        counts = as_numpy(points.view(pa.int64()))
        days, rest = np.divmod(counts, _PER_DAY[points.type.unit])
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day = (dates - months.astype("datetime64[D]")).astype(np.int64)
    target = months + (sign * as_numpy(spans)).astype("timedelta64[M]")
    first = target.astype("datetime64[D]").astype(np.int64)
    length = (target + 1).astype("datetime64[D]").astype(np.int64) - first
    moved = first + np.minimum(day, length - 1)
    missing = _missing(points, spans)
    if rest is None:
        return pa.array(moved.astype(np.int32), mask=missing).view(points.type)
    return pa.array(moved * _PER_DAY[points.type.unit] + rest, mask=missing).view(points.type)
