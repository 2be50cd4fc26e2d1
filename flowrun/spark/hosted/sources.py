"""Reads the splits of a source in Spark tasks, up to a point in event time; each task reports the position at which a stream goes on."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.operator import InputStatus, SourceOperator
from flowrun.api.source import HandsOutAtOnce, JsonValue, Source, Split
from flowrun.connectors.formats.record_hints import leave_warnings_to_others
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA
from flowrun.core.schema import Schema
from flowrun.errors import FlowrunError, InternalError, JobFailedError
from flowrun.graph.job_graph import IntermediateDataSet, JobSettings, JobVertex, OutputEdge, ResultType
from flowrun.graph.partitioner import ForwardPartitioner
from flowrun.operators.row_failures import DEAD_LETTERS
from flowrun.operators.source import SPLITS
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.task.chain import ChainEnvironment, OperatorChain
from flowrun.spark.hosted.destinations import Destination, DestinationWriter
from flowrun.spark.hosted.processing_time import StillTime
from flowrun.spark.hosted.tallies import NodeTally
from flowrun.spark.hosted.wire import Sent, encode, encode_note, stage_arrow, stage_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@record(eq=False)
class FoundSplits:
    """All splits of a source, and the state of an enumerator that has handed them out."""

    splits: tuple[Split, ...]
    enumerator: JsonValue


@record(eq=False)
class ReadSplit:
    """What a task reports of the split that it read.

    Attributes:
        number: the number of the split, in the order in which splits were found.
        left: the split that a stream goes on with, at the batch of the first row that is not before the end of the backfill. Empty: there
            was no such row.
        timed: whether rows had event times.
    """

    number: int
    left: tuple[Split, ...]
    timed: bool


@record(eq=False)
class SourceRun:
    """A source vertex and how far to read it. It can be pickled.

    Attributes:
        vertex: the vertex, whose first operator reads the source.
        settings: the settings of the job.
        now_ms: processing time.
        until_ms: rows with this event time or a later one are left to the stream; None: everything is read.
        splits: the splits in the order of their numbers.
        ends: whether each split has an end, up to which it is read.
        letters: whether dead letters are wanted instead of rows.
        tally: counts the rows that are left out; None: they are not counted.
    """

    vertex: JobVertex
    settings: JobSettings
    now_ms: int
    until_ms: int | None = None
    splits: tuple[Split, ...] = field(default_factory=tuple)
    ends: bool = True
    letters: bool = False
    tally: NodeTally | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the rows or of the dead letters."""
        return DEAD_LETTER_SCHEMA if self.letters else self.vertex.operators[0].schema


def find_splits(source: Source, parallelism: int, clock: Clock, until_ms: int | None = None) -> FoundSplits:
    """All splits that a source's enumerator finds now; of a source that is divided by time those with rows before `until_ms` (None: all).

    It blocks on I/O.
    """
    enumerator = source.create_enumerator(parallelism, clock)
    try:
        enumerator.start()
        at_once: object = enumerator
        splits: list[Split] = []
        if isinstance(at_once, HandsOutAtOnce):
            splits += at_once.take_before(until_ms)
            return FoundSplits(tuple(splits), enumerator.snapshot())
        while True:
            found = [s for s in (enumerator.next_split(subtask) for subtask in range(parallelism)) if s is not None]
            if not found:
                return FoundSplits(tuple(splits), enumerator.snapshot())
            splits += found
    finally:
        enumerator.close()


def read_splits(session: SparkSession, run: SourceRun) -> DataFrame:
    """The rows of a source's splits as a stage with one destination; each split is a partition, and its task sends a note."""
    destinations = [run.schema]
    count = max(len(run.splits), 1)
    numbers = session.range(len(run.splits)).selectExpr("CAST(id AS INT) AS number")
    return numbers.repartitionById(count, "number").mapInArrow(_split_function(run), stage_type(destinations))


def _split_function(run: SourceRun) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)
        leave_warnings_to_others()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_split(run, number)

    return read


def read_split(run: SourceRun, number: int) -> Iterator[pa.RecordBatch]:
    """The rows of one split, then a note (`ReadSplit`).

    Raises:
        JobFailedError: the split cannot be read; the message names the source.
    """
    return _SplitTask(run, number).read()


