"""A job that is cut off from the outside: given rows instead of its sources, its sinks only looked at, its state only read.

The operators are the job's own, with the state of a checkpoint if there is one, and with the event time that they had reached there:
the given rows do not advance it, so that nothing fires that did not wait for them. The job ends without ending event time. What each
operator has counted then, and what it waits for, is what became of the rows.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowrun.api.changelog import ChangesTaken
from flowrun.api.operator import InputStatus
from flowrun.api.sink import SinkWriter, WriterContext
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceOutput,
    SourceReader,
    Split,
    SplitEnumerator,
)
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import StateError
from flowrun.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from flowrun.operators.factories import SinkOperatorFactory, SourceOperatorFactory, TimestampsAndWatermarksFactory
from flowrun.operators.watermark_strategy import WatermarkGeneration, WatermarkStrategy
from flowrun.runtime.checkpoint.assembly import JobIdentity
from flowrun.runtime.checkpoint.compatibility import compare
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.jobmaster.job_state import OpenedState, RestorePoint
from flowrun.runtime.local_cluster import LocalCluster
from flowrun.state.checkpoints import CheckpointMetadata
from flowrun.state.storage.locate import SnapshotPath
from flowrun.state.storage.savepoints import Savepoints

TIMEOUT_MS = 60_000
_SPLIT = "row"
_numbers = itertools.count()


@record
class ReachedRow:
    """A row that reached a sink: how it changes what is there (`+I`, `-U`, `+U`, `-D`), and its values."""

    sink: str
    change: str
    values: Mapping[str, Any]


class _Run:
    """What the sources and sinks of one run share with who started it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent = threading.Event()
        self.reached: list[ReachedRow] = []


_runs: dict[str, _Run] = {}
"""By the name that sources and sinks carry, which are values."""


@record
class GivenRows:
    """A source that gives its rows in one subtask, and then nothing, without an end. `rows` None: it gives none."""

    schema: Schema
    run: str
    rows: RecordBatch | None = None

    @property
    def boundedness(self) -> Boundedness:
        """As event time must not end."""
        return Boundedness.UNBOUNDED

    @property
    def delivery(self) -> Delivery:
        """Nothing is repeated."""
        return Delivery.EXACTLY_ONCE

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """One that hands out nothing; what a source has remembered means nothing here."""
        return ListedSplitEnumerator([])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """The first subtask has the rows."""
        return _GivenRowsReader(self.rows if context.subtask == 0 else None, _runs[self.run])


class _GivenRowsReader:
    def __init__(self, rows: RecordBatch | None, run: _Run) -> None:
        self._rows = rows
        self._run = run
        self._gave = False

    def start(self) -> None:
        """Nothing to ask for."""

    def poll(self, output: SourceOutput) -> InputStatus:
        if self._rows is not None:
            output.emit(self._rows, _SPLIT)
            self._rows, self._gave = None, True
            return InputStatus.MORE_AVAILABLE
        if self._gave:  # they are on their way, or this would not be asked for more
            self._run.sent.set()
        return InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Split]) -> None:
        """What was being read is not gone on with."""

    def notify_no_more_splits(self) -> None:
        """It does not end."""

    def snapshot(self) -> Sequence[Split]:
        return (Split(_SPLIT, {}),)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """There are none."""

    def close(self) -> None:
        """Nothing to release."""


