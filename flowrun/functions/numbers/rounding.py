"""ROUND, TRUNCATE, FLOOR and CEIL of numbers; FLOOR and CEIL of times hand over to `calendar_units`.

Ties round away from zero (Java's HALF_UP), and a DOUBLE counts as the shortest decimal that reads back as it, so ROUND(2.675, 2) is 2.68.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot, decimal
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.coercion import decimal_round
from flowrun.functions.contract import Argument, Datum, ScalarFunction, Signature
from flowrun.functions.decimals import fit
from flowrun.functions.numbers import spark_texts as texts
from flowrun.functions.rules import LONG, NUMBER, TEMPORAL, Rule, word
from flowrun.functions.times.calendar_units import ROUNDING_UNITS, ceil_to_unit, floor_to_unit
from flowrun.functions.vectors import any_null_constant, as_array, as_type, is_constant, map_distinct, null_of

Float64Array = np.ndarray[tuple[int], np.dtype[np.float64]]
_CONTEXT = Context(prec=800)  # any double, and any DECIMAL, with all its digits
_EXACT_POWERS = 22  # 10**22 is the largest power of ten that a double holds exactly


def _digits_result(arguments: Sequence[Argument]) -> DataType:
    given = arguments[0].type
    if given.root is not TypeRoot.DECIMAL:
        return given
    if len(arguments) == 1:
        return decimal_round(given, 0)
    digits = arguments[1].literal
    return decimal_round(given, digits) if isinstance(digits, int) else given


def _round_value(rounding: str, value: float | Decimal, digits: int) -> Any:
    """One value rounded exactly, in its own type."""
    if isinstance(value, float) and not np.isfinite(value):
        return value
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    digits = max(min(digits, 400), -400)
    if -digits <= exact.as_tuple().exponent:  # type: ignore[operator] # finite, so the exponent is a number
        return value
    whole = exact.scaleb(digits, _CONTEXT).quantize(Decimal(1), rounding, _CONTEXT)
    return type(value)(whole.scaleb(-digits, _CONTEXT))


def round_doubles(values: Float64Array, digits: int, rounding: str) -> Float64Array:
    """Doubles rounded to decimal digits, exact in the sense of their shortest decimal form.

    Scaled values that are safely away from a tie (or, truncating, from a whole number) are rounded in binary; the others, where the
    multiplication may have crossed it, one by one as decimals.
    """
    if abs(digits) > _EXACT_POWERS:
        return np.array([_round_value(rounding, float(v), digits) for v in values], np.float64)
    power = 10.0 ** abs(digits)
    with np.errstate(all="ignore"):
        scaled = values * power if digits >= 0 else values / power
        magnitude = np.abs(scaled)
        whole = np.floor(magnitude + 0.5) if rounding == ROUND_HALF_UP else np.floor(magnitude)
        result = np.copysign(whole / power if digits >= 0 else whole * power, values)
        edge = magnitude - np.floor(magnitude)
        distance = np.abs(edge - 0.5) if rounding == ROUND_HALF_UP else np.minimum(edge, 1 - edge)
        unsure = ~(distance > 1e-9 * np.maximum(magnitude, 1)) | (magnitude >= 2.0**52)
    for place in np.flatnonzero(unsure):
        result[place] = _round_value(rounding, float(values[place]), digits)
    return result


def _round_integers(rounding: str, column: Datum, digits: int, result: DataType) -> Datum:
    if digits >= 0:
        return column
    if digits <= -19:
        return pc.multiply(column, pa.scalar(0, column.type))
    mode = "half_towards_infinity" if rounding == ROUND_HALF_UP else "towards_zero"
    wide = pc.round(pc.cast(column, pa.int64()), ndigits=digits, round_mode=mode)
    return pc.cast(wide, result.arrow)


def _round_decimals(rounding: str, column: Datum, digits: int, rows: int, result: DataType) -> Datum:
    array = as_array(column, 1 if is_constant(column) else rows)
    scale = array.type.scale
    if digits < scale:
        mode = "half_towards_infinity" if rounding == ROUND_HALF_UP else "towards_zero"
        array = pc.round(array.cast(pa.decimal256(76, scale)), ndigits=max(digits, scale - 76), round_mode=mode)
    return _fitted(array, result, "ROUND" if rounding == ROUND_HALF_UP else "TRUNCATE", constant=is_constant(column))


def _fitted(array: pa.Array, result: DataType, name: str, *, constant: bool) -> Datum:
    fitted, bad = fit(array, result.arrow)
    if bad is not None:
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"{name}: {array[row].as_py()} does not fit into {result}", row=None if constant else row)
    return fitted[0] if constant else fitted


def _to_digits(rounding: str, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    column = arguments[0]
    digits = arguments[1] if len(arguments) == 2 else pa.scalar(0)
    if any_null_constant(arguments):
        return null_of(result)
    if not is_constant(digits):
        return map_distinct(partial(_round_any, rounding), arguments, rows, result.arrow)
    places = digits.as_py()
    try:
        if result.is_integer:
            return _round_integers(rounding, column, places, result)
    except pa.ArrowInvalid as error:
        raise DataError(f"ROUND: a rounded value does not fit into {result}: {error}") from error
    if result.root is TypeRoot.DECIMAL:
        return _round_decimals(rounding, column, places, rows, result)
    if is_constant(column):
        return pa.scalar(_round_value(rounding, float(column.as_py()), places), result.arrow)
    wide = column.cast(pa.float64())
    rounded = round_doubles(pc.fill_null(wide, 0.0).to_numpy(), places, rounding)
    return as_type(pa.array(rounded, mask=pc.is_null(column).to_numpy(zero_copy_only=False)), result)


def _round_any(rounding: str, value: Any, digits: int) -> Any:
    return (
        int(_round_value(rounding, Decimal(value), digits))
        if isinstance(value, int)
        else _round_value(rounding, value, digits)
    )


def _whole_result(argument: DataType) -> DataType:
    return decimal(argument.precision or 10, 0) if argument.root is TypeRoot.DECIMAL else argument


class _RoundRule:
    """Type rule of FLOOR and CEIL: a number alone, or a time and a unit."""

    def __init__(self, name: str) -> None:
        self.usage = f"{name}(number) or {name}(time TO unit)"
        self._number = Rule(f"{name}(number)", NUMBER.null_type, (NUMBER,))
        self._time = Rule(f"{name}(time TO unit)", TEMPORAL.null_type, (TEMPORAL, word(*ROUNDING_UNITS)))

    def __call__(self, arguments: Sequence[Argument]) -> Signature:
        if len(arguments) == 1:
            if arguments[0].type.is_temporal:
                name = self.usage.partition("(")[0]
                raise ExpressionError(
                    f"{name} of {arguments[0].type} needs a unit", hint=f"usage: {name}(time TO MINUTE)"
                )
            cast = self._number(arguments).arguments
            return Signature(cast, _whole_result(cast[0]))
        cast = self._time(arguments).arguments
        return Signature(cast, cast[0])


def _whole(
    numeric: Callable[[Any], Any],
    temporal: Callable[[Datum, str, DataType], Datum],
    arguments: Sequence[Datum],
    rows: int,
    result: DataType,
) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    column = arguments[0]
    if len(arguments) == 2:
        return temporal(column, arguments[1].as_py().upper(), result)
    if result.is_integer:
        return column
    if result.root is not TypeRoot.DECIMAL:
        return as_type(numeric(column), result)
    array = as_array(column, 1 if is_constant(column) else rows)
    wide = (
        pa.decimal128(array.type.precision + 1, array.type.scale)
        if array.type.precision < 38
        else pa.decimal256(39, array.type.scale)
    )
    return _fitted(numeric(array.cast(wide)), result, "FLOOR or CEIL", constant=is_constant(column))


_ROUND = "ROUND(number[, digits])"
_TRUNCATE = "TRUNCATE(number[, digits])"

ROUNDINGS = (
    ScalarFunction(
        "ROUND",
        Rule(_ROUND, _digits_result, (NUMBER,), (LONG,)),
        partial(_to_digits, ROUND_HALF_UP),
        _ROUND,
        "The number rounded to decimal digits (0; negative: left of the point), ties away from zero.",
        texts.round_text,
        fallible=True,
    ),
    ScalarFunction(
        "TRUNCATE",
        Rule(_TRUNCATE, _digits_result, (NUMBER,), (LONG,)),
        partial(_to_digits, ROUND_DOWN),
        _TRUNCATE,
        "The number cut to decimal digits (0; negative: left of the point).",
        texts.truncate_text,
    ),
    ScalarFunction(
        "FLOOR",
        _RoundRule("FLOOR"),
        partial(_whole, pc.floor, floor_to_unit),
        "FLOOR(number) or FLOOR(time TO unit)",
        "The largest whole number, or start of a time unit, that is not greater.",
        texts.Whole(up=False),
        fallible=True,
    ),
    ScalarFunction(
        "CEIL",
        _RoundRule("CEIL"),
        partial(_whole, pc.ceil, ceil_to_unit),
        "CEIL(number) or CEIL(time TO unit)",
        "The smallest whole number, or start of a time unit, that is not less.",
        texts.Whole(up=True),
        aliases=("CEILING",),
        fallible=True,
    ),
)
"""Functions that round."""
