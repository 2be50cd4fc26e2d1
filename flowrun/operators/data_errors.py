"""Errors of rows: what failed, in which row, and what the row holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.elements import RecordBatch, RowKind, timestamps_from_column
from flowrun.core.schema import Schema
from flowrun.errors import DataError

T = TypeVar("T")

MAX_VALUE_CHARACTERS = 40
MAX_COLUMNS = 8


def describe_row(columns: pa.RecordBatch, row: int) -> str:
    """The values of one row, shortened for a message.

    >>> describe_row(pa.record_batch({"id": [1, 2], "name": ["a", None]}), 1)
    '{id: 2, name: NULL}'
    """
    shown = [
        f"{name}: {_describe_value(columns.column(i)[row])}"
        for i, name in enumerate(columns.schema.names[:MAX_COLUMNS])
    ]
    if columns.num_columns > MAX_COLUMNS:
        shown.append("…")
    return "{" + ", ".join(shown) + "}"


def _describe_value(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "NULL"
    text = repr(value.as_py()) if pa.types.is_string(value.type) else str(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


def evaluate(kernel: Callable[[pa.RecordBatch], T], columns: pa.RecordBatch, what: str) -> T:
    """`kernel(columns)`; what Arrow refuses becomes a `DataError`, and every `DataError` names the first row that fails alone.

    The kernel is called again on parts of the batch to find that row, so it must be free of side effects.

    Raises:
        DataError: as raised by the kernel, or made of an Arrow error; `what` begins the message.
    """
    try:
        return kernel(columns)
    except DataError as error:
        if error.row is None:
            error.row = _first_failing_row(kernel, columns)
        raise
    except (pa.ArrowException, ArithmeticError) as error:
        row = _first_failing_row(kernel, columns)
        shown = "" if row is None else f"; the row is {describe_row(columns, row)}"
        raise DataError(f"{what}: {error}{shown}", row=row) from error


def _first_failing_row(kernel: Callable[[pa.RecordBatch], T], columns: pa.RecordBatch) -> int | None:
    """The first row on which the kernel fails, by halving; None if no single row fails on its own."""
    start, length = 0, int(columns.num_rows)
    while length > 1:
        half = length // 2
        if _fails(kernel, columns.slice(start, half)):
            length = half
        else:
            start, length = start + half, length - half
    return start if length and _fails(kernel, columns.slice(start, 1)) else None


def _fails(kernel: Callable[[pa.RecordBatch], T], columns: pa.RecordBatch) -> bool:
    try:
        kernel(columns)
    except (pa.ArrowException, ArithmeticError, DataError):
        return True
    return False


def first_null(column: pa.Array) -> int:
    """Position of the first NULL of a column that has one."""
    position: int = pc.index(column.is_null(), True).as_py()
    return position


def required_times(rows: pa.RecordBatch, position: int, name: str) -> pa.Int64Array:
    """The event times in a column (TIMESTAMP or TIMESTAMP_LTZ) of rows that operator `name` gets, ms.

    Raises:
        DataError: one is NULL; names the row.
    """
    times = timestamps_from_column(rows.column(position))
    if times.null_count:
        row = first_null(times)
        column = rows.schema.names[position]
        raise DataError(
            f"'{name}': the time attribute '{column}' must not be NULL, but it is in row {row} {describe_row(rows, row)}",
            row=row,
            hint=f"drop such rows before: WHERE {column} IS NOT NULL",
        )
    return times


class NotNullCheck:
    """Refuses NULL in the NOT NULL columns of a schema; `place` (e.g. `sink 'out'`) begins the message.

    `upserts`: what deletes by key may have no more than the key.
    """

    def __init__(self, schema: Schema, place: str, *, upserts: bool = False) -> None:
        self._upserts = upserts
        self._columns = tuple((i, f.name) for i, f in enumerate(schema) if not f.nullable)
        self._place = place

    def check_rows(self, rows: RecordBatch) -> None:
        """`check` the rows that may be refused."""
        if self._upserts and rows.row_kinds is not None:
            rows = rows.filter(pc.not_equal(rows.row_kinds, int(RowKind.DELETE)))
        self.check(rows.columns)

    def check(self, columns: pa.RecordBatch) -> None:
        """Raise `DataError` for the first NULL of the first such column; costs nothing without nulls."""
        for index, name in self._columns:
            column = columns.column(index)
            if column.null_count:
                row = first_null(column)
                raise DataError(
                    f"{self._place}: column '{name}' is NOT NULL, but row {row} {describe_row(columns, row)} has no value",
                    row=row,
                    hint=f"drop such rows with a filter ({name} IS NOT NULL), give them a value (COALESCE), "
                    "or declare the column without NOT NULL",
                )
