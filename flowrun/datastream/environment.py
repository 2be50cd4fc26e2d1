"""Where a program's job begins: sources, settings, and the graphs that come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flowrun.api.source import Source
from flowrun.core.row_errors import OnError
from flowrun.datastream.row_errors import on_error_of, routed
from flowrun.datastream.stream import DataStream
from flowrun.errors import PipelineError
from flowrun.graph.explain import Format, render_stream_graph
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import ExecutionMode, GraphSettings, StreamGraph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import SinkTransformation, SourceTransformation
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy

R = TypeVar("R")


class StreamExecutionEnvironment:
    """Collects the transformations of one job and turns them into graphs.

        env = StreamExecutionEnvironment("orders", parallelism=2)
        orders = env.from_source(source, name="orders", watermarks=WatermarkStrategy.bounded(5000, ColumnValue("ts")))
        orders.filter(is_paid).key_by("user_id").window(TumblingSlices(60_000)).aggregate(total).sink_to(sink)
        env.execute(run_embedded)

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

    def from_source(
        self, source: Source, *, name: str = "source", watermarks: WatermarkStrategy | None = None
    ) -> DataStream:
        """The rows of a source; `watermarks` gives them event time, a split at a time. None: as the source says, if it does."""
        factory = SourceOperatorFactory(source, watermarks, None, self.settings.job.batch_rows, name)
        return DataStream(self, SourceTransformation(name=name, schema=source.schema, factory=factory, source=source))

    def add_sink(self, sink: SinkTransformation) -> None:
        """Make a sink part of the job; `DataStream.sink_to` calls this."""
        self._sinks.append(sink)

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
        sinks = routed(self._sinks, self.on_error, self.dead_letters)
        return build_stream_graph(self.name, sinks, self.settings)

    def job_graph(self) -> JobGraph:
        """The job graph. Raises as `stream_graph` and `flowrun.graph.job_graph_generator.build_job_graph`."""
        return build_job_graph(self.stream_graph())

    def execution_plan(self) -> str:
        """The stream graph as JSON, in the layout of Apache Flink's execution plan."""
        return render_stream_graph(self.stream_graph(), Format.JSON)

    def execute(self, runner: Callable[[JobGraph], R]) -> R:
        """Run the job with `runner`, e.g. `flowrun.runners.embedded.run_embedded`; what it returns."""
        return runner(self.job_graph())
