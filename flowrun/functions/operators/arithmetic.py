# ruff: noqa: ARG001 - kernels share one signature
"""Kernels of + − * / % and unary minus over numbers, exact or approximate.

Integers are checked: overflow and division by zero are `DataError`s. Quotients of integers truncate toward zero, remainders take the
dividend's sign. Decimals round half-up into the result type that the type rule has fixed. Division by zero is an error for FLOAT and
DOUBLE too, so that a stream and Spark (ANSI mode) agree; other approximate arithmetic follows IEEE 754.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools
from flowrun.core.decimal_words import decimal_words, decimals_of
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.functions.contract import Datum
from flowrun.functions.decimals import fit, quotient, to_mask, widened

Operation = Callable[[Datum, Datum], Datum]


def add(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Sum."""
    return _arithmetic(arguments, rows, result, pc.add_checked)


def subtract(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Difference."""
    return _arithmetic(arguments, rows, result, pc.subtract_checked)


def multiply(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Product."""
    return _arithmetic(arguments, rows, result, pc.multiply_checked)


def divide(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Quotient."""
    left, right = arguments
    reject_zero(left, right)
    if result.root is TypeRoot.DECIMAL:
        a, b = _array(left, rows), _array(right, rows)
        return _fitted(quotient(a, b, result.scale or 0), result)
    if result.is_approximate:
        return pc.divide(left, right)
    return checked(pc.divide_checked, left, right, result)


def remainder(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Remainder of the truncating division."""
    left, right = arguments
    reject_zero(left, right)
    a, b = _array(left, rows), _array(right, rows)
    if pa.types.is_decimal(a.type):
        return _decimal_remainder(a, b, result)
    missing = ~(to_mask(pc.is_valid(a)) & to_mask(pc.is_valid(b)))
    dividend = pc.fill_null(a, 0).to_numpy(zero_copy_only=False)
    divisor = pc.fill_null(b, 1).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # of infinity it is NaN
        values = np.fmod(dividend, np.where(missing, 1, divisor))
    # the result takes the divisor's type and is smaller than the divisor, so it fits
    return pa.array(values.astype(result.arrow.to_pandas_dtype()), result.arrow, mask=missing)


def negate(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Unary minus."""
    return checked_unary(pc.negate_checked, arguments[0], result)


def checked(operation: Operation, left: Datum, right: Datum, result: DataType) -> Datum:
    """`operation(left, right)`; Arrow's overflow error becomes a `DataError` without a row (the caller bisects)."""
    try:
        return operation(left, right)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"the result does not fit {result} ({error})", hint="CAST an operand to a wider type"
        ) from error


def checked_unary(operation: Callable[[Datum], Datum], operand: Datum, result: DataType) -> Datum:
    """Like `checked`, for one operand."""
    try:
        return operation(operand)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"the result does not fit {result} ({error})", hint="CAST the operand to a wider type"
        ) from error


def reject_zero(left: Datum, right: Datum) -> None:
    """Fail on the first zero divisor whose dividend is not NULL.

    Raises:
        DataError: names the row if the divisor varies.
    """
    zero = pc.and_(pc.equal(right, pa.scalar(0, right.type)), pc.is_valid(left))
    if isinstance(zero, pa.Scalar):
        if zero.as_py():
            raise DataError(
                "division by zero", hint="guard it: CASE WHEN divisor <> 0 THEN … END, or NULLIF(divisor, 0)"
            )
        return
    mask = to_mask(zero)
    if mask.any():
        row = int(np.argmax(mask))
        raise DataError(
            "division by zero", row=row, hint="guard it: CASE WHEN divisor <> 0 THEN … END, or NULLIF(divisor, 0)"
        )


def _array(datum: Datum, rows: int) -> pa.Array:
    return pa.repeat(datum, rows) if isinstance(datum, pa.Scalar) else datum


def _arithmetic(arguments: Sequence[Datum], rows: int, result: DataType, operation: Operation) -> Datum:
    left, right = arguments
    if result.root is not TypeRoot.DECIMAL:
        return checked(operation, left, right, result)
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        left = pa.repeat(left, rows)
    p1, s1, p2, s2 = left.type.precision, left.type.scale, right.type.precision, right.type.scale
    if operation is pc.multiply_checked:
        needed = p1 + p2 + 1
    else:
        needed = max(p1 - s1, p2 - s2) + max(s1, s2) + 1
    if needed <= 38:
        return _fitted(operation(left, right), result)
    if needed > 76:
        return _product_by_row(_array(left, rows), _array(right, rows), result)
    wide = operation(_wide(left), _wide(right))
    return _fitted(wide, result)


def _wide(datum: Datum) -> Datum:
    type = pa.decimal256(datum.type.precision, datum.type.scale)
    return pc.cast(datum, type)


def _fitted(array: pa.Array, result: DataType) -> pa.Array:
    values, bad = fit(array, result.arrow)
    _reject(bad, result)
    return values


def _reject(bad: Bools | None, result: DataType) -> None:
    if bad is not None and bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"the result does not fit {result}", row=row, hint="CAST the operands to fewer digits")


def _product_by_row(left: pa.Array, right: pa.Array, result: DataType) -> pa.Array:
    # only for two factors of 38 digits: their exact product exceeds decimal256
    context = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
    step = decimal.Decimal(1).scaleb(-(result.scale or 0))
    values = [
        None if a is None or b is None else context.multiply(a, b).quantize(step, context=context)
        for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    limit = decimal.Decimal(10) ** ((result.precision or 0) - (result.scale or 0))
    bad = np.array([v is not None and v.copy_abs() >= limit for v in values], np.bool_)
    _reject(bad, result)
    return pa.array(values, result.arrow)


def _decimal_remainder(left: pa.Array, right: pa.Array, result: DataType) -> pa.Array:
    scale = max(left.type.scale, right.type.scale)
    whole = max(left.type.precision - left.type.scale, right.type.precision - right.type.scale)
    if whole + scale <= 18:  # the unscaled numbers are int64s
        common = pa.decimal128(18, scale)
        missing = ~(to_mask(pc.is_valid(left)) & to_mask(pc.is_valid(right)))
        a, b = decimal_words(pc.cast(left, common))[:, 0], decimal_words(pc.cast(right, common))[:, 0]
        values = np.fmod(a, np.where(missing | (b == 0), 1, b))
        return _fitted(decimals_of(values, common, missing), result)
    context = decimal.Context(prec=120)
    by_row = [
        None if a is None or b is None else context.remainder(a, b)
        for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    return _fitted(widened(pa.array(by_row, pa.decimal256(76, scale))), result)
