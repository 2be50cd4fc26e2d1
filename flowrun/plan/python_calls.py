"""Users' Python scalar functions as kernels: called a row at a time, or with whole columns if they are vectorised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.function_loading import describe, where
from flowrun.operators.user_functions import load_callable
from flowrun.plan.evaluated_rows import EvaluatedRows
from flowrun.plan.expressions import PythonCall

PythonKernel: TypeAlias = Callable[[Sequence[pa.Array], EvaluatedRows], pa.Array]


def python_kernel(expression: PythonCall) -> PythonKernel:
    """(argument columns, rows) → the column of results. Loads the function: a class gives an instance of its own.

    The kernel raises `DataError` that names the function, the row, and the user's line if the function fails or gives something that is
    no value of the declared type.

    Raises:
        PipelineError: the function cannot be loaded.
    """
    function = load_callable(expression.reference, expression.search_path)
    return _vectorised(function, expression) if expression.vectorised else _row_by_row(function, expression)


def python_values(column: pa.Array, type: DataType) -> list[Any]:
    """The values of a column as users' functions get them: naive datetimes for TIMESTAMP, UTC ones for TIMESTAMP_LTZ.

    Nanoseconds are cut to microseconds, the finest that Python's datetimes hold.
    """
    if type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and type.arrow.unit == "ns":
        column = pc.cast(column, pa.timestamp("us", tz=type.arrow.tz), safe=False)
    elif type.root is TypeRoot.TIME and type.arrow == pa.time64("ns"):
        column = pc.cast(column, pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def _row_by_row(function: Callable[..., Any], expression: PythonCall) -> PythonKernel:
    result, name = expression.type.arrow, expression.name
    types = [a.type for a in expression.arguments]

    def kernel(arguments: Sequence[pa.Array], evaluated: EvaluatedRows) -> pa.Array:
        columns = [python_values(a, t) for a, t in zip(arguments, types, strict=True)]
        rows = zip(*columns, strict=True) if columns else (() for _ in range(evaluated.rows))
        values: list[Any] = []
        try:
            for row in rows:
                values.append(function(*row))  # noqa: PERF401 - the row that failed is the next one
        except Exception as error:
            raise _failed(name, error, evaluated.origin(len(values))) from error
        try:
            return pa.array(values, result)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _unfit(expression, values, evaluated) from error

    return kernel


def _vectorised(function: Callable[..., Any], expression: PythonCall) -> PythonKernel:
    result, name = expression.type.arrow, expression.name

    def kernel(arguments: Sequence[pa.Array], evaluated: EvaluatedRows) -> pa.Array:
        try:
            value = function(*arguments)
        except FlowrunError:
            raise
        except Exception as error:
            raise _failed(name, error, None) from error
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, evaluated.rows)
        elif not isinstance(value, pa.Array):
            try:
                value = pa.array(value, result)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                what = type(value).__name__
                raise DataError(
                    f"function {name} gave a {what}, expected an Arrow array of {expression.type}"
                ) from error
        if len(value) != evaluated.rows:
            raise DataError(
                f"function {name} gave {len(value)} values for {evaluated.rows} rows", hint="give one a row"
            )
        try:
            return value if value.type == result else pc.cast(value, result)
        except pa.ArrowException as error:
            raise DataError(f"function {name} gave {value.type}, expected {expression.type}: {error}") from error

    return kernel


def _failed(name: str, error: Exception, row: int | None) -> DataError:
    return DataError(f"function {name} failed: {describe(error)}{where(error, __file__)}", row=row)


def _unfit(expression: PythonCall, values: Sequence[Any], evaluated: EvaluatedRows) -> DataError:
    """What says which value is none of the declared type."""
    for row, value in enumerate(values):
        try:
            pa.array([value], expression.type.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            shown = repr(value)
            shown = shown if len(shown) <= 80 else shown[:79] + "…"
            return DataError(
                f"function {expression.name} gave {shown}, expected {expression.type}", row=evaluated.origin(row),
                hint="declare what it gives: @flowrun.udf(result=…)",
            )  # fmt: skip
    return DataError(f"function {expression.name} gave values of several kinds, expected {expression.type}")
