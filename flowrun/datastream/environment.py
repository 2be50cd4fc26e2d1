"""Where a program's job begins: sources, settings, and the graphs that come out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flowrun.api.source import Boundedness, Source
from flowrun.api.source_function import SourceContext, SourceFunction
from flowrun.connectors.values import ValuesSource
from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.core.resources import DEFAULT_SLOT_REQUEST_TIMEOUT_MS, ResourceSpec, SlotSettings, SlotSharingGroup
from flowrun.core.row_errors import OnError
from flowrun.core.schema import Schema
from flowrun.datastream.connectors import sink_of, source_of
from flowrun.datastream.execution import JobClient, current_executor
from flowrun.datastream.function_source import FunctionSource
from flowrun.datastream.functions import recipe_of
from flowrun.datastream.row_errors import on_error_of, routed
from flowrun.datastream.schemas import SchemaLike, as_schema, table_of
from flowrun.datastream.settings import DataStreamSink
from flowrun.datastream.stream import DataStream
from flowrun.errors import PipelineError
from flowrun.graph.explain import Format, render_stream_graph
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import ExecutionMode, GraphSettings, StreamGraph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import SinkTransformation, SourceTransformation, Transformation
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import ProgramTable
from flowrun.runtime.job_status import JobResult


class StreamExecutionEnvironment:
    """Collects the transformations of one job and turns them into graphs.

        env = StreamExecutionEnvironment("orders", parallelism=2)
        orders = env.from_source(source, name="orders", watermarks=WatermarkStrategy.bounded(5000, ColumnValue("ts")))
        orders.filter(lambda row: row["paid"]).key_by("user_id").window(TumblingSlices(60_000)).aggregate(total).sink_to(sink)
        env.execute()

    Args:
        name: of the job.
        parallelism: of operators that do not set their own.
        max_parallelism: number of key groups of operators that do not set their own; None: derived from the parallelism.
        mode: STREAMING; BATCH (bounded sources only): stage by stage, with sorted inputs; or AUTOMATIC: BATCH if all sources end and no
            checkpoints are asked for.
        chaining: False gives each operator a task of its own.
        local_aggregation: whether windows aggregate before the shuffle too, where that cannot change the result.
        job: settings of the runtime.
        on_error: what becomes of rows that an operator cannot process (`fail`, `skip`, `dead-letter`), unless it says otherwise
            (`DataStream.on_error`); docs/semantics.md says which rows these are.
        dead_letters: the folder for dead letters, JSON lines.
    """

    def __init__(
        self,
        name: str = "flowrun job",
        *,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        mode: ExecutionMode = ExecutionMode.STREAMING,
        chaining: bool = True,
        local_aggregation: bool = True,
        job: JobSettings | None = None,
        on_error: OnError | str = OnError.FAIL,
        dead_letters: str | None = None,
    ) -> None:
        self.name = name
        self.local_aggregation = local_aggregation
        self.settings = GraphSettings(parallelism, max_parallelism, chaining, mode, job or JobSettings())
        self.on_error = on_error_of(on_error)
        self.dead_letters = dead_letters
        self._sinks: list[SinkTransformation] = []
        self._tables: list[tuple[Transformation, ProgramTable]] = []

    def from_source(
        self, source: Source, *, name: str = "source", watermarks: WatermarkStrategy | None = None
    ) -> DataStream:
        """The rows of a source; `watermarks` gives them event time, a split at a time. None: as the source says, if it does."""
        factory = SourceOperatorFactory(source, watermarks, None, self.settings.job.batch_rows, name)
        return DataStream(self, SourceTransformation(name=name, schema=source.schema, factory=factory, source=source))

    def from_collection(
        self,
        rows: Sequence[Any] | pa.Table | pa.RecordBatch,
        schema: SchemaLike | None = None,
        *,
        name: str = "collection",
        watermarks: WatermarkStrategy | None = None,
    ) -> DataStream:
        """The rows of a collection: mappings from column to value, single values (the column `value`), or a table of Arrow.

        One subtask reads them, in their order.

        Raises:
            PipelineError: the rows do not have the columns of `schema`, or there is none and it cannot be found from them.
        """
        batch = table_of(rows, schema, name)
        return self.from_source(ValuesSource(Schema.from_arrow(batch.schema), batch), name=name, watermarks=watermarks)

    def from_elements(self, *values: Any, name: str = "elements") -> DataStream:
        """The given values or rows; see `from_collection`."""
        return self.from_collection(values, name=name)

    def socket_text_stream(
        self,
        hostname: str,
        port: int,
        *,
        delimiter: str = "\n",
        max_retries: int = 0,
        retry_delay: str | int = 500,
        name: str = "socket",
    ) -> DataStream:
        """Lines that a server sends: one column, `line`. One subtask reads them; at most once.

        Args:
            hostname: of the server.
            port: of the server.
            delimiter: what ends a line.
            max_retries: how often to connect again after a failure or an end; -1: without limit.
            retry_delay: wait before each attempt: ms, or text such as `1s`.
            name: of the source.
        """
        options = {
            "hostname": hostname,
            "port": port,
            "delimiter": delimiter,
            "max-retries": max_retries,
            "retry-delay": retry_delay if isinstance(retry_delay, str) else f"{retry_delay}ms",
        }
        return self.from_connector("socket", "line STRING", options, format="raw", name=name)

    def from_connector(
        self,
        connector: str,
        schema: SchemaLike,
        options: Mapping[str, object] | None = None,
        *,
        format: str | None = None,
        name: str = "source",
        watermarks: WatermarkStrategy | None = None,
    ) -> DataStream:
        """The rows of a connector's table: `from_connector("filesystem", "id BIGINT", {"path": "in"}, format="json")`.

        `flowrun connectors` lists connectors, formats and their options.

        Raises:
            PipelineError: connector, format or options are wrong.
        """
        table = TableReference(name, connector, options or {}, format)
        rows = self.from_source(source_of(table, as_schema(schema, name)), name=name, watermarks=watermarks)
        self._tables.append((rows.transformation, ProgramTable(name, table, _line())))
        return rows

    def add_source(
        self,
        function: SourceFunction | type[SourceFunction] | Callable[[SourceContext], None],
        schema: SchemaLike,
        *,
        bounded: bool = False,
        name: str = "source",
        watermarks: WatermarkStrategy | None = None,
    ) -> DataStream:
        """The rows of a source function; see `flowrun.api.source_function`.

        Args:
            function: an object or class with `run(context)` and `cancel()`, or a function that takes the context: it ends when its next
                `collect` raises.
            schema: columns of the rows that it sends.
            bounded: whether it ends by itself.
            name: of the source.
            watermarks: gives rows event time; None: what the function sends itself, with `collect_row(row, timestamp)` and
                `emit_watermark`.

        Raises:
            PipelineError: the function cannot be sent to tasks.
        """
        boundedness = Boundedness.BOUNDED if bounded else Boundedness.UNBOUNDED
        source = FunctionSource(name, recipe_of(function, name, ("run",)), as_schema(schema, name), boundedness)
        return self.from_source(source, name=name, watermarks=watermarks or WatermarkStrategy.from_source())

    def add_sink(self, sink: SinkTransformation) -> None:
        """Make a sink part of the job; `DataStream.sink_to` calls this."""
        self._sinks.append(sink)

    def write(self, stream: DataStream, table: TableReference) -> DataStreamSink:
        """Write the rows of a stream to a connector's table; `DataStream.to_connector` calls this.

        Raises:
            PipelineError: connector, format or options are wrong.
        """
        end = stream.sink_to(sink_of(table, stream.schema), name=table.name)
        self._tables.append((end.transformation, ProgramTable(table.name, table, _line())))
        return end

    def table_of(self, transformation: Transformation) -> ProgramTable:
        """What a source reads or a sink writes."""
        unknown = ProgramTable(transformation.name, None, None)
        return next((table for made, table in self._tables if made is transformation), unknown)

    @property
    def sinks(self) -> tuple[SinkTransformation, ...]:
        """The sinks added so far: from these the job is built."""
        return tuple(self._sinks)

    def stream_graph(self) -> StreamGraph:
        """The stream graph. Raises as `flowrun.graph.stream_graph_generator.build_stream_graph`."""
        if not self._sinks:
            raise PipelineError.of(
                f"job '{self.name}' has no sink: there is nothing to run", "end a stream with sink_to(...)"
            )
        sinks = routed(self._sinks, self.on_error, self.dead_letters, self.name)
        return build_stream_graph(self.name, sinks, self.settings)

    def graphs(self) -> tuple[StreamGraph, JobGraph]:
        """Both graphs. Raises as `job_graph`."""
        graph = self.stream_graph()
        return graph, build_job_graph(graph)

    def job_graph(self) -> JobGraph:
        """The job graph. Raises as `stream_graph` and `flowrun.graph.job_graph_generator.build_job_graph`."""
        return self.graphs()[1]

    def execution_plan(self) -> str:
        """The stream graph as JSON, in the layout of Apache Flink's execution plan."""
        return render_stream_graph(self.stream_graph(), Format.JSON)

    # Settings

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """The parallelism of operators that do not set their own."""
        self.settings = replace(self.settings, parallelism=parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """The number of key groups of operators that do not set their own."""
        self.settings = replace(self.settings, max_parallelism=max_parallelism)
        return self

    def set_buffer_timeout(self, timeout_ms: int) -> StreamExecutionEnvironment:
        """The longest wait before a partial buffer is sent; 0: none."""
        return self._job(buffer_timeout_ms=timeout_ms)

    def set_runtime_mode(self, mode: ExecutionMode) -> StreamExecutionEnvironment:
        """Streaming, or batch (bounded sources only)."""
        self.settings = replace(self.settings, mode=mode)
        return self

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Give each operator a task of its own."""
        self.settings = replace(self.settings, chaining=False)
        return self

    def enable_checkpointing(self, interval_ms: int, **settings: Any) -> StreamExecutionEnvironment:
        """Take a checkpoint every `interval_ms`; further settings by the names of `flowrun.core.recovery.CheckpointSettings`."""
        return self._job(checkpoint=CheckpointSettings(interval_ms=interval_ms, **settings))

    def register_slot_sharing_group(self, group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """Say what each slot of a group has, for operators that name the group only; see `DataStream.slot_sharing_group`."""
        groups = (*(g for g in self.settings.slot_sharing_groups if g.name != group.name), group)
        self.settings = replace(self.settings, slot_sharing_groups=groups)
        return self

    def set_slots(
        self,
        number: int | None = None,
        *,
        resources: ResourceSpec | None = None,
        request_timeout_ms: int = DEFAULT_SLOT_REQUEST_TIMEOUT_MS,
    ) -> StreamExecutionEnvironment:
        """The slots of a cluster that is made for this job alone, and how long the job waits for slots.

        Args:
            number: how many there are; None: as many as the job needs.
            resources: CPU cores and memory that they divide among them; None: as much as the job asks for.
            request_timeout_ms: on any cluster; 0: for ever.
        """
        return self._job(slots=SlotSettings(number, resources or ResourceSpec(), request_timeout_ms))

    def set_restart_strategy(self, restart: RestartSettings) -> StreamExecutionEnvironment:
        """What happens after a failure."""
        return self._job(restart=restart)

    def _job(self, **settings: Any) -> StreamExecutionEnvironment:
        self.settings = replace(self.settings, job=replace(self.settings.job, **settings))
        return self

    # Running

    @property
    def variables(self) -> Mapping[str, str]:
        """What the program was given: `--var` of the command line, variables of its project, and environment variables of the process."""
        return current_executor().variables

    def execute(self, runner: Callable[[JobGraph], JobResult] | None = None) -> JobResult:
        """Run the job to its end, and forget its sinks: what is built afterwards is another job.

        Args:
            runner: runs the job graph; None: whoever has started the program, in this process if that is nobody.

        Raises:
            PipelineError: the job is wrong.
            JobFailedError: the job failed.
        """
        try:
            return current_executor().execute(self) if runner is None else runner(self.job_graph())
        finally:
            self._forget()

    def execute_async(self) -> JobClient:
        """Start the job and give a handle to it; the process must live until it ends. Raises as `execute`."""
        try:
            return current_executor().execute_async(self)
        finally:
            self._forget()

    def _forget(self) -> None:
        """What is built from now on is another job."""
        self._sinks.clear()
        self._tables.clear()


def _line() -> int | None:
    """The line of the program that is called from; None: a module beside it calls, whose lines are not the program's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("flowrun."):
        frame = frame.f_back
    return frame.f_lineno if frame.f_globals.get("__name__") == "__main__" else None
