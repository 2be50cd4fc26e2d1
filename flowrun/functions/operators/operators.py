# ruff: noqa: ARG001 - kernels share one signature
"""The operators as function records: `+`, `=`, `||`, `LIKE`, `IS NULL`, `ARRAY`, `ITEM` and so on.

The binder makes calls of these for SQL's operator syntax; AND, OR, CASE, CAST, IN and field access are node classes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType
from flowrun.functions.collections import constructors
from flowrun.functions.contract import Datum, ScalarFunction, ScalarKernel, SparkText, TypeRule
from flowrun.functions.operators import arithmetic, comparison, temporal_arithmetic
from flowrun.functions.operators import spark_texts as texts
from flowrun.functions.operators import type_rules as operator_rules


def _temporal(datum: Datum) -> bool:
    return bool(pa.types.is_temporal(datum.type))


def add_kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """`+` over numbers, points in time and intervals."""
    kernel = temporal_arithmetic.plus if any(map(_temporal, arguments)) else arithmetic.add
    return kernel(arguments, rows, result)


def subtract_kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """`-` over numbers, points in time and intervals."""
    kernel = temporal_arithmetic.minus if any(map(_temporal, arguments)) else arithmetic.subtract
    return kernel(arguments, rows, result)


def multiply_kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """`*` over numbers, and of an interval and a number."""
    kernel = temporal_arithmetic.scale if result.is_interval else arithmetic.multiply
    return kernel(arguments, rows, result)


def concat_kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """`||`: NULL if either side is."""
    separator = pa.scalar("" if result.is_character else b"", result.arrow)
    return pc.binary_join_element_wise(*arguments, separator)


def _operator(
    name: str,
    rule: TypeRule,
    kernel: ScalarKernel,
    usage: str,
    doc: str,
    spark: SparkText | None,
    fallible: bool = False,
) -> ScalarFunction:
    return ScalarFunction(name, rule, kernel, usage, doc, spark, fallible=fallible)


def _compare(name: str, kernel: ScalarKernel, doc: str, spark: SparkText | None = None) -> ScalarFunction:
    ordered = name in ("<", "<=", ">", ">=")
    rule = operator_rules.comparison(name, ordered)
    return _operator(name, rule, kernel, f"a {name} b", doc, spark or texts.Comparison(name))


def _test(name: str, kernel: ScalarKernel, rule: TypeRule | None = None) -> ScalarFunction:
    meaning = name.removeprefix("IS ").replace("NOT ", "not ")
    doc = f"Whether a is {meaning}; never NULL."
    return _operator(
        name, rule or operator_rules.truth(name), kernel, f"a {name}", doc, texts.Form("({0} " + name + ")")
    )


OPERATORS: tuple[ScalarFunction, ...] = (
    _operator(
        "+",
        operator_rules.addition,
        add_kernel,
        "a + b",
        "Sum; also moves a date or time by an interval.",
        texts.Arithmetic("+"),
        True,
    ),
    _operator(
        "-",
        operator_rules.subtraction,
        subtract_kernel,
        "a - b",
        "Difference; also of dates, times and intervals.",
        texts.Arithmetic("-"),
        True,
    ),
    _operator(
        "*",
        operator_rules.multiplication,
        multiply_kernel,
        "a * b",
        "Product; also of an interval and a number.",
        texts.Arithmetic("*"),
        True,
    ),
    _operator(
        "/",
        operator_rules.division,
        arithmetic.divide,
        "a / b",
        "Quotient; of integers truncated toward zero.",
        texts.Arithmetic("/"),
        True,
    ),
    _operator(
        "%",
        operator_rules.modulo,
        arithmetic.remainder,
        "a % b",
        "Remainder, with the sign of a.",
        texts.Arithmetic("%"),
        True,
    ),
    _operator("NEGATE", operator_rules.negation, arithmetic.negate, "-a", "Unary minus.", texts.negate_text, True),
    _compare("=", comparison.equal, "Whether a and b are equal; NULL if either is NULL."),
    _compare("<>", comparison.not_equal, "Whether a and b differ; NULL if either is NULL."),
    _compare("<", comparison.less, "Whether a is less than b."),
    _compare("<=", comparison.less_or_equal, "Whether a is at most b."),
    _compare(">", comparison.greater, "Whether a is greater than b."),
    _compare(">=", comparison.greater_or_equal, "Whether a is at least b."),
    _compare(
        "IS DISTINCT FROM",
        comparison.distinct,
        "Whether a and b differ, NULLs being equal.",
        texts.Distinct(negated=False),
    ),
    _compare(
        "IS NOT DISTINCT FROM",
        comparison.not_distinct,
        "Whether a and b are equal, NULLs being equal.",
        texts.Distinct(negated=True),
    ),
    _operator(
        "NOT",
        operator_rules.truth("NOT"),
        comparison.invert,
        "NOT a",
        "Three-valued negation.",
        texts.Form("(NOT {0})"),
    ),
    _test("IS NULL", comparison.is_null, operator_rules.null_test),
    _test("IS NOT NULL", comparison.is_not_null, operator_rules.null_test),
    _test("IS TRUE", comparison.is_true),
    _test("IS NOT TRUE", comparison.is_not_true),
    _test("IS FALSE", comparison.is_false),
    _test("IS NOT FALSE", comparison.is_not_false),
    _test("IS UNKNOWN", comparison.is_null),
    _test("IS NOT UNKNOWN", comparison.is_not_null),
    _operator("||", operator_rules.concatenation, concat_kernel, "a || b", "Joins two texts.", texts.Binary("||")),
    _operator(
        "LIKE",
        operator_rules.pattern("LIKE"),
        comparison.like,
        "text LIKE pattern [ESCAPE c]",
        "Whether the text matches; % is any text, _ any character.",
        texts.like_text,
        True,
    ),
    _operator(
        "SIMILAR TO",
        operator_rules.pattern("SIMILAR TO"),
        comparison.similar,
        "text SIMILAR TO pattern [ESCAPE c]",
        "Whether the text matches the SQL regular expression.",
        texts.similar_text,
        True,
    ),
    _operator(
        "ROW",
        operator_rules.row_constructor,
        constructors.make_row,
        "ROW(a, b, …)",
        "A ROW of the values.",
        texts.row_text,
    ),
    _operator(
        "ARRAY",
        operator_rules.array_constructor,
        constructors.make_array,
        "ARRAY[a, b, …]",
        "An ARRAY of the values.",
        texts.Form("array({all})"),
    ),
    _operator(
        "MAP",
        operator_rules.map_constructor,
        constructors.make_map,
        "MAP[key, value, …]",
        "A MAP of the pairs.",
        texts.map_text,
        True,
    ),
    _operator(
        "ITEM",
        operator_rules.element_access,
        constructors.element_at,
        "array[i] or map[key]",
        "The element, or NULL if there is none; arrays count from 1.",
        texts.item_text,
    ),
)
"""Every operator; `flowrun.functions.registry` collects them."""
