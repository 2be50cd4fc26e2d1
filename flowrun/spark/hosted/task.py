"""Runs one subtask of a job vertex in a Spark task. It gets sorted rows, as if a stream without disorder sent them.

It runs in Spark's Python workers: nothing here may need a Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import FlowrunError, JobCancelledError, JobFailedError
from flowrun.graph.job_graph import JobSettings, JobVertex
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.metrics import MetricRegistry
from flowrun.runtime.task.chain import ChainEnvironment, OperatorChain
from flowrun.spark.hosted.destinations import Destination, DestinationWriter
from flowrun.spark.hosted.processing_time import StillTime
from flowrun.spark.hosted.tallies import NodeTally
from flowrun.spark.hosted.wire import ORDER, decode, decode_plain, encode, encode_note, encode_plain, stage_arrow

_SENT_AT_ONCE = 65_536
"""How many rows for a destination are collected before they are sent on together."""


class Ending(Protocol):
    """What happens after all rows were processed. It can be pickled."""

    def end(
        self, chain: OperatorChain, writers: Sequence[DestinationWriter], subtask: int, inputs: int
    ) -> bytes | None:
        """End the chain; gives a note for the driver, or None."""
        ...


@record
class EndOfInput:
    """Ends bounded input: event time ends, and then the input."""

    def end(self, chain: OperatorChain, writers: Sequence[DestinationWriter], subtask: int, inputs: int) -> None:
        """Fire all timers and windows."""
        for number in range(inputs):
            chain.process_event(Watermark(MAX_TIMESTAMP), number)
        for number in range(inputs):
            chain.end_input(number)
        chain.finish()


@record(eq=False)
class Stage:
    """A job vertex as Spark runs it. It can be pickled.

    Attributes:
        vertex: the vertex, whose sources and sinks are replaced.
        inputs: the columns of each input.
        destinations: where rows go, one destination for each result of the vertex.
        settings: the settings of the job.
        now_ms: processing time.
        ending: what happens at the end of the input.
        ordered: whether rows come in the order of `wire.ORDER`, so that watermarks can follow them.
        lags: for each input by how many ms watermarks are behind its rows; None: it has no watermarks.
        alone: whether each partition is run as if it were the only subtask.
        plain: whether there is one input and one destination, and only rows and their event times are exchanged with Spark, which costs
            half as much as the general form.
        timed: whether the rows of a plain stage have event times.
        tally: counts the rows that are left out; None: they are not counted.
    """

    vertex: JobVertex
    inputs: tuple[Schema, ...]
    destinations: tuple[Destination, ...]
    settings: JobSettings
    now_ms: int
    ending: Ending
    ordered: bool
    lags: tuple[int | None, ...]
    alone: bool
    plain: bool = False
    timed: bool = False
    tally: NodeTally | None = None


def stage_function(stage: Stage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        pa.set_cpu_count(1)  # Spark runs as many tasks as there are cores
        task = TaskContext.get()
        return run_stage(stage, 0 if task is None else task.partitionId(), batches)

    return run


def run_stage(stage: Stage, partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches that one partition gives for its batches.

    Raises:
        JobFailedError: an operator failed; the message says which one, and why.
    """
    return _StageTask(stage, partition).run(batches)


class _StageTask:
    def __init__(self, stage: Stage, partition: int) -> None:
        self._stage = stage
        self._partition = partition
        vertex = replace(stage.vertex, parallelism=1) if stage.alone else stage.vertex
        self._subtask = 0 if stage.alone else partition
        self._time = StillTime(stage.now_ms)
        self._writers = [DestinationWriter(destination, partition) for destination in stage.destinations]
        self._form = stage_arrow([destination.schema for destination in stage.destinations])
        self._metrics = MetricRegistry()
        environment = ChainEnvironment(
            subtask=self._subtask,
            clock=self._time.clock,
            processing_time=self._time,
            metrics=self._metrics,
            execute=self._time.put,
            pause=self._time.pause,
            job_id="",
            settings=stage.settings,
            speaks_for_all=partition == 0,
        )
        self._chain = OperatorChain(vertex, self._writers, environment)
        self._reached = MIN_TIMESTAMP

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain, ending = self._chain, self._stage.ending
        try:
            chain.build()
            chain.initialize_state()
            chain.open()
            self._time.settle()
            for batch in batches:
                if batch.num_rows:
                    self._process(batch)
                    yield from self._sent(_SENT_AT_ONCE)
            note = ending.end(chain, self._writers, self._subtask, len(self._stage.inputs))
            self._time.settle()
            for writer in self._writers:
                writer.finish()
            yield from self._sent(0)
            if note is not None:
                yield encode_note(note, self._form)
            if self._stage.tally is not None:
                self._stage.tally.tell(self._partition, self._stage.vertex, self._metrics)
        except Exception as error:
            raise self._failure(error) from error
        finally:
            chain.close()

    def _process(self, batch: pa.RecordBatch) -> None:
        stage, chain = self._stage, self._chain
        for number, rows in [(0, decode_plain(batch, stage.inputs[0]))] if stage.plain else decode(batch, stage.inputs):
            chain.process_batch(rows, number)
        self._time.settle()
        last = batch.column(ORDER)[batch.num_rows - 1].as_py() if stage.ordered else None
        if last is None or last <= self._reached:
            return
        self._reached = last
        for number, lag in enumerate(stage.lags):
            if lag is not None:
                chain.process_event(Watermark(last - 1 - lag), number)
        self._time.settle()

    def _sent(self, at_least: int) -> Iterator[pa.RecordBatch]:
        for number, (writer, destination) in enumerate(zip(self._writers, self._stage.destinations, strict=True)):
            if writer.rows >= max(at_least, 1):
                sent = writer.take()
                if sent is not None and self._stage.plain:
                    yield encode_plain(sent.rows, destination.schema, timed=self._stage.timed)
                elif sent is not None:
                    yield encode(number, sent, destination.schema, self._form)

    def _failure(self, error: Exception) -> Exception:
        noted = self._chain.failure
        if isinstance(error, JobFailedError | JobCancelledError) or noted is None or noted.error is not error:
            return error
        where = "" if self._stage.alone else f", subtask {self._subtask + 1} of {self._stage.vertex.parallelism},"
        hint = error.hint if isinstance(error, FlowrunError) else None
        message = f"operator '{noted.operator}'{where} failed: {describe_error(error)}"
        return JobFailedError(message, operator=noted.operator, subtask=self._subtask, hint=hint)
