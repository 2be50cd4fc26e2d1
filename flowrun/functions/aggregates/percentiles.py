"""PERCENTILE: values at given places of the sorted values of a group, between two of them by linear interpolation, as in Apache Flink.

With frequencies the aggregate's column is a ROW of value and frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.aggregate import AggregateKernel, WithArguments
from flowrun.core.types import BIGINT, DOUBLE, DataType, TypeRoot, array, row
from flowrun.errors import ExpressionError
from flowrun.functions.collections.array_columns import FlatLists
from flowrun.functions.contract import AggregateFunction, Argument
from flowrun.functions.spark_rows import SparkRows

_USAGE = "PERCENTILE(number, percentage[, frequency])"
_COUNTED = row(("value", DOUBLE), ("frequency", BIGINT))


def _rule(arguments: Sequence[Argument]) -> tuple[tuple[DataType, ...], AggregateKernel]:
    if len(arguments) not in (2, 3):
        raise _refused(f"PERCENTILE takes 2 to 3 arguments, {len(arguments)} given")
    value, percentage, *frequency = arguments
    packed = value.type == _COUNTED and not frequency
    if not value.type.is_numeric and not packed:
        raise _refused(f"argument 1 of PERCENTILE must be a number, {value.type} given")
    if frequency and not frequency[0].type.is_integer:
        raise _refused(f"argument 3 of PERCENTILE must be an integer, {frequency[0].type} given")
    result = array(DOUBLE) if percentage.type.root is TypeRoot.ARRAY else DOUBLE
    argument = _COUNTED if frequency or packed else DOUBLE
    collect = WithArguments(percentiles, (_percentages(percentage),))
    casts = (_COUNTED if packed else DOUBLE, percentage.type, *(BIGINT for _ in frequency))
    return casts, AggregateKernel("PERCENTILE", argument, result, collect=collect)


def _percentages(argument: Argument) -> tuple[float, ...]:
    given = argument.literal if argument.type.root is TypeRoot.ARRAY else [argument.literal]
    element = argument.type.children[0] if argument.type.root is TypeRoot.ARRAY else argument.type
    if not argument.is_literal or given is None or not element.is_numeric:
        raise _refused("the percentage of PERCENTILE must be a constant number, or an ARRAY of such")
    for value in given:
        if value is None or not 0 <= value <= 1:
            raise _refused(f"the percentage of PERCENTILE must be between 0 and 1, this is {value}")
    return tuple(float(v) for v in given)


def _refused(message: str) -> ExpressionError:
    return ExpressionError(message, hint=f"usage: {_USAGE}")


def percentiles(percentages: Sequence[float], values: pa.ListArray, result: DataType) -> pa.Array:
    """Each group's percentiles: one DOUBLE, or an ARRAY of them; NULL of no values. NaN is the greatest, frequencies below 1 do not count.

    >>> percentiles((0.25,), pa.array([[10.0, 20.0, 30.0, 40.0], []]), DOUBLE).to_pylist()
    [17.5, None]
    """
    rows = len(values)
    flat = FlatLists.of(values, rows)
    parents, numbers, weights = _weighted(flat)
    order = np.lexsort((numbers, parents))
    numbers, last = numbers[order], np.cumsum(weights[order])
    totals = np.zeros(rows, np.int64)
    np.add.at(totals, parents, weights)
    known = totals > 0
    before, counts = (np.cumsum(totals) - totals)[known], totals[known]
    found = [_at((p * (counts - 1) + 1).astype(np.float64), before, numbers, last) for p in percentages]
    if result.root is not TypeRoot.ARRAY:
        column = np.zeros(rows)
        column[known] = found[0]
        return pa.array(column, mask=~known)
    sizes = np.where(known, len(percentages), 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    flattened = np.stack(found, axis=1).ravel() if found else np.zeros(0)
    missing = ~known if percentages else np.ones(rows, np.bool_)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flattened), mask=pa.array(missing)).cast(result.arrow)


_Floats = np.ndarray[Any, np.dtype[np.float64]]
_Integers = np.ndarray[Any, np.dtype[np.int64]]


def _weighted(flat: FlatLists) -> tuple[_Integers, _Floats, _Integers]:
    """Group, value and frequency of all that counts."""
    parents, values = flat.parents, flat.values
    weights = np.ones(len(values), np.int64)
    counts = pc.is_valid(values)
    if pa.types.is_struct(values.type):
        frequencies = pc.struct_field(values, [1])
        values = pc.struct_field(values, [0])
        weights = pc.fill_null(frequencies, 0).to_numpy()
        counts = pc.and_(pc.is_valid(values), pa.array(weights > 0))
    chosen = counts.to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(values, 0.0).to_numpy()[chosen] + 0.0  # -0.0 is 0.0: the order of equal values says nothing
    return parents[chosen], numbers, weights[chosen]


def _at(places: _Floats, before: _Integers, numbers: _Floats, last: _Integers) -> _Floats:
    """Values at places (from 1) of groups whose values come after `before` others; `last` is the place of each value's last occurrence."""
    lower, higher = np.floor(places), np.ceil(places)
    first = numbers[np.searchsorted(last, before + lower.astype(np.int64))]
    second = numbers[np.searchsorted(last, before + higher.astype(np.int64))]
    with np.errstate(invalid="ignore"):
        between: _Floats = (higher - places) * first + (places - lower) * second
    return np.where((first == second) | (lower == higher), first, between)


def _text(rows: SparkRows, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> None:
    """None: Spark's percentile rounds places between values otherwise."""


PERCENTILES = (
    AggregateFunction(
        "PERCENTILE",
        _rule,
        _USAGE,
        "The value below which a constant part (0 to 1) of the values lies, interpolated between the two nearest; of an ARRAY of parts"
        " an ARRAY. Each value counts `frequency` times.",
        _text,
    ),
)
"""PERCENTILE."""
