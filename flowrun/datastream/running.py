"""Running sums and extremes of groups, each as if its values came one by one: how a batch is cut changes no bit of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from flowrun.core.arrays import Integers
from flowrun.errors import DataError

_LONG = 64
"""Groups with more values are summed one by one, the others all together, value by value."""
_SAFE = float(1 << 62)


def running_sums(values: pa.Array, groups: Integers, place: str) -> pa.Array:
    """For each value the sum of those of its group up to it; NULL adds nothing, and is the sum of nothing but NULL.

    Args:
        values: numbers, with equal groups side by side.
        groups: of each value, ascending.
        place: begins messages.

    Raises:
        DataError: a sum is out of the range of the values' type; `row` is not known.

    >>> running_sums(pa.array([1, 2, None, 5, None], pa.int32()), np.array([0, 0, 0, 1, 2]), "sum").to_pylist()
    [1, 3, 3, 5, None]
    """
    kind = values.type
    starts = _starts(groups)
    if pt.is_integer(kind):
        sums: npt.NDArray[Any] = _integer_sums(pc.fill_null(values, 0).cast(pa.int64()).to_numpy(), starts, place)
    elif pt.is_floating(kind):
        sums = _sums_in_order(pc.fill_null(values, 0).to_numpy(), starts)
    elif pt.is_decimal(kind):
        filled = np.array(pc.fill_null(values, pa.scalar(0, kind)).to_pylist(), dtype=object)
        sums = _sums_in_order(filled, starts)
    else:
        raise DataError(f"{place}: values of {kind} have no sum", hint="sum a column of numbers")
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    nothing = _within(np.cumsum(valid), starts, valid) == 0
    try:
        return pa.array(sums, pa.int64() if pt.is_integer(kind) else kind, mask=nothing).cast(kind)
    except pa.ArrowException as error:
        raise _out_of_range(kind, place, error) from error


def running_extremes(values: pa.Array, groups: Integers, *, greatest: bool) -> pa.Array:
    """For each value the least, or greatest, of those of its group up to it, of any type that has an order. NULL never is, NaN is last.

    >>> running_extremes(pa.array(["b", None, "a", "c"]), np.array([0, 0, 0, 1]), greatest=False).to_pylist()
    ['b', 'b', 'a', 'c']
    """
    if len(values) == 0:
        return values
    order = "descending" if greatest else "ascending"
    by_rank = pc.array_sort_indices(values, order=order, null_placement="at_end").to_numpy()
    rank = np.empty(len(values), np.int64)
    rank[by_rank] = np.arange(len(values))
    # Groups ascend, so that a value of a later group is always nearer to the end than all of earlier groups.
    nearer = len(values) - 1 - rank + groups * len(values)
    best = len(values) - 1 - (np.maximum.accumulate(nearer) - groups * len(values))
    return values.take(pa.array(by_rank[best]))


def _starts(groups: Integers) -> Integers:
    return np.flatnonzero(np.diff(groups, prepend=-1))


def _within(accumulated: npt.NDArray[Any], starts: Integers, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What was accumulated over all, counted from the start of each group."""
    lengths = np.diff(np.append(starts, len(accumulated)))
    counted: npt.NDArray[Any] = accumulated - np.repeat(accumulated[starts] - values[starts], lengths)
    return counted


def _integer_sums(values: npt.NDArray[np.int64], starts: Integers, place: str) -> npt.NDArray[np.int64]:
    # What runs over in the middle comes back with the subtraction: the differences are exact unless a sum itself is out of range.
    sums: npt.NDArray[np.int64] = _within(np.cumsum(values), starts, values)
    if len(values) and float(np.abs(values.astype(np.float64)).sum()) >= _SAFE:
        exact = _sums_in_order(values.astype(object), starts)
        if any(not -(1 << 63) <= total < 1 << 63 for total in exact):
            raise _out_of_range(pa.int64(), place, None)
    return sums


def _sums_in_order(values: npt.NDArray[Any], starts: Integers) -> npt.NDArray[Any]:
    """Sums of numbers for which the order of additions counts."""
    sums = values.copy()
    lengths = np.diff(np.append(starts, len(values)))
    for start, length in zip(starts[lengths > _LONG].tolist(), lengths[lengths > _LONG].tolist(), strict=True):
        np.add.accumulate(values[start : start + length], out=sums[start : start + length])
    short = lengths <= _LONG
    places, left = starts[short], lengths[short]
    for offset in range(1, int(left.max(initial=0))):
        places, left = places[left > offset], left[left > offset]
        sums[places + offset] += sums[places + offset - 1]
    return sums


def _out_of_range(kind: pa.DataType, place: str, error: Exception | None) -> DataError:
    said = "" if error is None else f": {error}"
    return DataError(
        f"{place}: a sum is out of the range of {kind}{said}", hint="cast the column to a wider type before"
    )
