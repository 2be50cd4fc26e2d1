"""Decimal columns: exact rescaling with half-up rounding, and detection of values that need more digits than their type has.

Arrow has decimal128 and decimal256 kernels that either refuse to lose digits or round to nearest even. These helpers work in decimal256
where 38 digits could overflow on the way, round half away from zero as Java's HALF_UP, and report overflow as a mask.
"""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools
from flowrun.core.decimal_words import decimal_words, fit_low_word

_WIDE = 76
_EXACT_WHOLE, _EXACT_POWER = 2**53, 22
"""Whole numbers up to the first, and powers of ten up to the second, are exact as doubles."""
_CONTEXT = decimal.Context(prec=_WIDE + 4)


def to_mask(array: pa.BooleanArray) -> Bools:
    """A boolean column as a NumPy mask; NULL is False."""
    values: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return values


def widened(array: pa.Array, scale: int | None = None) -> pa.Array:
    """The decimals as decimal256 with 76 digits, at a scale at least their own."""
    return pc.cast(array, pa.decimal256(_WIDE, array.type.scale if scale is None else scale))


def null_where(array: pa.Array, mask: Bools) -> pa.Array:
    """The array with NULL where the mask is set."""
    return pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))


def power_of_ten(exponent: int, type: pa.DataType) -> pa.Scalar:
    """10**exponent as a decimal scalar."""
    return pa.scalar(_CONTEXT.power(decimal.Decimal(10), exponent), type)


def fit(array: pa.Array, target: pa.Decimal128Type) -> tuple[pa.Array, Bools | None]:
    """The decimals rounded half-up to the target's scale, with NULL and a mask bit where the whole digits do not fit."""
    source = array.type
    if source == target:
        return array, None
    whole = source.precision - source.scale
    if source.scale <= target.scale and whole <= target.precision - target.scale:
        return pc.cast(array, target), None
    # rounding may carry into one more whole digit
    if max(whole + 1 + max(source.scale, target.scale), source.precision + 1) <= 38:
        work = pc.cast(array, pa.decimal128(38, source.scale)) if source.scale > target.scale else array
    else:
        work = widened(array)
    if source.scale > target.scale:
        work = pc.round(work, target.scale, round_mode="half_towards_infinity")
    if whole < target.precision - target.scale:
        return pc.cast(work, target), None
    wide = widened(work)
    # of the same type, because Arrow's comparison rescales to a type that may not exist
    bad = to_mask(pc.greater_equal(pc.abs(wide), power_of_ten(target.precision - target.scale, wide.type)))
    if not bad.any():
        return pc.cast(work, target), None
    return pc.cast(null_where(work, bad), target), bad


def from_integers(array: pa.Array, target: pa.Decimal128Type) -> tuple[pa.Array, Bools | None]:
    """Integers as decimals of the target type."""
    digits = {8: 3, 16: 5, 32: 10, 64: 19}[array.type.bit_width]
    if digits + target.scale <= target.precision:
        return pc.cast(array, target), None
    return fit(pc.cast(array, pa.decimal128(19, 0)), target)


def to_doubles(array: pa.Array) -> pa.DoubleArray:
    """Decimals as the nearest doubles. Arrow's own cast is often off by a unit of the last place."""
    scale = array.type.scale
    words = decimal_words(array)
    low = words[:, 0]
    exact = fit_low_word(words) & (np.abs(low) <= _EXACT_WHOLE) & (scale <= _EXACT_POWER)
    # Both are exact as doubles, and IEEE 754 rounds their quotient correctly.
    nearest = pa.array(low / 10.0 ** min(scale, _EXACT_POWER), mask=to_mask(array.is_null()))
    if exact.all():
        return nearest
    return pc.if_else(pa.array(exact), nearest, pc.cast(pc.cast(array, pa.string()), pa.float64()))


def plain_text(array: pa.Array) -> pa.StringArray:
    """Decimals in plain notation with all their fractional digits, never with an exponent."""
    text = pc.cast(array, pa.string())
    if array.type.scale <= 6:
        return text
    scientific = pc.match_substring(text, "E")
    if not pc.any(scientific).as_py():
        return text
    fixed = [f"{v:f}" for v in array.filter(scientific).to_pylist()]
    return pc.replace_with_mask(text, pc.fill_null(scientific, False), pa.array(fixed, pa.string()))


def quotient(left: pa.Array, right: pa.Array, scale: int) -> pa.Array:
    """The quotient with at least one more fractional digit than `scale`, truncated, so that `fit` rounds it half-up exactly.

    Both are decimal arrays of equal length; divisors are not zero.
    """
    p1, s1, p2, s2 = left.type.precision, left.type.scale, right.type.precision, right.type.scale
    # Arrow's quotient has scale max(4, s1 + p2 - s2 + 1) and precision p1 - s1 + s2 + scale
    wide_scale = max(s1, scale - p2 + s2)
    precision = p1 - s1 + s2 + max(4, wide_scale + p2 - s2 + 1)
    if precision > _WIDE:
        return _quotient_by_row(left, right, scale)
    make = pa.decimal128 if precision <= 38 else pa.decimal256
    return pc.divide(pc.cast(left, make(p1 - s1 + wide_scale, wide_scale)), pc.cast(right, make(p2, s2)))


def _quotient_by_row(left: pa.Array, right: pa.Array, scale: int) -> pa.Array:
    # only for divisors of more than 30 digits or so: the exact numerator exceeds decimal256
    context = decimal.Context(prec=_WIDE + 40, rounding=decimal.ROUND_DOWN)
    step = decimal.Decimal(1).scaleb(-scale - 1)
    values = [
        None if a is None or b is None else context.divide(a, b).quantize(step, context=context)
        for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    return pa.array(values, pa.decimal256(_WIDE, scale + 1))
