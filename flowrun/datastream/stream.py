"""Streams of the programmatic API: each call adds a transformation and gives the stream of its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flowrun.api.functions import PredicateFunction
from flowrun.api.operator import OperatorRecipe, OutputTag
from flowrun.api.process_function import ProcessFunction
from flowrun.api.sink import Sink
from flowrun.core.schema import Schema
from flowrun.datastream.connected import ConnectedIterativeStreams, ConnectedStreams
from flowrun.datastream.functions import (
    BatchCallable,
    SelectColumns,
    column_positions,
    predicate_of,
    process_factory,
    recipe_of,
)
from flowrun.datastream.settings import OperatorSettings
from flowrun.datastream.windowed import WindowedStream
from flowrun.datastream.windows import TimedWindows, Windows
from flowrun.errors import PipelineError, did_you_mean
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    ChannelFunction,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
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


class DataStreamSink(OperatorSettings):
    """The end of a stream; only its settings can still be changed."""


class DataStream(OperatorSettings):
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

    def map_batches(self, function: BatchCallable | str, schema: Schema, *, name: str = "map") -> DataStream:
        """Call `function(pa.RecordBatch)` on each batch; it returns as many rows, with the columns of `schema`.

        `function` is one at the top level of a module, or `module:function`.
        """
        return self._python(function, schema, name, flat=False, row=False)

    def flat_map_batches(self, function: BatchCallable | str, schema: Schema, *, name: str = "flat map") -> DataStream:
        """Call `function(pa.RecordBatch)` on each batch; it returns any number of rows, or (rows, position of each row's parent)."""
        return self._python(function, schema, name, flat=True, row=False)

    def map_rows(self, function: BatchCallable | str, schema: Schema, *, name: str = "map") -> DataStream:
        """Call `function(dict)` on each row; it returns a dict. Slow: Python runs once a row."""
        return self._python(function, schema, name, flat=False, row=True)

    def flat_map_rows(self, function: BatchCallable | str, schema: Schema, *, name: str = "flat map") -> DataStream:
        """Call `function(dict)` on each row; it returns any number of dicts. Slow: Python runs once a row."""
        return self._python(function, schema, name, flat=True, row=True)

    def _python(self, function: BatchCallable | str, schema: Schema, name: str, *, flat: bool, row: bool) -> DataStream:
        return self.process(
            PythonFunctionFactory(recipe_of(function, name), self.schema, schema, flat=flat, row=row, name=name),
            schema,
            name=name,
        )

    def filter(self, condition: PredicateFunction | BatchCallable | str, *, name: str = "filter") -> DataStream:
        """Keep the rows for which `condition`, a predicate or a function from a batch to a boolean array, is true."""
        return self.process(CalcFactory(predicate_of(condition, name), None, name), self.schema, name=name)

    def select(self, *columns: str, name: str = "select") -> DataStream:
        """Keep the named columns, in this order."""
        positions = column_positions(self.schema, columns, name)
        schema = self.schema.select(columns)
        return self.process(CalcFactory(None, SelectColumns(positions, schema), name), schema, name=name)

    def process(
        self,
        function: OperatorRecipe | ProcessFunction | type[ProcessFunction] | str,
        schema: Schema | None = None,
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
        schema = self.schema if schema is None else schema
        factory = process_factory(
            function, arguments or {}, self.schema, schema, tuple(side_outputs), self.state_keys, name
        )
        transformation = OneInputTransformation(
            name=name, schema=schema, factory=factory, input=self.transformation, state_keys=self.state_keys
        )
        return self.derived(transformation, side_outputs)

    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy, *, name: str = "timestamps and watermarks"
    ) -> DataStream:
        """Give rows event time and watermarks; watermarks from upstream end here."""
        factory = TimestampsAndWatermarksFactory(strategy, name)
        transformation = WatermarkTransformation(
            name=name, schema=self.schema, factory=factory, input=self.transformation
        )
        return self.derived(transformation)

    # Several streams

    def union(self, *others: DataStream, name: str = "union") -> DataStream:
        """All rows of this and the other streams; all have the same columns."""
        members = (self, *others)
        for other in others:
            self.check_environment(other)
        transformation = UnionTransformation(
            name=name, schema=self.schema, members=tuple(m.transformation for m in members)
        )
        return self.derived(transformation)

    def connect(self, other: DataStream) -> ConnectedStreams:
        """This and another stream as the two inputs of one operator."""
        self.check_environment(other)
        return ConnectedStreams(self, other)

    def split(
        self, branches: Mapping[str, PredicateFunction | BatchCallable | str], *, name: str = "split"
    ) -> DataStream:
        """Send each row to every branch whose condition is true: `get_side_output(branch)`. The result has the rows of no branch."""
        tags = tuple(OutputTag(branch, self.schema) for branch in branches)
        conditions = (predicate_of(c, f"{name}, branch '{b}'") for b, c in branches.items())
        factory = SplitFactory(tuple(zip(tags, conditions, strict=True)), name)
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

    # Partitioning

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

    def forward(self) -> DataStream:
        """Subtask i to subtask i; an error if the next operator's parallelism differs."""
        return self._partitioned(ForwardPartitioner(), "forward")

    def rebalance(self) -> DataStream:
        """Batches round robin to all subtasks."""
        return self._partitioned(RebalancePartitioner(), "rebalance")

    def rescale(self) -> DataStream:
        """Batches round robin to the near share of subtasks."""
        return self._partitioned(RescalePartitioner(), "rescale")

    def shuffle(self, seed: int = 0) -> DataStream:
        """Rows to random subtasks."""
        return self._partitioned(ShufflePartitioner(seed), "shuffle")

    def broadcast(self) -> DataStream:
        """Every row to every subtask."""
        return self._partitioned(BroadcastPartitioner(), "broadcast")

    def global_(self) -> DataStream:
        """Every row to the first subtask."""
        return self._partitioned(GlobalPartitioner(), "global")

    def partition_custom(self, function: ChannelFunction, name: str = "custom") -> DataStream:
        """Rows to the subtasks that `function(batch, number of subtasks)` names, one index a row. It must pickle."""
        return self._partitioned(CustomPartitioner(function, name), name)

    def _partitioned(self, partitioner: Partitioner, name: str) -> DataStream:
        transformation = PartitionTransformation(
            name=name, schema=self.schema, input=self.transformation, partitioner=partitioner
        )
        return self.derived(transformation)

    # Windows, iterations, sinks

    def window_all(self, windows: Windows | TimedWindows) -> WindowedStream:
        """Windows over all rows, in one subtask."""
        return WindowedStream(self, (), windows)

    def iterate(self, wait_ms: int) -> IterativeStream:
        """The head of an iteration: this stream's rows, and those given to `close_with`.

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

    def window(self, windows: Windows | TimedWindows) -> WindowedStream:
        """Windows a key."""
        return WindowedStream(self.unkeyed, self.keys, windows)


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
