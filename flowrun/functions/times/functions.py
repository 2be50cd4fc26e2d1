# ruff: noqa: ARG001 - kernels share one signature
"""Functions of dates and times: fields, TIMESTAMPADD and TIMESTAMPDIFF. (FLOOR and CEIL are in `rounding`.)"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BIGINT, INT, DataType, TypeRoot, timestamp
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.rules import DATE_OR_TIMESTAMP, LONG, TEMPORAL, Parameter, Rule, word
from flowrun.functions.times import spark_texts as texts
from flowrun.functions.times.calendar_units import (
    ADDING_UNITS,
    CLOCK_UNITS,
    EXTRACTABLE,
    INTERVAL_FIELDS,
    MONTHS_PER_UNIT,
    MS_PER_UNIT,
    add_units,
    extract,
    months_between,
    to_ms,
)
from flowrun.functions.vectors import all_constant, any_null_constant, as_array, null_of

_FIELDS = {
    "YEAR": ("YEAR", "The year."),
    "QUARTER": ("QUARTER", "The quarter, 1 to 4."),
    "MONTH": ("MONTH", "The month, 1 to 12."),
    "WEEK": ("WEEK", "The ISO week of the year, 1 to 53."),
    "DAYOFYEAR": ("DOY", "The day of the year, 1 to 366."),
    "DAYOFMONTH": ("DAY", "The day of the month, 1 to 31."),
    "DAYOFWEEK": ("DOW", "The day of the week, 1 (Sunday) to 7."),
    "HOUR": ("HOUR", "The hour, 0 to 23."),
    "MINUTE": ("MINUTE", "The minute, 0 to 59."),
    "SECOND": ("SECOND", "The second, 0 to 59."),
}
_INT_RANGE = (-(2**31), 2**31 - 1)


def _field_problem(unit: str, type: DataType) -> str | None:
    if type.root is TypeRoot.TIME and unit not in CLOCK_UNITS:
        return f"a TIME has no {unit}"
    return None


def _extract_check(arguments: Sequence[Argument]) -> str | None:
    if (
        arguments[1].type.is_interval
        and str(arguments[0].literal).upper() not in INTERVAL_FIELDS[arguments[1].type.root]
    ):
        return f"an {arguments[1].type} has no {arguments[0].literal}"
    return _field_problem(str(arguments[0].literal).upper(), arguments[1].type)


def _extract(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    unit, column = arguments
    return null_of(result) if any_null_constant(arguments) else extract(column, unit.as_py().upper())


def _one_field(unit: str, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return null_of(result) if any_null_constant(arguments) else extract(arguments[0], unit)


def _one_field_check(unit: str, arguments: Sequence[Argument]) -> str | None:
    return _field_problem(unit, arguments[0].type)


def _add_result(arguments: Sequence[Argument]) -> DataType:
    unit, point = str(arguments[0].literal).upper(), arguments[2].type
    if point.root is TypeRoot.DATE and unit in CLOCK_UNITS:
        return timestamp(6)
    if point.is_timestamp and unit == "MILLISECOND" and (point.precision or 0) < 3:
        return DataType(point.root, precision=3)
    return point


def _add_check(arguments: Sequence[Argument]) -> str | None:
    if arguments[2].type.root is TypeRoot.TIME and str(arguments[0].literal).upper() not in CLOCK_UNITS:
        return f"a TIME cannot be moved by {arguments[0].literal}"
    return None


def _add(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    unit, count, point = arguments
    if any_null_constant(arguments):
        return null_of(result)
    constant = all_constant(arguments)
    size = 1 if constant else rows
    moved = add_units(as_array(point, size).cast(result.arrow), as_array(count, size), unit.as_py().upper())
    return moved[0] if constant else moved


def _diff(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    unit, start, end = arguments
    if any_null_constant(arguments):
        return null_of(result)
    constant = all_constant(arguments)
    size = 1 if constant else rows
    first, last = to_ms(as_array(start, size)), to_ms(as_array(end, size))
    name = unit.as_py().upper()
    if name in MS_PER_UNIT:
        counted = pc.divide(pc.subtract(last, first), MS_PER_UNIT[name])  # Arrow's division truncates, as Java's
    else:
        missing = pc.or_(pc.is_null(first), pc.is_null(last)).to_numpy(zero_copy_only=False)
        months = months_between(pc.fill_null(first, 0).to_numpy(), pc.fill_null(last, 0).to_numpy())
        counted = pc.divide(pa.array(months, mask=missing), MONTHS_PER_UNIT[name])
    low, high = _INT_RANGE
    outside = pc.fill_null(pc.or_(pc.less(counted, low), pc.greater(counted, high)), False)
    if pc.any(outside).as_py():
        row = int(np.flatnonzero(outside.to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"TIMESTAMPDIFF: {counted[row].as_py()} {name}s do not fit into INT",
            row=None if constant else row,
            hint="use a larger unit",
        )
    array = counted.cast(pa.int32())
    return array[0] if constant else array


_UNIT = word(*ADDING_UNITS)


def _temporal_or_interval(type: DataType) -> DataType | None:
    return type if type.is_temporal or type.is_interval else None


_TEMPORAL_OR_INTERVAL = Parameter(f"{TEMPORAL.expects}, or an interval", _temporal_or_interval, timestamp(3))


def _field(name: str, unit: str, doc: str) -> ScalarFunction:
    usage = f"{name}(time)"
    rule = Rule(usage, BIGINT, (TEMPORAL,), check=partial(_one_field_check, unit))
    return ScalarFunction(name, rule, partial(_one_field, unit), usage, doc, texts.Field(unit))


TEMPORALS = (
    ScalarFunction(
        "EXTRACT",
        Rule("EXTRACT(unit, time)", BIGINT, (word(*EXTRACTABLE), _TEMPORAL_OR_INTERVAL), check=_extract_check),
        _extract,
        "EXTRACT(unit FROM time)",
        "One field of a date or time, e.g. MINUTE, DOW or EPOCH, or of an interval.",
        texts.extract_text,
    ),
    *(_field(name, unit, doc) for name, (unit, doc) in _FIELDS.items()),
    ScalarFunction(
        "TIMESTAMPADD",
        Rule("TIMESTAMPADD(unit, count, time)", _add_result, (_UNIT, LONG, TEMPORAL), check=_add_check),
        _add,
        "TIMESTAMPADD(unit, count, time)",
        "The time moved by a number of units.",
        texts.add_text,
        fallible=True,
    ),
    ScalarFunction(
        "TIMESTAMPDIFF",
        Rule("TIMESTAMPDIFF(unit, start, end)", INT, (_UNIT, DATE_OR_TIMESTAMP, DATE_OR_TIMESTAMP)),
        _diff,
        "TIMESTAMPDIFF(unit, start, end)",
        "The whole units from start to end, truncated towards zero.",
        texts.difference_text,
        fallible=True,
    ),
)
"""Functions of dates and times that take no pattern."""
