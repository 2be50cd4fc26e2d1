"""Every row once for each row that a user's Python function gives for it: LATERAL TABLE(f(…)).

A function of rows is called with the values of one row and yields (or returns a list of) tuples, one a row; None gives none, and a
function of one column may give lone values. A vectorised one is called with an Arrow array an argument and returns
(`pa.RecordBatch`, parents): `parents[i]` is the position of the row that gave row i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.functions import ColumnsKernel
from flowrun.api.user_functions import declaration_of
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.row_errors import RowFault
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.conformance import conform, rows_to_columns
from flowrun.operators.data_errors import describe_row, evaluate
from flowrun.operators.function_loading import describe, load_attribute, where
from flowrun.operators.row_failures import RowFailures
from flowrun.operators.rows.children import with_columns_of
from flowrun.operators.rows.factories import TableFunctionFactory
from flowrun.operators.user_functions import load_callable


class TableFunctionOperator(AbstractOperator):
    """Calls a table function and puts its rows behind those that they are for."""

    def __init__(self, factory: TableFunctionFactory) -> None:
        self._factory = factory
        self._place = f"table function '{factory.reference}' of '{factory.name}'"
        self._function: Callable[..., Any] | None = None
        self._arguments: ColumnsKernel | None = None
        self._vectorised = False
        self._failures: RowFailures | None = None

    def open(self) -> None:
        """Import the function and compile its arguments."""
        factory = self._factory
        self._failures = RowFailures(factory.errors, self.context, self.output)
        self._function = load_callable(factory.reference, factory.search_path)
        declared = declaration_of(load_attribute(factory.reference, factory.search_path))
        self._vectorised = declared is not None and declared.vectorised
        self._arguments = factory.arguments.compile()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Call the function and send the rows that it gives, each behind its row."""
        assert self._failures is not None
        for _, rows in self._failures.survivors(batch, RowFault.FUNCTION, self._given):
            if rows is not None:
                self.output.emit(rows)

    def _given(self, batch: RecordBatch) -> RecordBatch | None:
        """What the function gives for a batch, each row behind its own; None if that is nothing."""
        assert self._arguments is not None
        arguments = evaluate(self._arguments, batch.columns, f"arguments of {self._place}")
        made, parents = self._called(arguments, batch) if self._vectorised else self._called_by_row(arguments, batch)
        columns = made.columns
        if self._factory.outer:
            columns, parents = _with_missing(columns, parents, batch.num_rows)
        if not len(parents):
            return None
        return with_columns_of(batch, pa.array(parents), columns, self._factory.output_schema)

    # ---- calls

    def _called(self, arguments: pa.RecordBatch, batch: RecordBatch) -> tuple[pa.RecordBatch, Integers]:
        assert self._function is not None
        try:
            returned = self._function(*arguments.columns)
        except FlowrunError:
            raise
        except Exception as error:
            raise self._failed(error, None, "") from error
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], pa.RecordBatch)):
            raise DataError(
                f"{self._place} must return (pa.RecordBatch, parents), got {type(returned).__name__}",
                hint="parents[i] is the position of the row that gave row i",
            )
        made = conform(returned[0].rename_columns(self._names(returned[0])), self._factory.columns, self._place)
        return made, self._parents(returned[1], made.num_rows, batch.num_rows)

    def _names(self, returned: pa.RecordBatch) -> list[str]:
        """The declared names by position: in the output they may have been changed to be unique."""
        names = list(self._factory.columns.names)
        if returned.num_columns != len(names):
            raise DataError(f"{self._place} returned {returned.num_columns} columns, expected {', '.join(names)}")
        return names

    def _parents(self, given: Any, children: int, rows: int) -> Integers:
        parents = np.asarray(given)
        if len(parents) == 0:
            parents = parents.astype(np.int64)
        if parents.ndim != 1 or parents.dtype.kind not in "iu" or len(parents) != children:
            raise DataError(
                f"{self._place}: parents must be {children} integers, one for each row, got {parents.dtype} {parents.shape}"
            )
        if children and (int(parents.min()) < 0 or int(parents.max()) >= rows):
            raise DataError(f"{self._place}: parents must be positions of the rows, which are 0 to {rows - 1}")
        return parents.astype(np.int64)

    def _called_by_row(self, arguments: pa.RecordBatch, batch: RecordBatch) -> tuple[pa.RecordBatch, Integers]:
        assert self._function is not None
        names = self._factory.columns.names
        lists = [_python_values(c) for c in arguments.columns]
        made: list[Mapping[str, Any]] = []
        parents: list[int] = []
        for row in range(batch.num_rows):
            try:
                returned = self._function(*(values[row] for values in lists))
                children = [] if returned is None else list(self._iterable(returned, row))
            except FlowrunError:
                raise
            except Exception as error:
                raise self._failed(error, row, f"; the row is {describe_row(batch.columns, row)}") from error
            made += [dict(zip(names, self._values(c, row), strict=True)) for c in children]
            parents += [row] * len(children)
        try:
            columns = rows_to_columns(made, self._factory.columns, self._place)
        except DataError as error:
            error.row = None if error.row is None else parents[error.row]
            raise
        return columns, np.array(parents, np.int64)

    def _iterable(self, returned: Any, row: int) -> Iterable[Any]:
        if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping):
            raise DataError(
                f"{self._place} gave a {type(returned).__name__}, expected rows",
                row=row,
                hint="yield one tuple a row, or return a list of them",
            )
        return returned

    def _values(self, child: Any, row: int) -> tuple[Any, ...]:
        names = self._factory.columns.names
        if (
            isinstance(child, tuple | list)
            and len(child) == len(names)
            and (len(names) > 1 or isinstance(child, tuple))
        ):
            return tuple(child)
        if len(names) == 1:
            return (child,)
        raise DataError(
            f"{self._place} gave the row {child!r}, expected {len(names)} values: {', '.join(names)}",
            row=row,
            hint="yield a tuple with one value a column",
        )

    def _failed(self, error: Exception, row: int | None, shown: str) -> DataError:
        return DataError(
            f"{self._place} raised {describe(error)}{where(error, __file__)}{shown}",
            row=row,
            hint="handle such input in the function, or drop it with a filter before",
        )


def _python_values(column: pa.Array) -> list[Any]:
    """Values as users' functions get them: nanoseconds are cut to microseconds, the finest that Python's datetimes hold."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False)
    elif column.type == pa.time64("ns"):
        column = pc.cast(column, pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def _with_missing(columns: list[pa.Array], parents: Integers, rows: int) -> tuple[list[pa.Array], Integers]:
    """The rows, and one of NULLs for each parent without any, in order of their parents."""
    childless = np.setdiff1d(np.arange(rows), parents)
    if not len(childless):
        return columns, parents
    whole = np.concatenate([parents, childless])
    order = np.argsort(whole, kind="stable")
    at = pa.array(order, mask=order >= len(parents))
    return [c.take(at) for c in columns], whole[order]
