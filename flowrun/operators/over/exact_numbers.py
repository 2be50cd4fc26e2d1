"""Integers and decimals as whole numbers that sums cannot overflow unseen: int64 where it surely holds all sums, else Python's own."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Integers
from flowrun.core.decimal_words import decimal_words_or_zero, decimals_of, fit_low_word
from flowrun.operators.aggregation.sums import overflow

_LIMIT = 1 << 63
_WIDE = decimal.Context(prec=76)
_HALF = 1 << 64


def whole_numbers(column: pa.Array, most: int) -> npt.NDArray[Any]:
    """The numbers of an integer or decimal column without its scale, 0 for NULL: int64, or objects if `most` of them may not fit."""
    if pa.types.is_decimal(column.type):
        return _decimals(column, most)
    values: npt.NDArray[Any] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy().astype(np.int64)
    return values if _fits(values, most) else values.astype(object)


def _fits(values: Integers, most: int) -> bool:
    if not len(values):
        return True
    return max(abs(int(values.min())), abs(int(values.max()))) * max(most, 1) < _LIMIT


def _decimals(column: pa.Array, most: int) -> npt.NDArray[Any]:
    words = decimal_words_or_zero(column)
    low, high = words[:, 0], words[:, 1]
    if fit_low_word(words).all() and _fits(low, most):
        return low.copy()
    wide: npt.NDArray[Any] = high.astype(object) * _HALF + low.view(np.uint64).astype(object)
    return wide


def number_column(numbers: npt.NDArray[Any], kind: pa.DataType, place: str) -> pa.Array:
    """Whole numbers as a column of BIGINT or DECIMAL(p, s).

    Raises:
        DataError: one does not fit; `place` names the aggregate.
    """
    if not pa.types.is_decimal(kind):
        if numbers.dtype == object:
            if any(not -_LIMIT <= n < _LIMIT for n in numbers):
                raise overflow(place, "BIGINT")
            numbers = numbers.astype(np.int64)
        return pa.array(numbers)
    if numbers.dtype != object:
        if (
            kind.precision < 19
            and len(numbers)
            and max(abs(int(numbers.min())), abs(int(numbers.max()))) >= 10**kind.precision
        ):
            raise overflow(place, f"DECIMAL({kind.precision}, {kind.scale})")
        return decimals_of(numbers, kind)
    if any(abs(n) >= 10**kind.precision for n in numbers):
        raise overflow(place, f"DECIMAL({kind.precision}, {kind.scale})")
    return pa.array([_WIDE.scaleb(decimal.Decimal(n), -kind.scale) for n in numbers.tolist()], kind)
