# ruff: noqa: ARG001 - texts share one signature
"""Functions of numbers as Spark SQL text of exactly the same value."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import integer_literal, let, spark_type
from flowrun.functions.times.spark_texts import Rounded

_SPLIT = "9223372036854775808"
"""Numbers below its square are taken apart into two BIGINTs, without loss."""


def approximate_text(text: str, type: DataType) -> str:
    """A FLOAT or DOUBLE as Java spells it, with the fewest digits that read back to the same number.

    Java before 19 gives many whole numbers beyond 2**24 (FLOAT) or 2**53 (DOUBLE) more digits, or others of the same number
    (JDK-4511638). Of these, below 8E37, the exact value is rounded to 2 digits, to 3 and so on, until the text reads back.
    """
    first, few, most = (f"{2**24}D", 6, 9) if type.root is TypeRoot.FLOAT else (f"{2**53}D", 15, 17)
    high = f"floor(`$number` / {_SPLIT}D)"
    exact = (
        f"CAST({high} AS DECIMAL(19, 0)) * {_SPLIT}BD + CAST(`$number` - CAST({high} AS DOUBLE) * {_SPLIT}D AS BIGINT)"
    )
    counts = f"if(`$short`, sequence(2, {few}), sequence({few + 1}, least({most}, `$size`)))"
    texts = f"flatten(transform({counts}, `$count` -> {_reading_back('`$count`', type)}))"
    digits = "regexp_replace(substring_index(`$text`, 'E', 1), '^(.)(.+?)0*$', '$1.$2')"
    exponent = "char_length(substring_index(`$text`, 'E', 1)) - 1 + CAST(substring_index(`$text`, 'E', -1) AS INT)"
    shown = let("$text", f"get({texts}, 0)", f"concat({digits}, 'E', {exponent})")
    chosen = let("$short", f"size({_reading_back(str(few), type)}) > 0", shown)
    shortest = let("$exact", exact, let("$size", "char_length(CAST(`$exact` AS STRING))", chosen))
    spelled = let("$number", f"abs(CAST({text} AS DOUBLE))", shortest)
    great = f"abs({text}) >= {first} AND abs({text}) < 8E37D"
    sign = f"CASE WHEN {text} < 0 THEN '-' ELSE '' END"
    return f"CASE WHEN {great} THEN concat({sign}, {spelled}) ELSE CAST({text} AS STRING) END"


def _reading_back(count: str, type: DataType) -> str:
    """The texts of so many digits, nearest first, that are the number; there is a second side for powers of two only."""
    step = f"CAST(rpad('1', `$size` - {count} + 1, '0') AS DECIMAL(38, 0))"
    rest = "2 * (`$exact` % `$step`)"
    up = f"if({rest} > `$step` OR ({rest} = `$step` AND `$whole` % 2 = 1), 1, 0)"
    texts = ", ".join(f"concat(`$whole` + {side}, 'E', `$size` - {count})" for side in ("`$up`", "1 - `$up`"))
    both = let("$step", step, let("$whole", "`$exact` DIV `$step`", let("$up", up, f"array({texts})")))
    return f"filter({both}, `$text` -> CAST(`$text` AS {spark_type(type)}) = CAST(`$number` AS {spark_type(type)}))"


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


def random_integer_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """RAND_INTEGER below a positive constant, without a seed."""
    bound = integer_literal(texts[0]) if len(texts) == 1 else None
    return f"CAST(floor(rand() * {bound}D) AS INT)" if bound is not None and bound > 0 else None
