"""Specs of the operators that sources, sinks, projections, splits and Python functions become, and of those of iterations."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from flowrun.api.functions import ColumnsFunction, PredicateFunction
from flowrun.api.operator import (
    ChainingStrategy,
    OperatorSpec,
    OutputTag,
)
from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.core.constraints import SinkConstraints
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, LetterLimit, RowErrors, RowFault
from flowrun.core.schema import Schema
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.kept_rows import AGE, KEPT_ROWS, kept_rows_of
from flowrun.operators.row_tests import RowTest
from flowrun.operators.watermark_strategy import WatermarkGeneration, WatermarkStrategy

DEFAULT_BATCH_ROWS = 131_072


@record
class SourceOperatorFactory(OperatorSpec):
    """Operators that read `source`.

    Attributes:
        strategy: event time and watermarks; its expressions read the physical columns. None: as the source says, if it does.
        projection: computed columns (and the choice of physical ones), evaluated on what was read; None: rows as read.
        batch_rows: how many rows a reader should put into a batch.
        name: the user's name of the source, for messages.
        errors: what becomes of rows without event time, with NULL where that must not be, or of which an expression fails.
        decoding: what becomes of records that are no rows of the schema, if the connector leaves it to the operator (DEAD_LETTER); else
            that is its own business.
        letter_limit: how many records each subtask may put aside.
    """

    source: Source
    strategy: WatermarkStrategy | None = None
    projection: ColumnsFunction | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    name: str = "source"
    errors: RowErrors = FAIL
    decoding: RowErrors = FAIL
    letter_limit: LetterLimit = LetterLimit()

    chaining = ChainingStrategy.HEAD  # heads a chain; it has no input to be chained to


@record
class MeetingRows:
    """How rows of a query meet in a sink, for people.

    Attributes:
        key: names of the columns by which the sink keeps one row.
        row_key: by which the rows differ instead, empty if nothing is known to; None: they differ by `key`, or the sink has none.
        superseded: why rows come that stand for earlier ones, which the sink keeps; empty: none do.
    """

    key: tuple[str, ...] = ()
    row_key: tuple[str, ...] | None = None
    superseded: str = ""


@record
class SinkOperatorFactory(OperatorSpec):
    """Operators that write to `sink`.

    Attributes:
        sink: that is written to.
        name: the user's, for messages.
        constraints: how those of its columns are enforced.
        meeting: what users are to know of rows with one key.
    """

    sink: Sink
    name: str = "sink"
    constraints: SinkConstraints = SinkConstraints()
    meeting: MeetingRows = MeetingRows()

    uses_event_time = False

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The rows that a sink keeps by key."""
        rows = kept_rows_of(self.sink)
        return {} if rows is None else {KEPT_ROWS: rows.schema}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of that table hold, beyond the sink's own."""
        return {} if kept_rows_of(self.sink) is None else {KEPT_ROWS: {AGE: "order of arrival"}}


@record
class CalcFactory(OperatorSpec):
    """Operators that keep the rows of which `condition` is true, then compute `projection` over them.

    Rows keep their event times and kinds. Without either the rows pass unchanged.

    Attributes:
        errors: what becomes of rows of which an expression fails.
        required: positions of columns that must not be NULL; rows where one is are treated as `errors` says.
        fault: what such rows are called.
        tests: of rows that do not pass one of them, the same holds; they are looked at in this order.
    """

    condition: PredicateFunction | None = None
    projection: ColumnsFunction | None = None
    name: str = "calc"
    errors: RowErrors = FAIL
    required: tuple[int, ...] = ()
    fault: RowFault = RowFault.NULL_VALUE
    tests: tuple[RowTest, ...] = ()

    uses_event_time = False


@record
class SplitFactory(OperatorSpec):
    """Operators that send a row to every branch whose predicate is true, and rows of no branch to the main output.

    NULL counts as false. `errors` says what becomes of rows of which a predicate fails.
    """

    branches: tuple[tuple[OutputTag, PredicateFunction], ...]
    name: str = "split"
    errors: RowErrors = FAIL

    uses_event_time = False


@record
class PythonFunctionFactory(OperatorSpec):
    """Operators that call a user's function; see the table of `flowrun.operators.python_function` for its forms.

    Attributes:
        function: how each subtask gets its own.
        flat: the function may change the number of rows.
        row: the function works on dicts; slow, about a microsecond a row and column.
    """

    function: FunctionRecipe
    input_schema: Schema
    output_schema: Schema
    flat: bool = False
    row: bool = False
    name: str = "python"
    side_outputs: tuple[OutputTag, ...] = ()
    """Where else a function with a second parameter `context` may send rows."""
    errors: RowErrors = FAIL
    """What becomes of rows of which the function raises, or gives what it must not. To find them it is called again on parts of a batch."""


@record
class TimestampsAndWatermarksFactory(OperatorSpec):
    """Operators that give rows event time and watermarks; watermarks from upstream end there, except MAX."""

    strategy: WatermarkStrategy
    name: str = "watermarks"

    def __post_init__(self) -> None:
        if self.strategy.kind is WatermarkGeneration.SOURCE:
            raise ValueError("watermarks of a source end here: give this strategy to the source")


@record
class IterationHeadFactory(OperatorSpec):
    """Recipe of an `IterationHead`; `wait_ms` 0: it never ends by itself."""

    iteration_id: str
    wait_ms: int

    chaining = ChainingStrategy.NEVER  # a task of its own


@record
class IterationTailFactory(OperatorSpec):
    """Recipe of an `IterationTail`."""

    iteration_id: str

    chaining = ChainingStrategy.NEVER  # a task of its own
