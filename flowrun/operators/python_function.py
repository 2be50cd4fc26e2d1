"""Users' Python functions as operators: on whole batches, or on rows.

What a function takes and returns:

| `flat` | `row` | takes | returns |
|---|---|---|---|
| no | no | `pa.RecordBatch` | `pa.RecordBatch` with the same number of rows, row i for row i |
| yes | no | `pa.RecordBatch` | `pa.RecordBatch`, or (`pa.RecordBatch`, parents): for each row the position of the row it came from |
| no | yes | `dict` | `dict` |
| yes | yes | `dict` | an iterable of `dict`s |

Rows keep the event time (and change kind) of the row that they came from. A flat batch function therefore returns parents when the
stream has event time, unless it returns as many rows as it got: then row i counts as made of row i. A `pa.Table` does instead of a
`pa.RecordBatch`. Columns may come in any order; their types are cast if no value changes. Objects and classes may have `open()`
and `close()`, called once a subtask.

A function with a second parameter called `context` is given one (`flowrun.operators.map_context`): time, and
`context.side_output(name, row)` for declared side outputs, or `context.side_output(name, batch, parents)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.core.row_errors import RowFault
from flowrun.errors import DataError, FlowrunError, PipelineError
from flowrun.operators.conformance import check_row, conform, rows_to_columns
from flowrun.operators.data_errors import describe_row
from flowrun.operators.factories import PythonFunctionFactory
from flowrun.operators.function_loading import describe, takes_context, where
from flowrun.operators.kept_output import KeptRows, send_kept
from flowrun.operators.row_failures import RowOperator

if TYPE_CHECKING:
    from flowrun.operators.map_context import MapContext


class PythonFunctionOperator(RowOperator):
    """The common part: loading, opening, closing, and errors that name the function."""

    def __init__(self, factory: PythonFunctionFactory) -> None:
        super().__init__(factory.errors)
        self._factory = factory
        self._place = f"function '{factory.function.reference}' of '{factory.name}'"
        self._loaded: Callable[..., Any] | None = None
        self._function: Callable[[Any], Any] | None = None
        self._context: MapContext | None = None
        self._opened = False

    def open(self) -> None:
        """Import the function and open it."""
        super().open()
        self._function = self._factory.function.load_function(context=True)
        self._opened = True
        self._give_context(self._function)
        opener = getattr(self._loaded, "open", None)
        if callable(opener):
            try:
                opener()
            except Exception as error:
                raise DataError(f"{self._place}: open() raised {describe(error)}{where(error, __file__)}") from error

    def close(self) -> None:
        """Close the function, if it was opened."""
        if self._opened:
            self._opened = False
            closer = getattr(self._loaded, "close", None)
            if callable(closer):
                try:
                    closer()
                except Exception as error:
                    raise DataError(
                        f"{self._place}: close() raised {describe(error)}{where(error, __file__)}"
                    ) from error

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Call the function and send what it returns."""
        if batch.num_rows == 0:
            self.output.emit(batch.only_watermarks(self._factory.output_schema.arrow))
            return
        if self._context is None:
            for _, processed in self.failures.survivors(batch, RowFault.FUNCTION, self._processed):
                self.output.emit(processed)
            return
        for _, (processed, beside) in self.failures.survivors(batch, RowFault.FUNCTION, self._with_side_outputs):
            self.output.emit(processed)
            send_kept(beside, self.output)

    @property
    def passes_watermarks(self) -> bool:
        """As rows of side outputs have no place among the watermarks between the rows, functions with a context get these one by one."""
        return super().passes_watermarks and self._context is None

    @property
    def processing_time_ms(self) -> int:
        """What the clock shows, ms."""
        return self.context.processing_time.now_ms()

    def _give_context(self, loaded: Callable[..., Any]) -> None:
        """Have the function called with a context if it takes one."""
        self._loaded = self._function = loaded
        factory = self._factory
        if not takes_context(loaded):
            if factory.side_outputs:
                raise PipelineError.of(
                    f"{self._place} has side outputs, but no second parameter 'context' by which it could send to them",
                    "write def function(row, context), and context.side_output(name, row)",
                )
            return
        # Imported here: few functions have a context, and pipelines with functions begin faster without it.
        from flowrun.operators.map_context import BatchMapContext, RowMapContext

        kind = RowMapContext if factory.row else BatchMapContext
        context = self._context = kind(self, factory.side_outputs, self._place)
        self._function = lambda given: loaded(given, context)

    def _with_side_outputs(self, batch: RecordBatch) -> tuple[RecordBatch, KeptRows]:
        assert self._context is not None
        self._context.begin(batch)
        return self._processed(batch), self._context.taken()

    def _processed(self, batch: RecordBatch) -> RecordBatch:
        raise NotImplementedError

    def _call(self, batch: RecordBatch) -> Any:
        assert self._function is not None
        try:
            return self._function(batch.columns)
        except FlowrunError:
            raise
        except Exception as error:
            shown = f"; the batch has {batch.num_rows} rows and begins with {describe_row(batch.columns, 0)}"
            raise self._raised(error, None, self._place, shown) from error

    @staticmethod
    def _raised(error: Exception, row: int | None, place: str, shown: str) -> DataError:
        return DataError(
            f"{place} raised {describe(error)}{where(error, __file__)}{shown}",
            row=row,
            hint="handle such input in the function, or drop it with a filter before",
        )

    def _columns(self, returned: Any, expected: str) -> pa.RecordBatch:
        if isinstance(returned, pa.Table):
            batches = returned.combine_chunks().to_batches()
            returned = batches[0] if batches else pa.RecordBatch.from_pylist([], returned.schema)
        if not isinstance(returned, pa.RecordBatch):
            raise DataError(
                f"{self._place} must return {expected}, got {_kind(returned)}",
                hint="build it with pa.RecordBatch.from_pydict({...}); for functions on single rows set row: true",
            )
        return conform(returned, self._factory.output_schema, self._place)


