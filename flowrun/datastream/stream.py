"""Streams of the programmatic API: each call adds a transformation and gives the stream of its output."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from flowrun.api.functions import PredicateFunction
from flowrun.api.keyed_state import StateType, data_type
from flowrun.api.operator import OperatorRecipe, OutputTag
from flowrun.api.process_function import ProcessFunction
from flowrun.api.sink import Sink
from flowrun.api.state import AggregateFunction
from flowrun.connectors import memory
from flowrun.connectors.print import PrintSink
from flowrun.core.schema import Schema
from flowrun.datastream.broadcast import BroadcastConnectedStream, BroadcastStream
from flowrun.datastream.connected import ConnectedIterativeStreams, ConnectedStreams
from flowrun.datastream.connectors import written_table
from flowrun.datastream.function_sink import FunctionSink, SinkFunction
from flowrun.datastream.functions import (
    BatchCallable,
    RowCallable,
    SelectColumns,
    batch_predicate,
    column_positions,
    map_factory,
    process_factory,
    recipe_of,
    row_predicate,
)
from flowrun.datastream.partitioning import Partitionable
from flowrun.datastream.rolling import Aggregated, Extreme, Fold, Reduce, Rolling, RollingOperation
from flowrun.datastream.schemas import SchemaLike, as_schema
from flowrun.datastream.settings import DataStreamSink, OperatorSettings
from flowrun.datastream.watermarks import WatermarkGenerator, timed_strategy
from flowrun.datastream.windowed import WindowedStream, count_windows
from flowrun.datastream.windows import AnyWindows, event_time_windows
from flowrun.errors import PipelineError, did_you_mean
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import (
    FeedbackTransformation,
    OneInputTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    SinkTransformation,
    Transformation,
    UnionTransformation,
    WatermarkTransformation,
)
from flowrun.operators.factories import (
    CalcFactory,
    PythonFunctionFactory,
    SinkOperatorFactory,
    SplitFactory,
    TimestampsAndWatermarksFactory,
)
from flowrun.operators.watermark_strategy import WatermarkStrategy

if TYPE_CHECKING:
    from flowrun.datastream.environment import StreamExecutionEnvironment


class DataStream(Partitionable, OperatorSettings):
    """The rows that one transformation puts out.

    Attributes:
        environment: what it belongs to.
        transformation: what it stands for.
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        transformation: Transformation,
        side_outputs: Sequence[OutputTag] = (),
    ) -> None:
        super().__init__(transformation)
        self.environment = environment
        self._side_outputs = {tag.name: tag for tag in side_outputs}

    @property
    def schema(self) -> Schema:
        """Columns of the rows."""
        return self.transformation.schema

    def derived(self, transformation: Transformation, side_outputs: Sequence[OutputTag] = ()) -> DataStream:
        """The stream of a transformation that reads this one."""
        return DataStream(self.environment, transformation, side_outputs)

    def check_environment(self, other: DataStream) -> None:
        """Raises PipelineError if the other stream is of another job."""
        if other.environment is not self.environment:
            raise PipelineError.of(
                f"'{self.transformation.name}' and '{other.transformation.name}' belong to different environments",
                "build all streams of a job from one StreamExecutionEnvironment",
            )

    @property
    def state_keys(self) -> tuple[int, ...] | None:
        """Positions of the key columns; None: the stream has no key."""
        return None

    # Row-wise operators

    def map(
        self,
        function: RowCallable | str,
        schema: SchemaLike | None = None,
        *,
        name: str = "map",
        batches: bool = False,
        side_outputs: Sequence[OutputTag] = (),
    ) -> DataStream:
        """Call `function` with each row, a dict; it returns a dict with the columns of `schema`.

        Args:
            function: any Python function, or `module:function`. An object or class may have `open()` and `close()`.
            schema: the columns that it gives: `"word STRING, count BIGINT"` or a `Schema`; None: those of this stream.
            name: of the operator.
            batches: call it with each `pa.RecordBatch` instead, a hundred times as fast: it returns as many rows.
            side_outputs: the tags that it may send to, if it has a second parameter `context`: `context.side_output(name, row)`.

        Raises:
            PipelineError: the function cannot be sent to tasks, or has side outputs but no context.
        """
        return self._mapped(map_factory(function, self.schema, schema, side_outputs, name, flat=False, row=not batches))

    def flat_map(
        self,
        function: RowCallable | str,
        schema: SchemaLike | None = None,
        *,
        name: str = "flat map",
        batches: bool = False,
        side_outputs: Sequence[OutputTag] = (),
    ) -> DataStream:
        """Call `function` with each row, a dict; it returns any number of dicts, or is a generator of them. Arguments as of `map`.

        With `batches` it is called with each `pa.RecordBatch` and returns any number of rows, or (rows, position of each row's parent).
        """
        return self._mapped(map_factory(function, self.schema, schema, side_outputs, name, flat=True, row=not batches))

    def map_batches(
        self, function: BatchCallable | str, schema: SchemaLike | None = None, *, name: str = "map"
    ) -> DataStream:
        """`map` with `batches`."""
        return self.map(function, schema, name=name, batches=True)

    def flat_map_batches(
        self, function: BatchCallable | str, schema: SchemaLike | None = None, *, name: str = "flat map"
    ) -> DataStream:
        """`flat_map` with `batches`."""
        return self.flat_map(function, schema, name=name, batches=True)

    def _mapped(self, factory: PythonFunctionFactory) -> DataStream:
        return self.process(factory, factory.output_schema, name=factory.name, side_outputs=factory.side_outputs)

    def filter(self, condition: PredicateFunction | RowCallable | str, *, name: str = "filter") -> DataStream:
        """Keep the rows for which `condition`, a function of a row (a dict), or a predicate over columns, is true."""
        return self.process(CalcFactory(row_predicate(condition, name), None, name), self.schema, name=name)

    def filter_batches(self, condition: BatchCallable | str, *, name: str = "filter") -> DataStream:
        """Keep the rows for which `condition`, a function from a `pa.RecordBatch` to a boolean array, is true."""
        return self.process(CalcFactory(batch_predicate(condition, name), None, name), self.schema, name=name)

    def select(self, *columns: str, name: str = "select") -> DataStream:
        """Keep the named columns, in this order."""
        positions = column_positions(self.schema, columns, name)
        schema = self.schema.select(columns)
        return self.process(CalcFactory(None, SelectColumns(positions, schema), name), schema, name=name)

    def process(
        self,
        function: OperatorRecipe | ProcessFunction | type[ProcessFunction] | str,
        schema: SchemaLike | None = None,
        *,
        name: str = "process",
        side_outputs: Sequence[OutputTag] = (),
        arguments: Mapping[str, object] | None = None,
    ) -> DataStream:
        """Run a process function or an operator.

        Args:
            function: a process function (each subtask gets a copy), its class or `module:Class`; or an operator factory.
            schema: the columns it puts out; None: those of this stream.
            name: of the operator.
            side_outputs: the tags it may send to.
            arguments: of the class, by name.

        Raises:
            PipelineError: the function does not keep to the rules of `flowrun.api.process_function`.
        """
        output = self.schema if schema is None else as_schema(schema, name)
        factory = process_factory(
            function, arguments or {}, self.schema, output, tuple(side_outputs), self.state_keys, name
        )
        transformation = OneInputTransformation(
            name=name, schema=output, factory=factory, input=self.transformation, state_keys=self.state_keys
        )
        return self.derived(transformation, side_outputs)

    def assign_timestamps_and_watermarks(
        self,
        strategy: WatermarkStrategy | WatermarkGenerator | type[WatermarkGenerator],
        timestamps: RowCallable | str | None = None,
        *,
        name: str = "timestamps and watermarks",
    ) -> DataStream:
        """Give rows event time and watermarks; watermarks from upstream end here.

        Args:
            strategy: which watermarks follow from the rows; or a generator of the user's (each subtask gets one of its own).
            timestamps: the column that holds the event time, or a function of a row (a dict) that gives it: ms since 1970 or a datetime.
                None: as the strategy says, or what the rows have.
            name: of the operator.

        Raises:
            PipelineError: there is no such column, or a function cannot be sent to tasks.
        """
        strategy = timed_strategy(strategy, timestamps, self.schema, name)
        factory = TimestampsAndWatermarksFactory(strategy, name)
        transformation = WatermarkTransformation(
            name=name, schema=self.schema, factory=factory, input=self.transformation
        )
        return self.derived(transformation)

    # Several streams, partitioning

    def union(self, *others: DataStream, name: str = "union") -> DataStream:
        """All rows of this and the other streams; all have the same columns."""
        members = (self, *others)
        for other in others:
            self.check_environment(other)
        transformation = UnionTransformation(
            name=name, schema=self.schema, members=tuple(m.transformation for m in members)
        )
        return self.derived(transformation)

    @overload
    def connect(self, other: DataStream) -> ConnectedStreams: ...
    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, other: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This and another stream, or a broadcast stream, as the two inputs of one operator."""
        if isinstance(other, BroadcastStream):
            self.check_environment(other.stream)
            return BroadcastConnectedStream(self, other)
        self.check_environment(other)
        return ConnectedStreams(self, other)

    def split(
        self, branches: Mapping[str, PredicateFunction | RowCallable | str], *, name: str = "split"
    ) -> DataStream:
        """Send each row to every branch whose condition is true: `get_side_output(branch)`. The result has the rows of no branch.

        Conditions are as those of `filter`.
        """
        return self._split({b: row_predicate(c, f"{name}, branch '{b}'") for b, c in branches.items()}, name)

    def split_batches(self, branches: Mapping[str, BatchCallable | str], *, name: str = "split") -> DataStream:
        """`split` by conditions as those of `filter_batches`."""
        return self._split({b: batch_predicate(c, f"{name}, branch '{b}'") for b, c in branches.items()}, name)

    def _split(self, branches: Mapping[str, PredicateFunction], name: str) -> DataStream:
        tags = tuple(OutputTag(branch, self.schema) for branch in branches)
        factory = SplitFactory(tuple(zip(tags, branches.values(), strict=True)), name)
        return self.process(factory, self.schema, name=name, side_outputs=tags)

    def get_side_output(self, tag: OutputTag | str) -> DataStream:
        """The rows that this stream's operator sends to a side output.

        Raises:
            PipelineError: the operator has no such side output.
        """
        name = tag if isinstance(tag, str) else tag.name
        known = self._side_outputs.get(name)
        if known is None or (isinstance(tag, OutputTag) and tag != known):
            raise PipelineError.of(
                f"'{self.transformation.name}' has no side output '{name}'"
                + ("" if known is None else f" with the columns ({tag.schema})" if isinstance(tag, OutputTag) else ""),
                did_you_mean(name, self._side_outputs) or "declare it where the operator is made",
            )
        transformation = SideOutputTransformation(name=name, schema=known.schema, input=self.transformation, tag=known)
        return self.derived(transformation)

    def key_by(self, *columns: str) -> KeyedStream:
        """The stream with rows of equal key in one subtask. A column may be named once only."""
        twice = next((c for c in columns if columns.count(c) > 1), None)
        if twice is not None:
            raise PipelineError.of(f"key_by: the column '{twice}' is named more than once", "name each column once")
        return self.keyed(columns)

    def keyed(self, columns: Sequence[str]) -> KeyedStream:
        keys = column_positions(self.schema, columns, "key_by")
        if not keys:
            raise PipelineError.of("key_by needs at least one column", "use window_all for windows over all rows")
        return KeyedStream(self, keys)

    # Windows, iterations, sinks

    def window_all(self, windows: AnyWindows, *, arguments: Mapping[str, object] | None = None) -> WindowedStream:
        """Windows over all rows, in one subtask. `arguments` as of `KeyedStream.window`."""
        return WindowedStream(self, (), windows, arguments)

    def iterate(self, wait_ms: int) -> IterativeStream:
        """The head of an iteration: this stream's rows, and those given to `close_with`, which stay within a process and in no checkpoint.

        Args:
            wait_ms: the iteration ends when nothing came back for so long (processing time); 0: never.
        """
        return IterativeStream(self, wait_ms)

    def sink_to(self, sink: Sink, *, name: str = "sink") -> DataStreamSink:
        """Write the rows.

        Raises:
            PipelineError: the sink expects other columns.
        """
        if sink.schema.arrow != self.schema.arrow:
            raise PipelineError.of(
                f"{name}: the sink expects ({sink.schema}), but '{self.transformation.name}' has ({self.schema})",
                "select or map the columns before the sink",
            )
        transformation = SinkTransformation(
            name=name,
            schema=sink.schema,
            input=self.transformation,
            factory=SinkOperatorFactory(sink, name),
            sink=sink,
        )
        self.environment.add_sink(transformation)
        return DataStreamSink(transformation)

    def add_sink(
        self, function: SinkFunction | type[SinkFunction] | RowCallable, *, name: str = "sink"
    ) -> DataStreamSink:
        """Call a function of the program with each row, a dict, or a `SinkFunction`; at least once.

        Raises:
            PipelineError: the function cannot be sent to tasks.
        """
        return self.sink_to(
            FunctionSink(name, recipe_of(function, name, ("invoke", "invoke_batch")), self.schema), name=name
        )

    def to_connector(
        self, connector: str, options: Mapping[str, object] | None = None, *, name: str = "sink", **table: Any
    ) -> DataStreamSink:
        """Write the rows with a connector: `to_connector("filesystem", {"path": "out"}, format="parquet")`.

        Args:
            connector: its name; `flowrun connectors` lists them and their options.
            options: of the connector and the format.
            name: of the sink.
            table: `format`, `partition_keys` and `primary_key`.

        Raises:
            PipelineError: the options are wrong.
        """
        return self.environment.write(self, written_table(connector, options or {}, name, **table))

    def print(self, identifier: str = "", *, name: str = "print") -> DataStreamSink:
        """Print the rows to standard output, as `+I[a, 1]`; `identifier` stands before each."""
        return self.sink_to(PrintSink(self.schema, identifier, standard_error=False), name=name)

    def execute_and_collect(self) -> list[dict[str, Any]]:
        """Run the job and give the rows of this stream; for bounded streams, in tests and notebooks.

        Raises:
            JobFailedError: the job failed.
        """
        table = f"collected-{uuid.uuid4()}"
        self.sink_to(memory.MemorySink(table, self.schema), name="collect")
        self.environment.execute()
        return [row for batch in memory.take(table) for row in batch.columns.to_pylist()]


class KeyedStream(DataStream):
    """A stream partitioned by key; `process` runs operators with keyed state.

    Attributes:
        keys: positions of the key columns.
    """

    def __init__(self, stream: DataStream, keys: tuple[int, ...]) -> None:
        transformation = PartitionTransformation(
            name="key by",
            schema=stream.schema,
            input=stream.transformation,
            partitioner=KeyGroupPartitioner(keys),
        )
        super().__init__(stream.environment, transformation)
        self.keys = keys
        self.unkeyed = stream

    @property
    def state_keys(self) -> tuple[int, ...] | None:
        return self.keys

    # Rolling aggregates: each row in, what all rows of its key so far amount to out

    def sum(self, column: str, *, name: str = "sum") -> DataStream:
        """The sum of a column so far; of the columns beside it and the key, what the first row of the key had."""
        return self._rolling(RollingOperation.SUM, column, name)

    def min(self, column: str, *, name: str = "min") -> DataStream:
        """The least value of a column so far; the others as of `sum`."""
        return self._rolling(RollingOperation.MIN, column, name)

    def max(self, column: str, *, name: str = "max") -> DataStream:
        """The greatest value of a column so far; the others as of `sum`."""
        return self._rolling(RollingOperation.MAX, column, name)

    def min_by(self, column: str, *, last: bool = False, name: str = "min by") -> DataStream:
        """The whole row with the least value of a column so far; of equal ones the first, or the last."""
        return self._extreme(column, name, greatest=False, last=last)

    def max_by(self, column: str, *, last: bool = False, name: str = "max by") -> DataStream:
        """The whole row with the greatest value of a column so far; of equal ones the first, or the last."""
        return self._extreme(column, name, greatest=True, last=last)

    def reduce(self, function: Callable[[Any, Any], Any] | str, *, name: str = "reduce") -> DataStream:
        """What `function(reduced, row)` made of all rows so far; the first row of a key is sent as it is."""
        return self.process(Reduce(recipe_of(function, name, ("reduce",)), self.schema), self.schema, name=name)

    def fold(
        self,
        initial: Mapping[str, Any],
        function: Callable[[Any, Any], Any] | str,
        schema: SchemaLike,
        *,
        name: str = "fold",
    ) -> DataStream:
        """What `function(folded, row)` made of `initial` and all rows so far, with the columns of `schema`."""
        output = as_schema(schema, name)
        return self.process(Fold(initial, recipe_of(function, name, ("fold",)), output), output, name=name)

    def aggregate(
        self,
        function: AggregateFunction[Any, Any, Any] | type[AggregateFunction[Any, Any, Any]],
        accumulator: StateType,
        schema: SchemaLike,
        *,
        name: str = "aggregate",
    ) -> DataStream:
        """The result of an `AggregateFunction` over all rows so far: `get_result` gives a row with the columns of `schema`.

        `accumulator` is the type of its accumulators, e.g. `"ROW<sum BIGINT, count BIGINT>"`.
        """
        output = as_schema(schema, name)
        return self.process(Aggregated(recipe_of(function, name, ("add",)), data_type(accumulator)), output, name=name)

    def _rolling(self, operation: RollingOperation, column: str, name: str) -> DataStream:
        column_positions(self.schema, [column], name)
        if self.schema.index(column) in self.keys:
            raise PipelineError.of(f"{name}: '{column}' is a column of the key", "aggregate another column")
        kind = self.schema.field(column).type
        if operation is RollingOperation.SUM and not kind.is_numeric:
            raise PipelineError.of(f"{name}: '{column}' is {kind}, which has no sum", "sum a column of numbers")
        return self.process(Rolling(column, self.schema, operation), self.schema, name=name)

    def _extreme(self, column: str, name: str, *, greatest: bool, last: bool) -> DataStream:
        column_positions(self.schema, [column], name)
        return self.process(Extreme(column, self.schema, greatest, last), self.schema, name=name)

    def time_window(self, size_ms: int, slide_ms: int | None = None) -> WindowedStream:
        """Windows of event time a key: back to back, or one every `slide_ms`."""
        return self.window(event_time_windows(size_ms, slide_ms))

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Windows of `size` rows of a key, back to back; or every `slide` rows the last up to `size`."""
        return count_windows(self.unkeyed, self.keys, size, slide)

    def window(self, windows: AnyWindows, *, arguments: Mapping[str, object] | None = None) -> WindowedStream:
        """Windows a key. `arguments` are those of a user's assigner that is given as a class or `module:Class`."""
        return WindowedStream(self.unkeyed, self.keys, windows, arguments)


class IterativeStream(DataStream):
    """The head of an iteration."""

    def __init__(self, stream: DataStream, wait_ms: int) -> None:
        self._feedback = FeedbackTransformation(
            name="iteration", schema=stream.schema, input=stream.transformation, wait_ms=wait_ms
        )
        self._input = stream
        super().__init__(stream.environment, self._feedback)

    def close_with(self, feedback: DataStream) -> DataStream:
        """Send the rows of `feedback` back to the head; returns `feedback`."""
        self.check_environment(feedback)
        self._feedback.feedback_edges.append(feedback.transformation)
        return feedback

    def with_feedback(self, schema: Schema) -> ConnectedIterativeStreams:
        """An iteration whose fed-back rows have columns of their own and go to the second input of an operator."""
        return ConnectedIterativeStreams(self._input, schema, self._feedback.wait_ms)
