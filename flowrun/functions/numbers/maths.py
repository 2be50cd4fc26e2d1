# ruff: noqa: ARG001 - kernels share one signature
"""Arithmetic functions: sign, remainder, powers, logarithms, trigonometry, random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DOUBLE, INT, DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction, Signature
from flowrun.functions.numbers import spark_texts as texts
from flowrun.functions.numbers.java_random import first_doubles, first_integers
from flowrun.functions.operators.arithmetic import remainder
from flowrun.functions.operators.type_rules import modulo
from flowrun.functions.rules import APPROXIMATE, INTEGER, LONG, NUMBER, Parameter, Rule, same_as
from flowrun.functions.spark_text import Function, Template
from flowrun.functions.vectors import (
    ArrowKernel,
    as_array,
    as_type,
    is_constant,
)


def _abs(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    try:
        return pc.abs_checked(arguments[0])
    except pa.ArrowInvalid as error:
        raise DataError(f"ABS: the absolute value of the least {result} does not fit into {result}") from error


def _sign(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    sign = pc.sign(arguments[0])
    if result.root is not TypeRoot.DECIMAL:
        return as_type(sign, result)
    if result.precision == result.scale and not pc.all(pc.equal(as_array(sign, 1), 0)).as_py():
        raise DataError(f"SIGN: 1 does not fit into {result}", hint="CAST the argument to a wider type")
    signs = pa.array([-1, 0, 1], pa.int8()).cast(pa.decimal128(38, result.scale or 0)).cast(result.arrow, safe=False)
    found = signs.take(pc.add(as_array(sign, 1), 1))
    return found[0] if is_constant(sign) else found


def _mod_rule(arguments: Sequence[Argument]) -> Signature:
    Rule("MOD(dividend, divisor)", DOUBLE, (NUMBER, NUMBER))(arguments)  # refuses what is not a number
    return modulo(arguments)


def _log(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """Natural logarithm, or that to the base of the first argument."""
    if len(arguments) == 1:
        return pc.ln(arguments[0])
    return pc.divide(pc.ln(arguments[1]), pc.ln(arguments[0]))


def _log2(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pc.divide(pc.ln(arguments[0]), pa.scalar(math.log(2)))  # as Flink computes it, so that last digits agree


def _scaled(factor: float, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pc.multiply(arguments[0], pa.scalar(factor))


def _cot(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pc.divide(pa.scalar(1.0), pc.tan(arguments[0]))


def _fixed(value: float, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pa.scalar(value, result.arrow)


def _seed_problem(arguments: Sequence[Argument]) -> str | None:
    if arguments and arguments[0].is_literal:
        return "a constant seed would need one sequence over all rows and tasks; leave it out, or seed by a column"
    return None


def _bound_problem(value: object) -> str | None:
    return (
        None
        if value is None or (isinstance(value, int) and value > 0)
        else f"the bound must be positive, {value} given"
    )


def _pair_seed_problem(arguments: Sequence[Argument]) -> str | None:
    return _seed_problem(arguments) if len(arguments) == 2 else None


def _rand(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if not arguments:
        return pa.array(np.random.default_rng().random(rows))
    seeds = as_array(arguments[0], rows)
    values = first_doubles(pc.fill_null(seeds, 0).cast(pa.int64()).to_numpy())
    return pa.array(values, mask=pc.is_null(seeds).to_numpy(zero_copy_only=False))


def _rand_integer(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    bounds = as_array(arguments[-1], rows)
    valid = pc.is_valid(bounds)
    highs = pc.fill_null(bounds, 1).to_numpy()
    if (highs <= 0).any():
        raise DataError("RAND_INTEGER: the bound must be positive", row=int(np.flatnonzero(highs <= 0)[0]))
    if len(arguments) == 1:
        values = np.random.default_rng().integers(0, highs)
    else:
        seeds = as_array(arguments[0], rows)
        valid = pc.and_(valid, pc.is_valid(seeds))
        values = first_integers(pc.fill_null(seeds, 0).cast(pa.int64()).to_numpy(), highs)
    return pa.array(values.astype(np.int32), mask=~valid.to_numpy(zero_copy_only=False))


def _double(
    name: str, kernel: Callable[..., Datum], doc: str, spark: str | None = None, aliases: tuple[str, ...] = ()
) -> ScalarFunction:
    usage = f"{name}(number)"
    text = None if spark is None else Template(spark)
    return ScalarFunction(name, Rule(usage, DOUBLE, (APPROXIMATE,)), kernel, usage, doc, text, aliases)


_BOUND = Parameter("an INT", INTEGER.resolve, INT, check=_bound_problem)
_TWO = (APPROXIMATE, APPROXIMATE)

MATHS = (
    ScalarFunction(
        "ABS", Rule("ABS(number)", same_as(0), (NUMBER,)), _abs, "ABS(number)", "The absolute value.",
        texts.absolute_text, fallible=True,
    ),
    ScalarFunction(
        "SIGN", Rule("SIGN(number)", same_as(0), (NUMBER,)), _sign, "SIGN(number)",
        "-1, 0 or 1 in the type of the number.", texts.sign_text,
    ),
    ScalarFunction(
        "MOD", _mod_rule, remainder, "MOD(dividend, divisor)",
        "The remainder, with the sign of the dividend.", Function("mod", cast=True), fallible=True,
    ),
    ScalarFunction(
        "POWER", Rule("POWER(base, exponent)", DOUBLE, _TWO), ArrowKernel("power"), "POWER(base, exponent)",
        "The base raised to a power.", Function("power"),
    ),
    _double("SQRT", ArrowKernel("sqrt"), "The square root; NaN for a negative number.", "sqrt({0})"),
    _double("EXP", ArrowKernel("exp"), "e raised to a power.", "exp({0})"),
    _double("LN", ArrowKernel("ln"), "The natural logarithm.", texts.LOGARITHM.format(name="ln")),
    _double("LOG10", ArrowKernel("log10"), "The logarithm to base 10.", texts.LOGARITHM.format(name="log10")),
    _double("LOG2", _log2, "The logarithm to base 2.", texts.LOGARITHM.format(name="log2")),
    ScalarFunction(
        "LOG", Rule("LOG([base, ]number)", DOUBLE, (APPROXIMATE,), (APPROXIMATE,)), _log, "LOG([base, ]number)",
        "The natural logarithm, or that to a base.", texts.logarithm_text,
    ),
    _double("SIN", ArrowKernel("sin"), "The sine of an angle in radians.", "sin({0})"),
    _double("COS", ArrowKernel("cos"), "The cosine of an angle in radians.", "cos({0})"),
    _double("TAN", ArrowKernel("tan"), "The tangent of an angle in radians.", "tan({0})"),
    _double("COT", _cot, "The cotangent of an angle in radians.", "cot({0})"),
    _double("ASIN", ArrowKernel("asin"), "The arc sine in radians; NaN outside −1 … 1.", "asin({0})"),
    _double("ACOS", ArrowKernel("acos"), "The arc cosine in radians; NaN outside −1 … 1.", "acos({0})"),
    _double("ATAN", ArrowKernel("atan"), "The arc tangent in radians.", "atan({0})"),
    ScalarFunction(
        "ATAN2", Rule("ATAN2(y, x)", DOUBLE, _TWO), ArrowKernel("atan2"), "ATAN2(y, x)",
        "The angle of the point (x, y) in radians.", texts.angle_text,
    ),
    _double("SINH", ArrowKernel("sinh"), "The hyperbolic sine.", "sinh({0})"),
    _double("COSH", ArrowKernel("cosh"), "The hyperbolic cosine.", "cosh({0})"),
    _double("TANH", ArrowKernel("tanh"), "The hyperbolic tangent.", "tanh({0})"),
    _double("DEGREES", partial(_scaled, 180 / math.pi), "An angle in radians as degrees.", "({0} * 57.29577951308232D)"),
    _double("RADIANS", partial(_scaled, math.pi / 180), "An angle in degrees as radians.", "({0} * 0.017453292519943295D)"),
    ScalarFunction("PI", Rule("PI()", DOUBLE), partial(_fixed, math.pi), "PI()", "The number π.", Function("pi")),
    ScalarFunction("E", Rule("E()", DOUBLE), partial(_fixed, math.e), "E()", "The number e.", Function("e")),
    ScalarFunction(
        "RAND", Rule("RAND([seed])", DOUBLE, (), (LONG,), check=_seed_problem), _rand, "RAND([seed column])",
        "A random number from 0 (inclusive) to 1; the same one for the same seed.",
        texts.random_text, deterministic=False,
    ),
    ScalarFunction(
        "RAND_INTEGER",
        Rule("RAND_INTEGER([seed, ]bound)", INT, (Parameter("an INT", INTEGER.resolve, INT),), (_BOUND,),
             check=_pair_seed_problem),
        _rand_integer, "RAND_INTEGER([seed column, ]bound)",
        "A random integer from 0 (inclusive) to a bound; the same one for the same seed.",
        texts.random_integer_text, deterministic=False, fallible=True,
    ),
)  # fmt: skip
"""Arithmetic functions."""
