"""Sinks that are functions of the program: `DataStream.add_sink`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from flowrun.api.sink import SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe


class SinkFunction(Protocol):
    """A sink as a class of the program: `invoke(row)` is called with each row, or `invoke_batch(batch)` with each `pa.RecordBatch`.

    It has one of the two. `open()` and `close()`, if it has them, are called once a subtask. Rows that were written before a failure are
    written again after it: let the function write what may be repeated, or use a connector that commits with checkpoints.
    """

    def invoke(self, row: dict[str, Any]) -> None:
        """Write one row."""
        ...


@record
class FunctionSink:
    """Calls a user's function with each row, or each batch.

    Attributes:
        name: of the sink, for messages.
        function: how each subtask gets its own.
        schema: columns of the rows.
    """

    name: str
    function: FunctionRecipe
    schema: Schema

    @property
    def delivery(self) -> Delivery:
        """Rows written before a failure are written again after it."""
        return Delivery.AT_LEAST_ONCE

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask, with a function of its own."""
        return _FunctionWriter(self)

    def create_committer(self) -> None:
        """Nothing to commit."""


class _FunctionWriter(ImmediateWriter):
    def __init__(self, sink: FunctionSink) -> None:
        self._function = sink.function.instance()
        self._place = f"sink '{sink.name}'"
        self._batches: Callable[[pa.RecordBatch], object] | None = getattr(self._function, "invoke_batch", None)
        self._rows: Callable[[dict[str, Any]], object] = getattr(self._function, "invoke", self._function)
        self._is_open = False

    def open(self) -> None:
        """Open the function."""
        self._is_open = True
        self._call_if_there("open")

    def write(self, batch: RecordBatch) -> None:
        """Call the function."""
        if self._batches is not None:
            try:
                self._batches(batch.columns)
            except Exception as error:
                raise self._failure(error, "invoke_batch()", None, batch.columns) from error
            return
        for position, row in enumerate(batch.columns.to_pylist()):
            try:
                self._rows(row)
            except Exception as error:
                raise self._failure(error, "the function", position, batch.columns) from error

    def close(self) -> None:
        """Close the function, if it was opened."""
        if self._is_open:
            self._is_open = False
            self._call_if_there("close")

    def _call_if_there(self, method: str) -> None:
        call = getattr(self._function, method, None)
        if not callable(call):
            return
        try:
            call()
        except FlowrunError:
            raise
        except Exception as error:
            raise DataError(f"{self._place}: {method}() raised {describe(error)}{where(error, __file__)}") from error

    def _failure(self, error: Exception, what: str, position: int | None, columns: pa.RecordBatch) -> FlowrunError:
        if isinstance(error, FlowrunError):
            return error
        shown = "" if position is None else f"; the row is {describe_row(columns, position)}"
        raised = f"{self._place}: {what} raised {describe(error)}{where(error, __file__)}{shown}"
        return DataError(
            raised, row=position, hint="handle what can go wrong in the function, or filter such rows before"
        )
