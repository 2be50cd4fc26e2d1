"""Where a kernel failed: the expression and the first row of the batch, found by bisection if the kernel does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from flowrun.errors import DataError, InternalError
from flowrun.functions.contract import Datum
from flowrun.plan.evaluated_rows import EvaluatedRows
from flowrun.plan.expressions import Expression

Apply = Callable[[Sequence[Datum], int], Datum]
_DATA_FAULTS = (DataError, pa.ArrowInvalid, ValueError, ArithmeticError)
_SHOWN = 200


def located(apply: Apply, expression: Expression) -> Callable[[Sequence[Datum], EvaluatedRows], Datum]:
    """`apply` such that its failures are `DataError`s with the expression and the row in the batch.

    Args:
        apply: (argument values, number of rows) → value; works row by row, so that a slice of the arguments fails if its row does.
        expression: what is being evaluated, for the message.
    """

    def run(values: Sequence[Datum], evaluated: EvaluatedRows) -> Datum:
        try:
            return apply(values, evaluated.rows)
        except _DATA_FAULTS as error:
            raise _explained(error, apply, values, evaluated, expression) from error
        except pa.ArrowNotImplementedError as error:
            raise InternalError(f"{expression}: {error}") from error

    return run


def _explained(
    error: Exception, apply: Apply, values: Sequence[Datum], evaluated: EvaluatedRows, expression: Expression
) -> DataError:
    row = error.row if isinstance(error, DataError) else None
    if row is None and evaluated.rows:
        row, error = _first_failure(error, apply, values, evaluated.rows)
    cause = error.message if isinstance(error, DataError) else str(error)
    text = str(expression)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    hint = error.hint if isinstance(error, DataError) else None
    return DataError(f"{cause}, in {shown}", row=None if row is None else evaluated.origin(row), hint=hint)


def _first_failure(error: Exception, apply: Apply, values: Sequence[Datum], rows: int) -> tuple[int | None, Exception]:
    """The first row whose values alone make `apply` fail, with that row's own error."""
    low, high = 0, rows
    while high - low > 1:
        middle = (low + high) // 2
        caught = _failure(apply, values, low, middle - low)
        if caught is None:
            low = middle
        else:
            high, error = middle, caught
    final = _failure(apply, values, low, 1)
    return (low, final) if final is not None else (None, error)


def _failure(apply: Apply, values: Sequence[Datum], offset: int, length: int) -> Exception | None:
    try:
        apply([v if isinstance(v, pa.Scalar) else v.slice(offset, length) for v in values], length)
    except _DATA_FAULTS as error:
        return error
    return None
