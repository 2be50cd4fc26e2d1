"""Runs a pipeline as a stream and on Spark over the same bounded input, and compares what their sinks would get; writes to none of them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from flowrun.api.keyed_state import Values
from flowrun.api.process_function import BatchContext, ProcessFunction
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.row_errors import LETTER_COLUMNS_OF_A_RUN, OnError
from flowrun.core.schema import Schema
from flowrun.core.types import TypeRoot
from flowrun.errors import SetupError
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Process, Scan, SideOutput, Sink, walk_plan
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks
from flowrun.plan.row_errors import is_letter_sink
from flowrun.runners.capture import CaptureFile, capture_stream
from flowrun.runners.comparison import SinkComparison, compare
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.spark import STARTING, BatchListener, check_bounded, watching
from flowrun.runtime.job_status import JobResult
from flowrun.spark.context import ALL_TIME, TimeRange
from flowrun.spark.execution import execute
from flowrun.spark.frame import SparkFrame, quoted
from flowrun.spark.output.staging import OutputJob
from flowrun.spark.ranges import READ_ALL, Reading, reading_for, tells_state
from flowrun.spark.session import SparkOptions, spark_session

_LATE = ("numLateRecordsDropped", "numLateRecordsSideOutput")


@record
class Verification:
    """What came of it.

    Attributes:
        sinks: in the pipeline's order.
        late: rows that the stream dropped as too late, or sent to a late output, by operator: Spark, for which nothing is late, has them.
        stream_ms: how long the stream ran.
        start_ms: how long Spark took to start.
        spark_ms: and to run.
    """

    sinks: tuple[SinkComparison, ...]
    late: Mapping[str, int]
    stream_ms: float
    start_ms: float
    spark_ms: float

    @property
    def equal(self) -> bool:
        """Whether all sinks got the same rows."""
        return all(s.equal for s in self.sinks)


def verify(
    compiled: CompiledPipeline,
    options: SparkOptions,
    *,
    period: TimeRange = ALL_TIME,
    sample: int = 10,
    listener: BatchListener | None = None,
    clock: Clock | None = None,
) -> Verification:
    """Run both engines and compare.

    Args:
        compiled: the pipeline.
        options: where Spark runs.
        period: event times of the rows to compare, as a backfill of this range would write them.
        sample: rows that differ to give, a side and sink.
        listener: told a few times a second what is being done, on a thread of its own.
        clock: processing time.

    Raises:
        PipelineError: a source has no end.
        JobFailedError: an engine failed.
    """
    clock = SystemClock() if clock is None else clock
    plan = compiled.optimised
    plan = with_sinks(plan, tuple(map(_of_any_run, plan.sinks)))
    check_bounded(plan)
    reading = READ_ALL if period == ALL_TIME else reading_for(plan, period)
    with tempfile.TemporaryDirectory(prefix="flowrun-verify-") as folder, watching(listener, clock) as watch:
        scratch = Path(folder)
        began = clock.monotonic_ns()
        watch.now_doing("running the stream")
        results = _stream(plan, reading, period, scratch, clock)
        streamed = clock.monotonic_ns()
        watch.now_doing(STARTING)
        with spark_session(options, plan.name) as session:
            started = clock.monotonic_ns()
            watch.attach(session)
            job = OutputJob(plan.name, "verify", scratch.name)
            staging = _Staging(plan, scratch)
            execute(plan, session, job, clock.now_ms(), readings=[reading], watcher=watch.now_doing, staging=staging)
            ended = clock.monotonic_ns()
            watch.detach()
        watch.now_doing("comparing")
        compared = tuple(
            compare(_name(s), s.schema, _file(scratch, "stream", i), _file(scratch, "spark", i), scratch, sample)
            for i, s in enumerate(plan.sinks)
        )
    times = (streamed - began, started - streamed, ended - started)
    return Verification(compared, _late_rows(results), *(t / 1e6 for t in times))


def _of_any_run(sink: Sink) -> Sink:
    """The sink; one of dead letters without what differs from run to run."""
    kept = [f for f in sink.schema if f.name not in LETTER_COLUMNS_OF_A_RUN]
    if not is_letter_sink(sink) or not kept or len(kept) == len(sink.schema):
        return sink
    schema = Schema(tuple(kept))
    columns = tuple(ColumnRef(f.type, sink.schema.index(f.name), f.name) for f in kept)
    hints = NodeHints(name=f"{_name(sink)}.compared", parallelism=sink.hints.parallelism, on_error=OnError.FAIL)
    return replace(sink, schema=schema, input=Calc(schema, hints, sink.input, columns))


def _stream(plan: Plan, reading: Reading, period: TimeRange, scratch: Path, clock: Clock) -> list[JobResult]:
    """Run the stream over everything: nothing is left out but, for sinks that tell how things stand, what comes after the range."""
    final = [i for i, s in enumerate(plan.sinks) if period.stop is None or id(s) in reading.written]
    others = [i for i in range(len(plan.sinks)) if i not in final]
    results = []
    for places in (final, others):
        if places:
            part = with_sinks(plan, tuple(plan.sinks[i] for i in places))
            if places is others:
                part = stop_at_range_end(part, reading)
            files = [_file(scratch, "stream", i) for i in places]
            results.append(capture_stream(part, files, reading.written, clock))
    return results


class _Staging:
    """Stages rows of sinks as files to compare."""

    def __init__(self, plan: Plan, scratch: Path) -> None:
        self._places = {id(s): i for i, s in enumerate(plan.sinks)}
        self._scratch = scratch

    def __call__(self, sink: Sink, frame: SparkFrame, job: OutputJob) -> _CapturedRows:
        place = self._places[id(sink)]
        folder = self._scratch / f"spark-{place}"
        items = [
            f"{'CAST(NULL AS INT)' if type.root is TypeRoot.NULL else column} AS {quoted(f'c{i}')}"
            for i, (column, type) in enumerate(zip(frame.columns, frame.schema.types, strict=True))
        ]
        frame.data.selectExpr(*items, "true AS `row`").write.mode("overwrite").parquet(f"file://{folder}")
        if not folder.joinpath("_SUCCESS").exists():
            raise SetupError(
                "Spark's workers have a file system of their own, from which rows cannot be compared here",
                hint="leave --spark-master out, or give it local[*]",
            )
        return _CapturedRows(_name(sink), _converted(folder, sink.schema, _file(self._scratch, "spark", place)))


@record
class _CapturedRows:
    """Rows of one sink in a file."""

    name: str
    rows: int
    runs_on_commit = False

    def commit(self) -> None:
        """They are where they belong."""

    def abort(self) -> None:
        """The folder that they are in is removed."""


def _converted(folder: Path, schema: Schema, file: Path) -> int:
    """Write Spark's rows in the form in which they are compared; gives how many."""
    rows = 0
    with CaptureFile(file, schema) as capture:
        for batch in ds.dataset(str(folder), format="parquet").to_batches():
            columns = [
                pa.nulls(batch.num_rows) if t.root is TypeRoot.NULL else batch.column(i).cast(t.arrow)
                for i, t in enumerate(schema.types)
            ]
            capture.take(RecordBatch(pa.RecordBatch.from_arrays(columns, schema=schema.arrow)))
            rows += batch.num_rows
    return rows