class _SplitTask:
    def __init__(self, run: SourceRun, number: int) -> None:
        self._run = run
        self._number = number
        self._split = run.splits[number]
        operator = run.vertex.operators[0]
        assert operator.source is not None
        self._time = StillTime(run.now_ms)
        schema = run.schema
        tag = DEAD_LETTERS if run.letters else None
        destination = Destination(schema, partitioner=ForwardPartitioner(), channels=run.vertex.parallelism)
        self._writer = DestinationWriter(destination, number)
        self._form = stage_arrow([schema])
        self._metrics = MetricRegistry()
        result = IntermediateDataSet("rows", run.vertex.vertex_id, ResultType.BLOCKING, ForwardPartitioner())
        alone = replace(
            run.vertex,
            operators=(operator,),
            chain_edges=(),
            output_edges=(OutputEdge(0, 0, ForwardPartitioner(), schema, tag),),
            results=(result,),
            parallelism=1,
        )
        environment = ChainEnvironment(
            subtask=0,
            clock=self._time.clock,
            processing_time=self._time,
            metrics=self._metrics,
            execute=self._time.put,
            pause=self._time.pause,
            job_id="",
            settings=run.settings,
        )
        self._chain = OperatorChain(alone, [self._writer], environment)
        self._requests = 0
        self._handed_out = False
        self._left: tuple[Split, ...] | None = None
        self._timed = False

    def read(self) -> Iterator[pa.RecordBatch]:
        try:
            operator = self._open()
            status = InputStatus.MORE_AVAILABLE
            while status is not InputStatus.END_OF_INPUT and not self._has_passed():
                before = self._positions()
                status = operator.emit_next()
                yield from self._taken(before)
                self._time.settle()
                self._answer()
                if status is InputStatus.NOTHING_AVAILABLE:
                    self._time.wait_or_jump()
            yield encode_note(pickle.dumps(ReadSplit(self._number, self._left or (), self._timed)), self._form)
            if self._run.tally is not None and not self._run.letters:
                self._run.tally.tell(self._number, self._run.vertex, self._metrics)
        except FlowrunError as error:
            raise self._failure(error, error.hint) from error
        except Exception as error:
            raise self._failure(error, None) from error
        finally:
            self._chain.close()

    def _open(self) -> SourceOperator:
        chain = self._chain
        chain.build()
        source = chain.source
        if source is None:
            raise InternalError(f"'{chain.name_of(0)}' is no source whose splits are handed out")
        source.connect(self._request)
        operator: SourceOperator = chain.operators[0]  # type: ignore[assignment]  # the first operator of a source vertex
        operator.set_availability_listener(self._time.wake)
        chain.initialize_state()
        chain.open()
        self._time.settle()
        self._answer()
        return operator

    def _request(self) -> None:
        self._requests += 1

    def _answer(self) -> None:
        source = self._chain.source
        assert source is not None
        while self._requests:
            self._requests -= 1
            if self._handed_out:
                source.notify_no_more_splits()
            else:
                self._handed_out = True
                source.add_splits([self._split])

    def _positions(self) -> tuple[Split, ...]:
        if self._run.until_ms is None or self._left is not None:
            return ()
        state = self._chain.operators[0].snapshot_state(0).operator[SPLITS]
        return tuple(Split(r["split_id"], orjson.loads(r["position"])) for r in state.rows.to_pylist())

    def _taken(self, before: tuple[Split, ...]) -> Iterator[pa.RecordBatch]:
        sent = self._writer.take()
        if sent is None:
            return
        rows, until = sent.rows, self._run.until_ms
        if rows.timestamps is not None:
            self._timed = True
            if until is not None:
                early = pc.less(rows.timestamps, until)
                if self._left is None and not pc.all(early).as_py():
                    self._left = before
                sent = _only(sent, early)
        if sent.rows.num_rows:
            yield encode(0, sent, self._run.schema, self._form)

    def _has_passed(self) -> bool:
        """Whether a split without end has reached a watermark after which no row before the end of the backfill is expected."""
        until = self._run.until_ms
        passed = until is not None and self._left is not None and self._writer.watermark >= until - 1
        return passed and not self._run.ends

    def _failure(self, error: Exception, hint: str | None) -> JobFailedError:
        name = self._chain.name_of(0)
        return JobFailedError(f"operator '{name}' failed: {describe_error(error)}", operator=name, hint=hint)


def _only(sent: Sent, mask: pa.BooleanArray) -> Sent:
    chosen = mask.to_numpy(zero_copy_only=False)
    return Sent(
        sent.rows.filter(mask),
        sent.first,
        None if sent.order is None else sent.order[chosen],
        None if sent.targets is None else sent.targets[chosen],
    )
