"""Time arithmetic on columns: extraction, rounding to units, adding and counting units; UTC, proleptic Gregorian calendar.

TIMESTAMP_LTZ columns are read as wall-clock time of the session, which is UTC. Weeks of FLOOR and CEIL start on Sunday and those of
EXTRACT are ISO weeks, as in Flink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.functions.contract import Datum

MS_PER_UNIT = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 604_800_000,
}
MONTHS_PER_UNIT = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
ADDING_UNITS = (*MS_PER_UNIT, *MONTHS_PER_UNIT)
_YEAR_SPANS = {"DECADE": 10, "CENTURY": 100, "MILLENNIUM": 1000}
ROUNDING_UNITS = (*ADDING_UNITS, *_YEAR_SPANS)
CLOCK_UNITS = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND")
EXTRACTABLE = (
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "ISODOW", "ISOYEAR", *CLOCK_UNITS, "EPOCH", *_YEAR_SPANS,
)  # fmt: skip
INTERVAL_FIELDS: Mapping[TypeRoot, Mapping[str, tuple[int, int | None]]] = {
    TypeRoot.INTERVAL_DAY_TIME: {
        "DAY": (86_400_000, None), "HOUR": (3_600_000, 24), "MINUTE": (60_000, 60), "SECOND": (1_000, 60), "MILLISECOND": (1, 1_000),
    },
    TypeRoot.INTERVAL_YEAR_MONTH: {
        "MILLENNIUM": (12_000, None), "CENTURY": (1_200, None), "DECADE": (120, None), "YEAR": (12, None),
        "QUARTER": (3, 4), "MONTH": (1, 12),
    },
}  # fmt: skip
"""Of each kind of interval the fields that EXTRACT knows: milliseconds or months of one, and how many make one of the next."""
_PER_MS = {"s": 0.001, "ms": 1, "us": 1_000, "ns": 1_000_000}
_DAY_MS = MS_PER_UNIT["DAY"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
DaysArray = np.ndarray[Any, np.dtype[np.datetime64]]


def naive(column: Datum) -> Datum:
    """A TIMESTAMP_LTZ column as wall-clock time in UTC; others unchanged. Arrow's kernels are faster without a zone."""
    type = column.type
    return column.cast(pa.timestamp(type.unit)) if pa.types.is_timestamp(type) and type.tz is not None else column


def extract(column: Datum, unit: str) -> Datum:
    """One calendar or clock field as int64; `unit` is one of `EXTRACTABLE` that the column's type has.

    Fields of an interval are truncated towards zero and have its sign.
    """
    if pa.types.is_duration(column.type):
        return _interval_field(column.cast(pa.int64()), *INTERVAL_FIELDS[TypeRoot.INTERVAL_DAY_TIME][unit])
    if pa.types.is_integer(column.type):
        field = _interval_field(column.cast(pa.int64()), *INTERVAL_FIELDS[TypeRoot.INTERVAL_YEAR_MONTH][unit])
        return pc.add(field, 1) if unit == "QUARTER" else field
    local = naive(column)
    if unit in CLOCK_UNITS and pa.types.is_date(local.type):
        return pc.multiply(pc.cast(local, pa.int32()).cast(pa.int64()), pa.scalar(0, pa.int64()))
    match unit:
        case "DOY":
            field = pc.day_of_year(local)
        case "DOW":
            field = pc.day_of_week(local, count_from_zero=False, week_start=7)
        case "ISODOW":
            field = pc.day_of_week(local, count_from_zero=False, week_start=1)
        case "WEEK":
            field = pc.iso_week(local)
        case "ISOYEAR":
            field = pc.iso_year(local)
        case "EPOCH":
            field = _divided(pc.cast(pc.cast(_whole_ms(local), pa.timestamp("ms")), pa.int64()), 1000)
        case "MICROSECOND":
            field = pc.add(pc.multiply(pc.millisecond(local), 1000), pc.microsecond(local))
        case "NANOSECOND":
            parts = pc.add(pc.multiply(pc.millisecond(local), 1000), pc.microsecond(local))
            field = pc.add(pc.multiply(parts, 1000), pc.nanosecond(local))
        case "DECADE":
            field = _divided(pc.year(local), 10)
        case "CENTURY" | "MILLENNIUM":
            span = _YEAR_SPANS[unit]
            field = _divided(pc.add(pc.year(local), span - 1), span)
        case _:
            field = getattr(pc, unit.lower())(local)
    return field.cast(pa.int64())


