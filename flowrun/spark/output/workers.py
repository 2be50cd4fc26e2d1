"""Runs the writers of a connector's sink in Spark's Python workers: each task writes its rows and returns its committables."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from flowrun.api.sink import Committable, Sink, WriterContext
from flowrun.core.clock import SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.connector_errors import named
from flowrun.runtime.metrics import ScopedMetrics
from flowrun.spark.arrow import fit
from flowrun.spark.input.reading import ProcessingTimers

if TYPE_CHECKING:
    from flowrun.spark.frame import SparkFrame

_ANSWER = "rows BIGINT, committables BINARY"
_ANSWER_ARROW = pa.schema([("rows", pa.int64()), ("committables", pa.binary())])


@record
class WriteTask:
    """How to write one sink.

    Attributes:
        sink: the sink, whose writers write.
        place: the name of the sink in messages.
        attempt: the beginning of temporary and final file names.
        owner: the owner in temporary file names, which is the same for all runs.
        parallelism: how many subtasks write.
        identity: the name of the files of a table by key; empty: it is no such table.
    """

    sink: Sink
    place: str
    attempt: str
    owner: str
    parallelism: int = 1
    identity: str = ""


@record
class Written:
    """How many rows writers wrote, and their committables in the order of subtasks."""

    rows: int
    committables: tuple[Committable, ...]


def write_in_workers(task: WriteTask, frame: SparkFrame) -> Written:
    """Write the rows of a frame without their event times; each partition has a writer."""
    pipe = frame.pipe
    if pipe is None:
        answers = frame.without_time().data.mapInArrow(_in_worker(task), _ANSWER).toArrow()
    else:
        answers = pipe.source.mapInArrow(pipe.then(_in_worker(task), len(frame.schema)), _ANSWER).toArrow()
    found: list[Committable] = []
    for blob in answers.column("committables").to_pylist():
        found += pickle.loads(blob)
    return Written(sum(answers.column("rows").to_pylist()), tuple(found))


def _in_worker(task: WriteTask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return partial(_write_partition, task)


def _write_partition(task: WriteTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    subtask, attempt = (0, "0") if context is None else (context.partitionId(), str(context.taskAttemptId()))
    fitted = (RecordBatch(fit(b, task.sink.schema)) for b in batches if b.num_rows)
    written = write_rows(task, fitted, subtask, f"{task.attempt}_{attempt}")
    if written.rows or written.committables:
        yield pa.RecordBatch.from_arrays(
            [pa.array([written.rows]), pa.array([pickle.dumps(list(written.committables))])], schema=_ANSWER_ARROW
        )


def write_rows(task: WriteTask, batches: Iterable[RecordBatch], subtask: int, attempt: str) -> Written:
    """Write all rows with one writer. It blocks on I/O.

    Raises:
        ConnectorError: the rows cannot be written; nothing of them is left.
        DataError: a value cannot be written.
    """
    timers = ProcessingTimers(SystemClock())
    rows = 0
    first = next(iterator := iter(batches), None)
    if first is None:  # without rows there is no writer, and so no empty file
        return Written(0, ())
    context = WriterContext(
        subtask=subtask,
        parallelism=task.parallelism,
        attempt=attempt,
        clock=timers.clock,
        processing_time=timers,
        metrics=ScopedMetrics((task.place,)),
        pause=_pause,
        owner=task.owner,
        operator_id=task.owner,
        identity=task.identity,
    )
    with named(task.place):
        writer = task.sink.create_writer(context)
    try:
        with named(task.place):
            writer.open()
        for batch in _behind(first, iterator):  # the iterator itself may fail, where the rows are computed
            with named(task.place):
                writer.write(batch)
            rows += batch.num_rows
        with named(task.place):
            writer.flush(end_of_input=True)
            committables: Sequence[Committable] = writer.prepare_commit()
    finally:
        with named(task.place):
            writer.close()
    return Written(rows, tuple(committables))


def _behind(first: RecordBatch, rest: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    yield first
    yield from rest


def _pause(ms: float) -> None:
    time.sleep(max(ms, 0) / 1000)