class _BatchFunction(PythonFunctionOperator):
    """Batch in, batch out, row i for row i."""

    def _processed(self, batch: RecordBatch) -> RecordBatch:
        returned = self._call(batch)
        columns = self._columns(returned, "a pa.RecordBatch")
        if columns.num_rows != batch.num_rows:
            raise DataError(
                f"{self._place} got {batch.num_rows} rows and returned {columns.num_rows}",
                hint="a map returns one row for each row; use flat_map to change their number",
            )
        return batch.with_columns(columns)


class _FlatBatchFunction(PythonFunctionOperator):
    """Batch in, any rows out."""

    def _processed(self, batch: RecordBatch) -> RecordBatch:
        returned = self._call(batch)
        parents: Any = None
        if isinstance(returned, tuple) and len(returned) == 2:
            returned, parents = returned
        columns = self._columns(returned, "a pa.RecordBatch or (pa.RecordBatch, parents)")
        if parents is not None:
            return batch.children(columns, self._parents(parents, columns.num_rows, batch.num_rows))
        if columns.num_rows == batch.num_rows:
            return batch.with_columns(columns)
        if batch.timestamps is None and batch.row_kinds is None:
            return RecordBatch(columns)  # no event time, so no watermarks between the rows
        raise DataError(
            f"{self._place} got {batch.num_rows} rows with event time and returned {columns.num_rows} rows "
            "without saying which rows they came from",
            hint="return (batch, parents), where parents[i] is the position of the input row that made output row i",
        )

    def _parents(self, parents: Any, children: int, rows: int) -> pa.Array:
        positions = np.asarray(parents)
        if len(positions) == 0:
            positions = positions.astype(np.int64)
        if positions.ndim != 1 or positions.dtype.kind not in "iu" or len(positions) != children:
            raise DataError(
                f"{self._place}: parents must be {children} integers, one for each returned row, "
                f"got {positions.dtype} of shape {positions.shape}"
            )
        if children and (int(positions.min()) < 0 or int(positions.max()) >= rows):
            wrong = int(np.flatnonzero((positions < 0) | (positions >= rows))[0])
            raise DataError(
                f"{self._place}: parents[{wrong}] is {positions[wrong]}, but the input rows are 0 to {rows - 1}"
            )
        return pa.array(positions)


class _RowFunction(PythonFunctionOperator):
    """One dict in, one dict out."""

    def _processed(self, batch: RecordBatch) -> RecordBatch:
        made = []
        for row, value in enumerate(batch.columns.to_pylist()):
            returned = self._call_row(batch, row, value)
            self._check_row(returned, row, "a dict")
            made.append(returned)
        return batch.with_columns(rows_to_columns(made, self._factory.output_schema, self._place))

    def _call_row(self, batch: RecordBatch, row: int, value: dict[str, Any]) -> Any:
        assert self._function is not None
        if self._context is not None:
            self._context.at(row)
        try:
            return self._function(value)
        except FlowrunError:
            raise
        except Exception as error:
            raise self._row_error(error, batch, row) from error

    def _row_error(self, error: Exception, batch: RecordBatch, row: int) -> DataError:
        return self._raised(error, row, self._place, f"; the row is {describe_row(batch.columns, row)}")

    def _check_row(self, returned: Any, row: int, expected: str) -> None:
        if not isinstance(returned, Mapping):
            raise DataError(f"{self._place} must return {expected}, got {_kind(returned)}", row=row)
        check_row(returned, self._factory.output_schema, self._place, row)


class _FlatRowFunction(_RowFunction):
    """One dict in, any number of dicts out."""

    def _processed(self, batch: RecordBatch) -> RecordBatch:
        made: list[Mapping[str, Any]] = []
        parents: list[int] = []
        expected = "an iterable of dicts"
        for row, value in enumerate(batch.columns.to_pylist()):
            returned = self._call_row(batch, row, value)
            if not isinstance(returned, Iterable) or isinstance(returned, (Mapping, str, bytes)):
                raise DataError(f"{self._place} must return {expected}, got {_kind(returned)}", row=row)
            for child in self._drawn(returned, batch, row):
                self._check_row(child, row, expected)
                made.append(child)
                parents.append(row)
        try:
            columns = rows_to_columns(made, self._factory.output_schema, self._place)
        except DataError as error:
            error.row = None if error.row is None else parents[error.row]
            raise
        return batch.children(columns, pa.array(parents, pa.int64()))

    def _drawn(self, returned: Iterable[Any], batch: RecordBatch, row: int) -> list[Any]:
        """A generator runs here, so it may raise here."""
        try:
            return list(returned)
        except FlowrunError:
            raise
        except Exception as error:
            raise self._row_error(error, batch, row) from error


def _kind(value: object) -> str:
    return "nothing (None)" if value is None else f"{type(value).__module__}.{type(value).__qualname__}"


def python_function_operator(factory: PythonFunctionFactory) -> PythonFunctionOperator:
    """The operator for the form of the function; imports nothing yet."""
    if not factory.row:
        return _FlatBatchFunction(factory) if factory.flat else _BatchFunction(factory)
    return _FlatRowFunction(factory) if factory.flat else _RowFunction(factory)