def _interval_field(length: Datum, size: int, most: int | None) -> Datum:
    count = pc.divide(length, size)
    return count if most is None else pc.subtract(count, pc.multiply(pc.divide(count, most), most))


def _whole_ms(local: Datum) -> Datum:
    fine = pa.types.is_timestamp(local.type) and local.type.unit in ("us", "ns")
    return pc.floor_temporal(local, unit="millisecond") if fine else local


def _divided(column: Datum, divisor: int) -> Datum:
    """Floor division of whole numbers."""
    rest = pc.subtract(column, pc.multiply(pc.divide(column, divisor), divisor))
    return pc.if_else(pc.less(rest, 0), pc.subtract(pc.divide(column, divisor), 1), pc.divide(column, divisor))


def floor_to_unit(column: Datum, unit: str, type: DataType) -> Datum:
    """The start of the unit that each time is in, in the column's own type."""
    return _rounded(column, unit, type, up=False)


def ceil_to_unit(column: Datum, unit: str, type: DataType) -> Datum:
    """The first start of a unit at or after each time, in the column's own type.

    Raises:
        DataError: a TIME rounds up to 24:00.
    """
    return _rounded(column, unit, type, up=True)


def _rounded(column: Datum, unit: str, type: DataType, *, up: bool) -> Datum:
    if type.root is TypeRoot.TIME:
        return _rounded_time(column, unit, type, up=up)
    if type.root is TypeRoot.DATE:
        if unit in CLOCK_UNITS or unit == "DAY":
            return column
        return _rounded(column.cast(pa.timestamp("ms")), unit, DataType(TypeRoot.TIMESTAMP, precision=3), up=up).cast(
            pa.date32()
        )
    local = naive(column)
    if unit in _YEAR_SPANS:
        return _rounded_years(local, _YEAR_SPANS[unit], up=up).cast(type.arrow)
    low = pc.floor_temporal(local, unit=unit.lower(), week_starts_monday=False)
    if not up:
        return low.cast(type.arrow)
    high = pc.ceil_temporal(local, unit=unit.lower(), week_starts_monday=False)
    return pc.if_else(pc.equal(low, local), local, high).cast(type.arrow)  # Arrow moves on from the start of a month


def _rounded_time(column: Datum, unit: str, type: DataType, *, up: bool) -> Datum:
    if unit not in CLOCK_UNITS:
        return column if unit not in ADDING_UNITS else pc.multiply(_as_int64(column), 0).cast(type.arrow)
    step = int(MS_PER_UNIT[unit] * _PER_MS[type.arrow.unit])
    ticks = _as_int64(column)
    low = pc.multiply(_divided(ticks, step), step)
    if not up:
        return _from_int64(low, type.arrow)
    high = pc.if_else(pc.equal(low, ticks), low, pc.add(low, step))
    limit = int(_DAY_MS * _PER_MS[type.arrow.unit])
    beyond = pc.greater_equal(high, limit)
    if pc.any(beyond).as_py() if isinstance(beyond, pa.Array) else beyond.as_py():
        raise DataError(f"CEIL: a TIME rounded up to {unit} would be 24:00", hint="round a TIMESTAMP instead")
    return _from_int64(high, type.arrow)


def _as_int64(column: Datum) -> Datum:
    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def _from_int64(column: Datum, type: pa.DataType) -> Datum:
    return column.cast(pa.int32() if type.bit_width == 32 else pa.int64()).cast(type)


def _rounded_years(local: Datum, span: int, *, up: bool) -> Datum:
    """Start of the decade (years divisible by 10), or of the century or millennium (years that end in 01 or 001)."""
    array = local if isinstance(local, pa.Array) else pa.array([local.as_py()], local.type)
    years = pc.fill_null(pc.year(array), 1970).to_numpy()
    first = 0 if span == 10 else 1
    starts = (years - first) // span * span + first
    whole = (starts - 1970).astype("M8[Y]").astype(f"M8[{array.type.unit}]")
    if up:
        following = (starts + span - 1970).astype("M8[Y]").astype(f"M8[{array.type.unit}]")
        given = pc.fill_null(array.cast(pa.int64()), 0).to_numpy().astype(f"M8[{array.type.unit}]")
        whole = np.where(whole == given, whole, following)
    rounded = pa.array(whole, array.type, mask=pc.is_null(array).to_numpy(zero_copy_only=False))
    return rounded if isinstance(local, pa.Array) else rounded[0]


