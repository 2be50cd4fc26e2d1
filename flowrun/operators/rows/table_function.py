"""Every row once for each row that a user's Python function gives for it: LATERAL TABLE(f(…)).

A function of rows is called with the values of one row and yields (or returns a list of) rows: tuples, dicts, dataclasses or
`NamedTuple`s; None gives none, and a function of one column may give lone values. A vectorised one is called with a column an argument
and returns (rows, parents): `parents[i]` is the position of the row that gave row i, and rows are a `pa.RecordBatch`, `pa.Table`, or a
DataFrame of pandas or polars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import GeneratorType
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.annotated_values import fields_of
from flowrun.api.annotations import AnnotationError, columns_of_annotation
from flowrun.api.functions import ColumnsKernel
from flowrun.api.signatures import Signature, signature_of
from flowrun.api.user_functions import FunctionDeclaration, declaration_of
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.row_errors import RowFault
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.conformance import conform, values_to_columns
from flowrun.operators.data_errors import describe_row, evaluate
from flowrun.operators.function_loading import describe, load_attribute, where
from flowrun.operators.row_failures import RowFailures
from flowrun.operators.rows.children import with_columns_of
from flowrun.operators.rows.factories import TableFunctionFactory
from flowrun.operators.user_functions import load_callable
from flowrun.operators.user_values import Intake, row_batch


class TableFunctionOperator(AbstractOperator):
    """Calls a table function and puts its rows behind those that they are for."""

    def __init__(self, factory: TableFunctionFactory) -> None:
        self._factory = factory
        self._place = f"table function '{factory.reference}' of '{factory.name}'"
        self._function: Callable[..., Any] | None = None
        self._arguments: ColumnsKernel | None = None
        self._intake: Intake | None = None
        self._vectorised = False
        self._names = tuple(factory.columns.names)
        self._orders: list[tuple[str, ...]] = [self._names]
        self._failures: RowFailures | None = None

    def open(self) -> None:
        """Import the function and compile its arguments."""
        factory = self._factory
        self._failures = RowFailures(factory.errors, self.context, self.output)
        self._function = load_callable(factory.reference, factory.search_path)
        declared = declaration_of(load_attribute(factory.reference, factory.search_path))
        signature = signature_of(self._function)
        self._orders += _declared_orders(declared, signature, len(factory.columns))
        self._vectorised = signature.is_vectorised or (declared is not None and declared.vectorised)
        self._intake = Intake(signature, len(factory.arguments.schema), vectorised=self._vectorised)
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
        assert self._intake is not None
        taken = self._intake.columns(arguments.columns, batch.num_rows)
        try:
            returned = self._function(*taken.columns)
        except FlowrunError:
            raise
        except Exception as error:
            shown = f"; the batch has {batch.num_rows} rows and begins with {describe_row(batch.columns, 0)}"
            raise self._failed(error, None, shown) from error
        rows = row_batch(returned[0]) if isinstance(returned, tuple) and len(returned) == 2 else None
        if rows is None:
            raise DataError(
                f"{self._place} must return (rows, parents), got {type(returned).__name__}",
                hint="rows are a pa.RecordBatch or a DataFrame, and parents[i] is the position of the row that gave row i",
            )
        if rows.num_columns != len(self._names):
            names = ", ".join(self._names)
            raise DataError(f"{self._place} returned {rows.num_columns} columns, expected {names}")
        # by position: in the output the declared names may have been changed to be unique
        made = conform(rows.rename_columns(list(self._names)), self._factory.columns, self._place)
        parents = self._parents(returned[1], made.num_rows, taken.rows)
        return made, parents if taken.positions is None else taken.positions[parents]

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
        assert self._intake is not None
        lists = self._intake.values(arguments.columns)
        calls = zip(*lists, strict=True) if lists else iter([()] * batch.num_rows)
        width, values = len(self._names), self._values
        made: list[Sequence[Any]] = []
        parents: list[int] = []
        for row, given in enumerate(calls):
            try:
                returned = self._function(*given)
                children = [] if returned is None else list(self._iterable(returned, row))
            except FlowrunError:
                raise
            except Exception as error:
                raise self._failed(error, row, f"; the row is {describe_row(batch.columns, row)}") from error
            made += [c if isinstance(c, tuple) and len(c) == width else values(c, row) for c in children]
            parents += [row] * len(children)
        try:
            columns = values_to_columns(made, self._factory.columns, self._place)
        except DataError as error:
            error.row = None if error.row is None else parents[error.row]
            raise
        return columns, np.array(parents, np.int64)

    def _iterable(self, returned: Any, row: int) -> Iterable[Any]:
        if isinstance(returned, list | GeneratorType):
            return returned
        if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping):
            raise DataError(
                f"{self._place} gave a {type(returned).__name__}, expected rows",
                row=row,
                hint="yield one tuple a row, or return a list of them",
            )
        return returned

    def _values(self, child: Any, row: int) -> Sequence[Any]:
        names = self._names
        values: Sequence[Any] | None = None
        if isinstance(child, tuple | list) and len(child) == len(names):
            values = child if len(names) > 1 or isinstance(child, tuple) else None
        elif not isinstance(child, tuple | list) and (found := fields_of(child, names)) is not None:
            values = self._by_name(found)
        if values is None and len(names) == 1:
            values = (child,)
        if values is None:
            raise DataError(
                f"{self._place} gave the row {child!r}, expected {len(names)} values: {', '.join(names)}",
                row=row,
                hint="yield a tuple with one value a column, or a dict, dataclass or NamedTuple with their names",
            )
        return values

    def _by_name(self, found: Mapping[str, Any]) -> list[Any] | None:
        """The values of a record in the order of the columns, whose names may have been changed to be unique; None: it has others."""
        order = next((names for names in self._orders if found.keys() == set(names)), None)
        return None if order is None else [found[n] for n in order]

    def _failed(self, error: Exception, row: int | None, shown: str) -> DataError:
        return DataError(
            f"{self._place} raised {describe(error)}{where(error, __file__)}{shown}",
            row=row,
            hint="handle such input in the function, or drop it with a filter before",
        )


def _declared_orders(
    declared: FunctionDeclaration | None, signature: Signature, columns: int
) -> Iterator[tuple[str, ...]]:
    """The names of the columns as the function's decorators and its annotation have them."""
    said = () if declared is None else (declared.result, *(o.result for o in declared.others))
    with suppress(AnnotationError):  # the decorator may say what annotations cannot
        said = (*said, columns_of_annotation(signature.result.annotation))
    yield from (rows.names for rows in said if rows is not None and len(rows.names) == columns)


def _with_missing(columns: list[pa.Array], parents: Integers, rows: int) -> tuple[list[pa.Array], Integers]:
    """The rows, and one of NULLs for each parent without any, in order of their parents."""
    childless = np.setdiff1d(np.arange(rows), parents)
    if not len(childless):
        return columns, parents
    whole = np.concatenate([parents, childless])
    order = np.argsort(whole, kind="stable")
    at = pa.array(order, mask=order >= len(parents))
    return [c.take(at) for c in columns], whole[order]
