"""Sources that are functions of the program: `StreamExecutionEnvironment.add_source`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.api.source_function import SourceContext, SourceFunction
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.source_function_reader import SourceFunctionReader
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, anything
from flowrun.errors import DataError, FlowrunError
from flowrun.operators.conformance import check_row, conform, rows_to_columns
from flowrun.operators.function_loading import describe, where
from flowrun.operators.function_recipe import FunctionRecipe


@record
class FunctionSource:
    """Runs a user's source function, in a thread of one subtask.

    Attributes:
        name: of the source, for messages.
        function: how the subtask gets it.
        schema: columns of its rows.
        boundedness: whether it ends by itself.
    """

    name: str
    function: FunctionRecipe
    schema: Schema
    boundedness: Boundedness

    @property
    def delivery(self) -> Delivery:
        """A function that sends positions goes on from the last one; what it then sends, only it knows."""
        return Delivery.AT_LEAST_ONCE

    @property
    def position_shape(self) -> Shape:
        """What the function sent."""
        return anything

    @property
    def enumerator_shape(self) -> Shape:
        """The one split, or nothing."""
        return split_list(self.position_shape)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """One split: the function."""
        return ListedSplitEnumerator([Split("function", {})], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """Runs the function."""
        return SourceFunctionReader(context, self._running, columns_of=self._columns_of)

    def _running(self, split: Split) -> SourceFunction:
        return _CheckedFunction(self, _source_function(self))

    def _columns_of(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        place = f"source '{self.name}'"
        for position, row in enumerate(rows):
            check_row(row, self.schema, place, position)
        return rows_to_columns(rows, self.schema, place)


class _CheckedFunction:
    """The user's function with errors that name it, and batches that have the columns of the source."""

    def __init__(self, source: FunctionSource, function: SourceFunction) -> None:
        self._source = source
        self._function = function

    def run(self, context: SourceContext) -> None:
        """Run it to its end."""
        try:
            self._function.run(_CheckedContext(self._source, context))
        except FlowrunError:
            raise
        except Exception as error:
            raise DataError(
                f"source '{self._source.name}': run() raised {describe(error)}{where(error, __file__)}",
                hint="handle what can go wrong in the function; a restart runs it again, from its last position",
            ) from error

    def cancel(self) -> None:
        """Ask it to end."""
        self._function.cancel()


class _CheckedContext:
    """The context of a source function, which knows the columns."""

    def __init__(self, source: FunctionSource, context: SourceContext) -> None:
        self._context = context
        self._schema = source.schema
        self._place = f"source '{source.name}'"
        self.collect_row = context.collect_row
        self.emit_watermark = context.emit_watermark
        self.mark_as_temporarily_idle = context.mark_as_temporarily_idle

    @property
    def restored_position(self) -> Mapping[str, JsonValue]:
        return self._context.restored_position

    @property
    def cancelled(self) -> bool:
        return self._context.cancelled

    def collect(self, columns: pa.RecordBatch, *, position: Mapping[str, JsonValue] | None = None) -> None:
        self._context.collect(conform(columns, self._schema, self._place), position=position)

    def collect_with_timestamps(
        self, columns: pa.RecordBatch, timestamps: pa.Int64Array, *, position: Mapping[str, JsonValue] | None = None
    ) -> None:
        columns = conform(columns, self._schema, self._place)
        self._context.collect_with_timestamps(columns, timestamps, position=position)


class _Generator:
    """A plain function that takes the context, as a source function that ends when it is asked to at the next row."""

    def __init__(self, function: Any) -> None:
        self.run = function

    def cancel(self) -> None:
        """`collect` raises once the source is cancelled."""


def _source_function(source: FunctionSource) -> SourceFunction:
    loaded = source.function.instance()
    if hasattr(loaded, "run") and hasattr(loaded, "cancel"):
        function: SourceFunction = loaded
        return function
    return _Generator(loaded)