def add_months(days: DaysArray, months: Int64Array) -> DaysArray:
    """Days (`datetime64[D]`) moved by months; a day that the new month lacks becomes its last day.

    >>> str(add_months(np.array(["2024-01-31"], "M8[D]"), np.array([1]))[0])
    '2024-02-29'
    """
    month = days.astype("M8[M]")
    start = (month + months).astype("M8[D]")
    length = (month + months + 1).astype("M8[D]") - start
    moved: DaysArray = start + np.minimum(days - month.astype("M8[D]"), length - 1)
    return moved


def months_between(start: Int64Array, end: Int64Array) -> Int64Array:
    """Whole months from one time to another (ms since the epoch), as Apache Calcite's `DateTimeUtils.subtractMonths` counts them.

    The days are counted, truncated towards zero. If that many months lead from the day of `start` to that of `end`, and the end has the
    earlier time of day, it is a month less: in both directions, so backwards a part of a month may count as one.

    >>> times = np.array(["2024-01-31", "2024-02-29", "2024-03-30", "2024-01-30T23"], "M8[ms]").astype(np.int64)
    >>> months_between(times[[0, 0, 2, 2, 3]], times[[1, 2, 0, 3, 2]]).tolist()
    [1, 1, -1, -2, 1]
    """
    start_days, end_days = (v.astype("M8[ms]").astype("M8[D]") for v in (start, end))
    sign = np.where(end_days >= start_days, 1, -1)
    low_days, high_days = np.minimum(start_days, end_days), np.maximum(start_days, end_days)
    months = (high_days.astype("M8[M]") - low_days.astype("M8[M]")).astype(np.int64)
    months = sign * (months - (add_months(low_days, months) > high_days))
    is_short = (add_months(start_days, months) == end_days) & (end % _DAY_MS < start % _DAY_MS)
    result: Int64Array = months - is_short
    return result


def add_units(column: pa.Array, count: pa.Array, unit: str) -> pa.Array:
    """Times moved by `count` (int64) units, in the column's own type; NULL if either is NULL.

    Raises:
        DataError: the result is outside the type's range.
    """
    try:
        if unit in MS_PER_UNIT:
            return _add_ms(column, count, MS_PER_UNIT[unit])
    except pa.ArrowInvalid as error:
        raise DataError(f"TIMESTAMPADD: a time moved by {unit} is out of range: {error}") from error
    missing = pc.or_(pc.is_null(column), pc.is_null(count)).to_numpy(zero_copy_only=False)
    months = pc.fill_null(count, 0).to_numpy() * MONTHS_PER_UNIT[unit]
    if pa.types.is_date(column.type):
        days = pc.fill_null(column.cast(pa.int32()), 0).to_numpy().astype("M8[D]")
        return pa.array(add_months(days, months), pa.date32(), mask=missing)
    kind = f"M8[{column.type.unit}]"
    times = pc.fill_null(column.cast(pa.int64()), 0).to_numpy().astype(kind)
    days = times.astype("M8[D]")
    moved = add_months(days, months).astype(kind) + (times - days.astype(kind))
    return pa.array(moved.astype(np.int64), mask=missing).cast(column.type)


def _add_ms(column: pa.Array, count: pa.Array, factor: int) -> pa.Array:
    type = column.type
    if pa.types.is_date(type):
        days = pc.add_checked(column.cast(pa.int32()).cast(pa.int64()), pc.multiply_checked(count, factor // _DAY_MS))
        return days.cast(pa.int32()).cast(type)
    step = int(factor * _PER_MS[type.unit])
    ticks = pc.multiply_checked(count, step)
    if pa.types.is_time(type):
        day = int(_DAY_MS * _PER_MS[type.unit])
        total = pc.add_checked(_as_int64(column), ticks)
        return _from_int64(pc.subtract(total, pc.multiply(_divided(total, day), day)), type)
    return pc.add_checked(column.cast(pa.int64()), ticks).cast(type)


def to_ms(column: pa.Array) -> pa.Array:
    """Times or dates as int64 ms since the epoch, floored; NULLs stay."""
    return (
        pc.floor_temporal(naive(column), unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())
        if (pa.types.is_timestamp(column.type) and column.type.unit != "ms")
        else naive(column).cast(pa.timestamp("ms")).cast(pa.int64())
    )
