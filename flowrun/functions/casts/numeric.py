# ruff: noqa: ARG001 - kernels share one signature
"""Cast kernels between BOOLEAN and the numeric types. Fractions of approximate numbers and decimals truncate into integers; decimals
round half-up into decimals; whatever does not fit is reported, never wrapped.
"""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.decimals import fit, from_integers, null_where, to_doubles, to_mask, widened

Outcome = tuple[pa.Array, Bools | None]
"""A cast's result, NULL where it failed, and the mask of the rows that failed (None: none did)."""

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INTEGER: 32, TypeRoot.BIGINT: 64}


def integer_range(type: DataType) -> tuple[int, int]:
    """Smallest and largest value of an integer type.

    >>> from flowrun.core.types import TINYINT
    >>> integer_range(TINYINT)
    (-128, 127)
    """
    bits = _BITS[type.root]
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _checked(array: pa.Array, bad: Bools, target: pa.DataType) -> Outcome:
    if not bad.any():
        return pc.cast(array, target, safe=False), None
    return pc.cast(null_where(array, bad), target, safe=False), bad


def number_to_number(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """Any numeric type to any other, except approximate to DECIMAL, which goes by text."""
    if target.is_integer:
        return number_to_integer(array, source, target)
    if target.is_approximate:
        if source.root is TypeRoot.DECIMAL:
            array = to_doubles(array)
        result = pc.cast(array, target.arrow, safe=False)
        if target.root is TypeRoot.FLOAT and source.root in (TypeRoot.DOUBLE, TypeRoot.DECIMAL):
            lost = to_mask(pc.is_inf(result))
            if source.root is TypeRoot.DOUBLE:
                lost &= to_mask(pc.is_finite(array))
            if lost.any():
                return null_where(result, lost), lost
        return result, None
    if source.is_integer:
        return from_integers(array, target.arrow)
    return fit(array, target.arrow)


def number_to_integer(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """A numeric column as integers, truncated toward zero."""
    low, high = integer_range(target)
    if source.is_integer:
        if _BITS[source.root] <= _BITS[target.root]:
            return pc.cast(array, target.arrow), None
        bad = to_mask(pc.or_(pc.less(array, low), pc.greater(array, high)))
        return _checked(array, bad, target.arrow)
    if source.is_approximate:
        whole = pc.trunc(array)
        # float(high) rounds up to 2**63 for BIGINT, hence < high + 1
        inside = pc.and_(pc.greater_equal(whole, float(low)), pc.less(whole, float(high + 1)))
        bad = to_mask(pc.is_valid(array)) & ~to_mask(inside)
        return _checked(whole, bad, target.arrow)
    whole = pc.trunc(array)
    wide = widened(whole)
    lowest, highest = pa.scalar(decimal.Decimal(low), wide.type), pa.scalar(decimal.Decimal(high), wide.type)
    bad = to_mask(pc.or_(pc.less(wide, lowest), pc.greater(wide, highest)))
    if bad.any():
        whole = null_where(whole, bad)
    options = pc.CastOptions(target.arrow, allow_decimal_truncate=True)
    return pc.cast(whole, options=options), bad if bad.any() else None


def boolean_to_number(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """TRUE is 1, FALSE is 0."""
    numbers = pc.cast(array, pa.int8())
    if target.root is TypeRoot.DECIMAL:
        return from_integers(numbers, target.arrow)
    return pc.cast(numbers, target.arrow), None


def number_to_boolean(array: pa.Array, source: DataType, target: DataType) -> Outcome:
    """0 is FALSE, anything else TRUE, NaN included."""
    return pc.not_equal(array, pa.scalar(0, array.type)), None


def as_numpy(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """An integer column as int64 values; NULL is 0."""
    filled = array if not array.null_count else pc.fill_null(array, 0)
    values: np.ndarray[tuple[int], np.dtype[np.int64]] = filled.to_numpy(zero_copy_only=False).astype(
        np.int64, copy=False
    )
    return values