def _late_rows(results: list[JobResult]) -> Mapping[str, int]:
    late: dict[str, int] = {}
    for result in results:
        for operator, counters in result.accumulators.items():
            if count := sum(counters.get(name, 0) for name in _LATE):
                late[operator] = max(late.get(operator, 0), count)
    return late


def _file(scratch: Path, engine: str, place: int) -> Path:
    return scratch / f"{engine}-{place}.arrow"


def _name(sink: Sink) -> str:
    return sink.hints.name or sink.table.name


def stop_at_range_end(plan: Plan, reading: Reading) -> Plan:
    """The plan with rows left out where `reading` stops: of what nodes read that tell how things stand, and of tables of changes."""
    states = tells_state(plan)
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        stop = reading.stops.get(id(node))
        made = with_inputs(node, tuple(_before(done[id(i)], stop) for i in node.inputs))
        if isinstance(node, Scan) and node.event_time and id(node) in states:
            made = _before(made, reading.bounds[id(node)].stop)
        done[id(node)] = made
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _before(node: PlanNode, stop: int | None) -> PlanNode:
    """The rows of a node with event times before `stop`."""
    if stop is None or not node.event_time:
        return node
    made_by = node.input if isinstance(node, SideOutput) else node
    return Process(
        schema=node.schema,
        hints=NodeHints(parallelism=made_by.hints.parallelism),
        input=node,
        function=f"{RowsBefore.__module__}:{RowsBefore.__name__}",
        arguments={"stop": stop},
    )


class RowsBefore(ProcessFunction):
    """Passes the rows with event times before `stop`, ms."""

    def __init__(self, stop: int) -> None:
        self._stop = stop

    def process_batch(self, batch: pa.RecordBatch, context: BatchContext) -> tuple[pa.RecordBatch, Values]:
        """The rows, and where they were in the batch."""
        assert context.timestamps is not None
        kept = np.flatnonzero(context.timestamps.to_numpy() < self._stop)
        return batch.take(pa.array(kept)), kept
