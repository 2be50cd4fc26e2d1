"""Users' Python scalar functions as kernels: called a row at a time, or with whole columns if they are vectorised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from flowrun.api.signatures import signature_of
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.user_functions import load_callable
from flowrun.operators.user_values import UNFIT, Intake, array_of, column_of, misfit
from flowrun.plan.evaluated_rows import EvaluatedRows
from flowrun.plan.expressions import PythonCall

PythonKernel: TypeAlias = Callable[[Sequence[pa.Array], EvaluatedRows], pa.Array]
_FAILURES = (Exception, SystemExit)
"""What a function may raise: one that calls `sys.exit` ends the job as any other does that fails."""
_HANDLE = "handle such input in the function, or drop it with a filter before"


def python_kernel(expression: PythonCall) -> PythonKernel:
    """(argument columns, rows) → the column of results. Loads the function: a class gives an instance of the subtask's own.

    The kernel raises `DataError` that names the function, the row with its values, and the user's line if the function fails or gives
    something that is no value of the declared type. A vectorised function that fails is called again on parts of the rows to find the row.

    Raises:
        PipelineError: the function cannot be loaded.
        DataError: it cannot be opened.
    """
    function = load_callable(expression.reference, expression.search_path)
    intake = Intake(signature_of(function), len(expression.arguments), vectorised=expression.vectorised)
    called = _vectorised if expression.vectorised else _row_by_row
    return called(function, expression, intake)


def _row_by_row(function: Callable[..., Any], expression: PythonCall, intake: Intake) -> PythonKernel:
    what = f"function {expression.name}"

    def kernel(arguments: Sequence[pa.Array], evaluated: EvaluatedRows) -> pa.Array:
        columns = intake.values(arguments)
        rows = zip(*columns, strict=True) if columns else (() for _ in range(evaluated.rows))
        values: list[Any] = []
        try:
            for row in rows:
                values.append(function(*row))  # noqa: PERF401 - the row that failed is the next one
        except FlowrunError:
            raise
        except _FAILURES as error:
            place = len(values)
            shown = _given(intake, arguments, evaluated, place)
            hint = _null_hint(intake, arguments, place) or _HANDLE
            raise DataError(
                f"{what} failed: {describe(error)}{where(error, __file__)}{shown}",
                row=evaluated.origin(place),
                hint=hint,
            ) from error
        try:
            return array_of(values, expression.type)
        except UNFIT as error:
            wrong = misfit(values, expression.type)
            if wrong is None:
                raise DataError(f"{what} gave values of several kinds, expected {expression.type}") from error
            place, text = wrong
            raise DataError(
                f"{what} gave {text}, expected {expression.type}{_given(intake, arguments, evaluated, place)}",
                row=evaluated.origin(place),
                hint="declare what it gives: by its annotation, or @flowrun.udf(result=…)",
            ) from error

    return kernel


def _vectorised(function: Callable[..., Any], expression: PythonCall, intake: Intake) -> PythonKernel:
    what = f"function {expression.name}"

    def called(arguments: Sequence[pa.Array], rows: int) -> pa.Array:
        taken = intake.columns(arguments, rows)
        if not taken.rows:
            return pa.nulls(rows, expression.type.arrow)
        return taken.spread(column_of(function(*taken.columns), expression.type, taken.rows, what), rows)

    def kernel(arguments: Sequence[pa.Array], evaluated: EvaluatedRows) -> pa.Array:
        try:
            return called(arguments, evaluated.rows)
        except _FAILURES as error:
            if isinstance(error, FlowrunError) and not error.message.startswith(what):
                raise  # what the function itself says so needs no other words
            row, cause = _first_failure(called, arguments, evaluated.rows, error)
            raise _batch_failure(what, intake, arguments, evaluated, row, cause) from cause

    return kernel


def _first_failure(
    called: Callable[[Sequence[pa.Array], int], pa.Array],
    arguments: Sequence[pa.Array],
    rows: int,
    error: BaseException,
) -> tuple[int | None, BaseException]:
    """The first row that fails alone, with its own error, by halving; (None, `error`) if none does."""

    def failure(start: int, length: int) -> BaseException | None:
        try:
            called([a.slice(start, length) for a in arguments], length)
        except _FAILURES as caught:
            return caught
        return None

    start, length = 0, rows
    while length > 1:
        half = length // 2
        if failure(start, half) is not None:
            length = half
        else:
            start, length = start + half, length - half
    alone = failure(start, length) if length else None
    return (None, error) if alone is None else (start, alone)


def _batch_failure(
    what: str,
    intake: Intake,
    arguments: Sequence[pa.Array],
    evaluated: EvaluatedRows,
    row: int | None,
    error: BaseException,
) -> DataError:
    """What says that a vectorised function failed: on which row, or if no row fails alone, on which rows."""
    if isinstance(error, DataError):
        told, hint = error.message, error.hint
    else:
        told, hint = f"{what} failed: {describe(error)}{where(error, __file__)}", _HANDLE
    if row is None and not evaluated.rows:
        return DataError(f"{told}; it was given no rows", hint=hint)
    if row is None:
        span = f"rows {evaluated.origin(0)} to {evaluated.origin(evaluated.rows - 1)} of the batch"
        first = _given(intake, arguments, evaluated, 0)
        return DataError(
            f"{told}; it was called with {span}, none of which fails alone; of the first{first[1:]}", hint=hint
        )
    shown = _given(intake, arguments, evaluated, row)
    return DataError(f"{told}{shown}", row=evaluated.origin(row), hint=_null_hint(intake, arguments, row) or hint)


def _given(intake: Intake, arguments: Sequence[pa.Array], evaluated: EvaluatedRows, row: int) -> str:
    """The arguments at a row, and the row that they are of."""
    of = describe_row(evaluated.batch, evaluated.origin(row))
    if not arguments:
        return f"; the row is {of}"
    names = [*intake.names, *(f"argument {i + 1}" for i in range(len(intake.names), len(arguments)))]
    given = pa.RecordBatch.from_arrays([a.slice(row, 1) for a in arguments], names)
    return f"; it was given {describe_row(given, 0)}, the row is {of}"


def _null_hint(intake: Intake, arguments: Sequence[pa.Array], row: int) -> str | None:
    """What to do about an argument that is NULL although its annotation does not allow that; None: there is none."""
    for name, nullable, argument in zip(intake.names, intake.nullable, arguments, strict=False):
        if not nullable and not argument[row].is_valid:
            return f"'{name}' is NULL, which its annotation does not allow: annotate it … | None and handle None, or drop such rows before"
    return None
