"""What a SQL function is: one record with its type rule, its Arrow kernel and its Spark SQL text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from flowrun.api.aggregate import AggregateKernel
from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.functions.spark_rows import SparkRows

Datum: TypeAlias = "pa.Array | pa.Scalar"
"""A kernel's argument or result: an array of the batch's length, or a scalar that stands for a constant column."""


@record
class Argument:
    """What a type rule knows of one argument. `literal` is the Python value of a constant argument, else `None`;
    `is_literal` tells a constant NULL from a non-constant.
    """

    type: DataType
    literal: Any = None
    is_literal: bool = False


@record
class Signature:
    """The outcome of a type rule: what each argument must be cast to before the call, and what comes out."""

    arguments: tuple[DataType, ...]
    result: DataType


TypeRule = Callable[[Sequence[Argument]], Signature]
"""Decides argument casts and the result type. Raises `ExpressionError` with what was expected and given."""

ScalarKernel = Callable[[Sequence[Datum], int, DataType], Datum]
"""(arguments cast as the signature says, number of rows, result type) → array or scalar of the result's Arrow type."""

SparkText = Callable[[Sequence[str], Sequence[DataType], DataType], str | None]
"""(argument texts, argument types, result type) → a Spark SQL expression with the same meaning under ANSI mode, UTC,
or None if Spark has none for these arguments: the call is hosted."""


@record
class ScalarFunction:
    """One SQL function.

    Attributes:
        name: canonical upper-case name; what expression trees hold.
        aliases: other upper-case names.
        usage: e.g. `SUBSTRING(string, start[, length])`, for errors and the reference.
        doc: one sentence.
        type_rule: argument casts and result type.
        kernel: the vectorised implementation; handles NULL itself (Arrow kernels mostly propagate it).
        spark: Spark SQL text, or None: hosted on Spark.
        deterministic: same arguments, same result; else never folded and evaluated once a batch.
        fallible: may raise on some non-NULL values, so that CASE/AND/OR/COALESCE must not evaluate it on rows they guard.
    """

    name: str
    type_rule: TypeRule
    kernel: ScalarKernel
    usage: str
    doc: str
    spark: SparkText | None = None
    aliases: tuple[str, ...] = ()
    deterministic: bool = True
    fallible: bool = False


AggregateTypeRule = Callable[[Sequence[Argument]], tuple[tuple[DataType, ...], AggregateKernel]]
"""Decides argument casts and resolves the aggregate for these argument types. Raises `ExpressionError`."""


AggregateText = Callable[[SparkRows, Sequence[str], Sequence[DataType], DataType], str | None]
"""(rows that it is over, argument texts, argument types, result type) → a Spark SQL expression of the same value, or None if Spark has
none for these arguments."""


@record
class AggregateFunction:
    """One SQL aggregate. DISTINCT and FILTER are the caller's: they change which values reach the accumulators."""

    name: str
    type_rule: AggregateTypeRule
    usage: str
    doc: str
    spark: AggregateText
    aliases: tuple[str, ...] = ()
