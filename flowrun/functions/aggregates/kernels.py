# ruff: noqa: ARG001 - kernels share one signature
"""What aggregates compute from their accumulators, or from the collected values of each group; all of it pickles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.functions.collections.array_columns import FlatLists, codes, first_of_each
from flowrun.functions.decimals import fit, quotient


def first_accumulator(accumulators: Sequence[pa.Array], result: DataType) -> pa.Array:
    """The first accumulator as it is (COUNT, MIN, MAX, FIRST_VALUE, LAST_VALUE)."""
    column = accumulators[0]
    return column if column.type == result.arrow else column.cast(result.arrow)


def finish_sum(name: str, accumulators: Sequence[pa.Array], result: DataType) -> pa.Array:
    """Sums in the result's type; NULL where no value was counted.

    Raises:
        DataError: a sum does not fit into the result type.
    """
    total, count = accumulators[0], accumulators[1]
    known = pc.if_else(pc.equal(count, 0), pa.scalar(None, total.type), total)
    return _into(known, result, name)


def finish_sum0(name: str, accumulators: Sequence[pa.Array], result: DataType) -> pa.Array:
    """Sums in the result's type; 0 where no value was counted."""
    total = finish_sum(name, accumulators, result)
    return pc.fill_null(total, pa.scalar(0, pa.int64()).cast(total.type))


def _into(column: pa.Array, result: DataType, name: str) -> pa.Array:
    target = result.arrow
    if column.type == target:
        return column
    if result.root is TypeRoot.DECIMAL:
        fitted, bad = fit(column, target)
        if bad is None:
            return fitted
        row = int(np.flatnonzero(bad)[0])
    elif result.is_integer:
        info = np.iinfo(target.to_pandas_dtype())
        outside = pc.or_(pc.less(column, int(info.min)), pc.greater(column, int(info.max)))
        if not pc.any(outside).as_py():
            return column.cast(target)
        row = int(np.flatnonzero(pc.fill_null(outside, False).to_numpy(zero_copy_only=False))[0])
    else:
        return column.cast(target)
    raise DataError(
        f"{name}: {column[row].as_py()} does not fit into {result}",
        row=row,
        hint=f"aggregate a wider type: {name}(CAST(… AS BIGINT))" if result.is_integer else "aggregate smaller values",
    )


def finish_average(accumulators: Sequence[pa.Array], result: DataType) -> pa.Array:
    """Means of a sum and a count; integers truncate, decimals round half up; NULL where no value was counted."""
    total, count = accumulators[0], accumulators[1]
    divisor = pc.if_else(pc.equal(count, 0), pa.scalar(None, count.type), count)
    if result.root is TypeRoot.DECIMAL:
        wide = quotient(total, divisor.cast(pa.decimal128(19, 0)), result.scale or 0)
        return _into(wide, result, "AVG")
    if result.is_integer:
        return _into(pc.divide(total, divisor), result, "AVG")
    return pc.divide(total, divisor.cast(pa.float64())).cast(result.arrow)


def finish_variance(sample: bool, root: bool, accumulators: Sequence[pa.Array], result: DataType) -> pa.Array:
    """Variances, or standard deviations, of sum, sum of squares and count.

    NULL where no value (of a sample: fewer than two) was counted. Computed in DOUBLE as (Σx² − (Σx)²/n) / n or n − 1, like Flink, and
    never below 0.
    """
    total, squares, count = accumulators
    least = 1 if sample else 0
    known = pc.if_else(pc.greater(count, least), count, pa.scalar(None, count.type)).cast(pa.float64())
    spread = pc.subtract(squares, pc.divide(pc.multiply(total, total), known))
    variance = pc.divide(pc.max_element_wise(spread, 0.0, skip_nulls=False), pc.subtract(known, float(least)))
    value = pc.sqrt(variance) if root else variance
    if result.root is TypeRoot.DECIMAL:
        text = [None if v is None else f"{v:.{result.scale or 0}f}" for v in value.to_pylist()]
        return pa.array(text, pa.string()).cast(result.arrow)
    if result.is_integer:
        return pc.trunc(value).cast(result.arrow)
    return value.cast(result.arrow)


def collect_text(separator: str, values: pa.ListArray, result: DataType) -> pa.Array:
    """Each group's strings joined; NULL where there is none."""
    joined = pc.binary_join(values, separator)
    return pc.if_else(pc.greater(pc.list_value_length(values), 0), joined, pa.scalar(None, pa.string()))


def collect_array(values: pa.ListArray, result: DataType) -> pa.Array:
    """Each group's values as an array; NULL where there is none."""
    filled = pc.if_else(pc.greater(pc.list_value_length(values), 0), values, pa.scalar(None, values.type))
    return filled if filled.type == result.arrow else filled.cast(result.arrow)


def collect_single(values: pa.ListArray, result: DataType) -> pa.Array:
    """Each group's only value; NULL where there is none.

    Raises:
        DataError: a group has several.
    """
    counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    if counts.max(initial=0) > 1:
        raise DataError(
            f"a subquery that stands for one value gave {counts.max()} rows",
            row=int(counts.argmax()),
            hint="use MAX or MIN, add ORDER BY … LIMIT 1, or make its condition find one row",
        )
    filled = pc.if_else(pa.array(counts > 0), values, pa.scalar([None], values.type))
    return pc.list_element(filled, 0) if len(filled) else pa.array([], result.arrow)


def collect_multiset(values: pa.ListArray, result: DataType) -> pa.Array:
    """Each group's values with how often they occur, in order of first occurrence."""
    rows = len(values)
    flat = FlatLists.of(values, rows)
    numbers = codes([flat.values])[0] if len(flat.values) else np.array([], np.int64)
    first = first_of_each(flat.parents, numbers)
    pairs = flat.parents * (int(numbers.max(initial=0)) + 1) + numbers
    ordered = np.sort(pairs)
    chosen = pairs[first]
    counts = np.searchsorted(ordered, chosen, "right") - np.searchsorted(ordered, chosen, "left")
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(flat.parents[first], minlength=rows), out=offsets[1:])
    keys = flat.values.filter(pa.array(first))
    built = pa.MapArray.from_arrays(pa.array(offsets), keys, pa.array(counts.astype(np.int32)))
    return built.cast(result.arrow)
