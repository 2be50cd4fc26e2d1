# ruff: noqa: ARG001 - texts share one signature
"""Functions of numbers as Spark SQL text of exactly the same value."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import integer_literal, spark_type
from flowrun.functions.time_texts import Rounded


def absolute_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """ABS. Spark's own rounds negative decimals to 34 digits."""
    if result.root is TypeRoot.DECIMAL and (result.precision or 0) > 34:
        return f"CAST(ltrim('-', CAST({texts[0]} AS STRING)) AS {spark_type(result)})"
    return f"abs({texts[0]})"


def sign_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """SIGN, with that of zero."""
    text = texts[0]
    if result.is_approximate:
        return f"CAST(sign({text}) AS {spark_type(result)})"
    return f"CAST(CASE WHEN {text} > 0 THEN 1 WHEN {text} < 0 THEN -1 ELSE {text} END AS {spark_type(result)})"


def round_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """ROUND to a constant number of digits."""
    digits = integer_literal(texts[1]) if len(texts) > 1 else 0
    if digits is None:
        return None
    if result.is_approximate:
        return f"CASE WHEN {texts[0]} = 0 THEN {texts[0]} ELSE round({texts[0]}, {max(min(digits, 400), -400)}) END"
    if result.is_integer and digits >= 0:
        return texts[0]
    return f"CAST(round({texts[0]}, {max(min(digits, 38), -38)}) AS {spark_type(result)})"


def truncate_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """TRUNCATE of exact numbers to a constant number of digits."""
    digits = integer_literal(texts[1]) if len(texts) > 1 else 0
    if digits is None or result.is_approximate:
        return None
    if result.is_integer:
        if digits >= 0:
            return texts[0]
        return (
            f"({texts[0]} - {texts[0]})"
            if digits < -18
            else f"CAST({texts[0]} - {texts[0]} % {10**-digits}L AS {spark_type(result)})"
        )
    precision, scale = types[0].precision or 0, types[0].scale or 0
    if digits >= scale:
        return texts[0]
    if precision > 37 or digits < -36:
        return None  # the difference would lose a digit in Spark
    step = f"1{'0' * -digits}BD" if digits <= 0 else f"0.{'0' * (digits - 1)}1BD"
    return f"CAST({texts[0]} - {texts[0]} % {step} AS {spark_type(result)})"


@record
class Whole:
    """FLOOR, or CEIL (`up`), of a number, or of a time to a unit. Spark's own give BIGINT, which holds no large or negative zero."""

    up: bool

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        text = texts[0]
        if len(texts) == 2:
            return Rounded(self.up)(texts, types, result)
        if result.is_integer:
            return text
        cast = f"CAST({'ceil' if self.up else 'floor'}({text}) AS {spark_type(result)})"
        if not result.is_approximate:
            return cast
        zero = f"WHEN {text} < 0 AND {text} > -1 THEN CAST(-0.0D AS {spark_type(result)}) " if self.up else ""
        return f"CASE {zero}WHEN abs({text}) < 9e15 AND {text} <> 0 THEN {cast} ELSE {text} END"


def angle_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """ATAN2; Spark takes the sign from zeros."""
    y, x = texts
    turned = f"CASE WHEN {x} < 0 OR CAST({x} AS STRING) = '-0.0' THEN 3.141592653589793D ELSE 0.0D END"
    side = f"CASE WHEN CAST({y} AS STRING) = '-0.0' THEN -1.0D ELSE 1.0D END"
    return f"CASE WHEN {y} = 0 AND {x} IS NOT NULL AND NOT isnan({x}) THEN {turned} * {side} ELSE atan2({y}, {x}) END"


LOGARITHM = (
    "CASE WHEN {{0}} > 0 THEN {name}({{0}}) WHEN {{0}} = 0 THEN CAST('-Infinity' AS DOUBLE)"
    " WHEN {{0}} < 0 THEN CAST('NaN' AS DOUBLE) END"
)
"""A logarithm of any number: Spark's own give NULL for those that have none."""


def logarithm_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """LOG of one argument; to a base of 1 it divides by zero, which Spark refuses."""
    return LOGARITHM.format(name="ln").format(texts[0]) if len(texts) == 1 else None


def random_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """RAND without a seed."""
    return None if texts else "rand()"