@record
class ObservedSink:
    """A sink whose rows are looked at and go nowhere."""

    schema: Schema
    name: str
    run: str

    @property
    def delivery(self) -> Delivery:
        """Nothing is committed."""
        return Delivery.AT_LEAST_ONCE

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes, as they come."""
        return ChangesTaken.ALL

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        return _ObservingWriter(self.name, _runs[self.run])

    def create_committer(self) -> None:
        """Nothing to commit."""


class _ObservingWriter(ImmediateWriter):
    def __init__(self, name: str, run: _Run) -> None:
        self._name = name
        self._run = run

    def write(self, batch: RecordBatch) -> None:
        kinds = [RowKind.INSERT] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
        rows = [
            ReachedRow(self._name, RowKind(kind).symbol, row)
            for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True)
        ]
        with self._run.lock:
            self._run.reached += rows


@record
class Outcome:
    """What became of rows.

    Attributes:
        details: of the job at its end: what each operator has counted, and what it waits for.
        reached: rows that reached sinks.
        failure: the error that ended the job; None: it ended well.
    """

    details: JobDetails
    reached: tuple[ReachedRow, ...]
    failure: Exception | None = None


def run_isolated(
    job_graph: JobGraph, rows: Mapping[str, RecordBatch], snapshot: SnapshotPath | None, clock: Clock
) -> Outcome:
    """Run a job with these rows and nothing else, beside whatever it does elsewhere. Blocks until it is over.

    Args:
        job_graph: streaming. Functions of users are called, and tables that joins ask are asked, as in any run.
        rows: by operator id of a source, what it gives; other sources give nothing.
        snapshot: whose state it has; None: none. It must fit (`check_fits`).
        clock: processing time.

    Raises:
        StateError: the state cannot be read, or the run takes longer than a minute.
    """
    name = f"isolated {next(_numbers)}"
    run = _runs[name] = _Run()
    cut_off = _cut_off(job_graph, rows, name)
    if not rows:
        run.sent.set()
    try:
        with tempfile.TemporaryDirectory(prefix="flowrun-why-") as folder, LocalCluster(clock) as cluster:
            return _ended(cluster.run(_opened(cut_off, snapshot, folder)), run)
    finally:
        del _runs[name]


def _ended(job: JobMaster, run: _Run) -> Outcome:
    failure: Exception | None = None
    waited = 0
    try:
        while not run.sent.wait(0.02) and not job.status().state.is_terminal:
            waited += 20
            if waited > TIMEOUT_MS:
                raise StateError(f"the row was not read within {TIMEOUT_MS // 1000} s", hint=_where(job.details()))
        job.stop(drain=False)
        if job.wait(TIMEOUT_MS) is None:
            raise StateError(f"the row was not processed within {TIMEOUT_MS // 1000} s", hint=_where(job.details()))
    except StateError:
        raise
    except Exception as error:
        failure = error
    finally:
        if not job.status().state.is_terminal:
            job.cancel()
            job.wait()
    return Outcome(job.details(), tuple(run.reached), failure)


def _where(details: JobDetails) -> str:
    busy = max(details.vertices, key=lambda v: v.status.busy_ms_per_s)
    return f"'{busy.status.name}' is at work: a function, or a table that is asked, takes long"


def check_fits(job_graph: JobGraph, snapshot: SnapshotPath) -> JobGraph:
    """The job graph with the key groups of a snapshot, where its sources and sinks do not matter.

    Raises:
        StateError: the state of an operator does not fit; says which, and why.
    """
    cut_off = _cut_off(job_graph, {}, "")
    comparison = compare(_without_ends(snapshot.metadata, cut_off), cut_off)
    comparison.check(True)
    adopted = {v.vertex_id: v.max_parallelism for v in comparison.job_graph.vertices}
    vertices = tuple(replace(v, max_parallelism=adopted[v.vertex_id]) for v in job_graph.vertices)
    return replace(job_graph, vertices=vertices)


def _opened(job_graph: JobGraph, snapshot: SnapshotPath | None, folder: str) -> OpenedState:
    lineage = "isolated"
    return OpenedState(
        job_graph=job_graph,
        storage=Savepoints(folder, job_graph.name, lineage=lineage),
        identity=JobIdentity(lineage, "", None, None),
        directory=folder,
        takes_checkpoints=False,
        next_checkpoint_id=1 if snapshot is None else snapshot.metadata.checkpoint_id + 1,
        restored=None if snapshot is None else RestorePoint(_without_ends(snapshot.metadata, job_graph), snapshot.root),
    )


def _without_ends(metadata: CheckpointMetadata, job_graph: JobGraph) -> CheckpointMetadata:
    """What a snapshot has of the operators between sources and sinks, and how far event time was in the sources."""
    kept = {
        operator.operator_id for vertex in job_graph.vertices for operator in vertex.operators if operator.sink is None
    }
    operators = {
        name: replace(saved, enumerator=None, finished=False)
        for name, saved in metadata.operators.items()
        if name in kept
    }
    return replace(metadata, operators=operators, in_flight=(), progress=(), hooks={})


def _cut_off(job_graph: JobGraph, rows: Mapping[str, RecordBatch], run: str) -> JobGraph:
    vertices = tuple(
        replace(vertex, operators=tuple(_replaced(operator, rows, run) for operator in vertex.operators))
        for vertex in job_graph.vertices
    )
    return replace(job_graph, vertices=vertices, settings=replace(job_graph.settings, checkpoint=None, restart=None))


def _replaced(operator: ChainedOperator, rows: Mapping[str, RecordBatch], run: str) -> ChainedOperator:
    factory = operator.factory
    if isinstance(factory, SourceOperatorFactory):
        source = GivenRows(factory.source.schema, run, rows.get(operator.operator_id))
        replaced = replace(factory, source=source, strategy=_standing_still(factory.strategy))
        return replace(operator, factory=replaced, source=source)
    if isinstance(factory, SinkOperatorFactory):
        sink = ObservedSink(factory.sink.schema, factory.name, run)
        return replace(operator, factory=replace(factory, sink=sink), sink=sink)
    if isinstance(factory, TimestampsAndWatermarksFactory):
        standing = _standing_still(factory.strategy)
        return replace(operator, factory=replace(factory, strategy=standing or factory.strategy))
    return operator


def _standing_still(strategy: WatermarkStrategy | None) -> WatermarkStrategy | None:
    """The strategy with the same event times and no watermarks; that of ingestion time, which only the clock knows, as it is."""
    if strategy is None or strategy.kind is WatermarkGeneration.INGESTION:
        return strategy
    return WatermarkStrategy.none(strategy.time, column=strategy.column)


def sources_of(job_graph: JobGraph) -> list[tuple[JobVertex, ChainedOperator]]:
    """The operators that read from outside, each with its vertex."""
    return [(v, o) for v in job_graph.vertices for o in v.operators if isinstance(o.factory, SourceOperatorFactory)]
