"""Aggregate kernels for tests of the window operators: what the functions layer resolves SUM, AVG … to, in their simplest form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.aggregate import Accumulator, AggregateKernel, BoundAggregate
from flowrun.core.types import BIGINT, DOUBLE, STRING, DataType, decimal


def first_column(columns: Sequence[pa.Array], result: DataType) -> pa.Array:
    return columns[0]


def average(columns: Sequence[pa.Array], result: DataType) -> pa.Array:
    total, count = columns
    none = pc.equal(count, 0)
    return pc.if_else(
        none, pa.scalar(None, pa.float64()), pc.divide(total.cast(pa.float64()), pc.if_else(none, 1, count))
    )


def variance(columns: Sequence[pa.Array], result: DataType) -> pa.Array:
    count, total, squares = columns
    n = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.float64()), count.cast(pa.float64()))
    mean = pc.divide(total, n)
    return pc.subtract(pc.divide(squares, n), pc.multiply(mean, mean))


def joined(lists: pa.ListArray, result: DataType) -> pa.Array:
    texts = pc.binary_join(lists.cast(pa.list_(pa.string())), ",")
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), pa.scalar(None, pa.string()), texts)


def _simple(function: str, partial: str, merge: str, argument: DataType | None, result: DataType) -> AggregateKernel:
    ordered = partial in ("first", "last")
    return AggregateKernel(
        function,
        argument,
        result,
        (Accumulator(partial, partial, merge, result),),
        first_column,
        order_sensitive=ordered,
    )


def kernel(function: str, argument: DataType | None = BIGINT) -> AggregateKernel:
    match function:
        case "COUNT(*)":
            return _simple("COUNT", "count_all", "sum", None, BIGINT)
        case "COUNT":
            return _simple("COUNT", "count", "sum", argument, BIGINT)
        case "SUM":
            assert argument is not None
            result = argument if argument.is_approximate else BIGINT
            if not argument.is_integer and not argument.is_approximate:
                result = decimal(38, argument.scale or 0)
            return _simple("SUM", "sum", "sum", argument, result)
        case "MIN" | "MAX":
            assert argument is not None
            return _simple(function, function.lower(), function.lower(), argument, argument)
        case "FIRST_VALUE":
            assert argument is not None
            return _simple(function, "first", "first", argument, argument)
        case "LAST_VALUE":
            assert argument is not None
            return _simple(function, "last", "last", argument, argument)
        case "AVG":
            accumulators = (Accumulator("sum", "sum", "sum", BIGINT), Accumulator("count", "count", "sum", BIGINT))
            return AggregateKernel("AVG", argument, DOUBLE, accumulators, average)
        case "VAR_POP":
            accumulators = (
                Accumulator("count", "count", "sum", BIGINT),
                Accumulator("sum", "sum", "sum", DOUBLE),
                Accumulator("squares", "sum_of_squares", "sum", DOUBLE),
            )
            return AggregateKernel("VAR_POP", argument, DOUBLE, accumulators, variance)
        case "LISTAGG":
            return AggregateKernel("LISTAGG", argument, STRING, collect=joined, order_sensitive=True)
        case _:
            raise ValueError(function)


def bound(
    name: str,
    function: str,
    argument: int | None = None,
    kind: DataType | None = BIGINT,
    *,
    filter: int | None = None,
    distinct: bool = False,
) -> BoundAggregate:
    resolved = kernel(function, None if argument is None else kind)
    return BoundAggregate(name, resolved, argument, filter, distinct)


def python_value(aggregate: BoundAggregate, rows: Sequence[tuple[Any, ...]]) -> Any:
    """The aggregate over rows in arrival order, the slow and plain way."""
    kept = [r for r in rows if aggregate.filter is None or r[aggregate.filter] is True]
    function = aggregate.kernel.function
    if aggregate.argument is None:
        return len(kept)
    values = [r[aggregate.argument] for r in kept if r[aggregate.argument] is not None]
    if aggregate.distinct:
        values = list(dict.fromkeys(values))
    if function == "COUNT":
        return len(values)
    if not values:
        return None
    match function:
        case "SUM":
            return sum(values)
        case "MIN":
            return min(values)
        case "MAX":
            return max(values)
        case "FIRST_VALUE":
            return values[0]
        case "LAST_VALUE":
            return values[-1]
        case "AVG":
            return sum(values) / len(values)
        case "VAR_POP":
            return sum(v * v for v in values) / len(values) - (sum(values) / len(values)) ** 2
        case "LISTAGG":
            return ",".join(str(v) for v in values)
        case _:
            raise ValueError(function)
