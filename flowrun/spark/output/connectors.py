"""Writes to sinks of all connectors but files, with the connector's own writers and committer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.sink import Committer, OrphanDiscarding
from flowrun.api.sink import Sink as SinkDescription
from flowrun.connectors.staged.commit import waits_for_checkpoints
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.operators.connector_errors import named
from flowrun.plan.nodes import Calc, PlanNode, Sink
from flowrun.plan.relational import Rank, TemporalSort
from flowrun.spark.arrow import from_spark
from flowrun.spark.frame import EVENT_TIME, SparkFrame, quoted
from flowrun.spark.input.data_source import is_in_process
from flowrun.spark.output.job import OutputJob, StagedOutput, name_of, place
from flowrun.spark.output.names import output_name
from flowrun.spark.output.workers import WriteTask, Written, write_in_workers, write_rows

_BATCH_ROWS = 65_536


def stage_rows(sink: Sink, described: SinkDescription, frame: SparkFrame, job: OutputJob) -> StagedOutput:
    """Write the rows of a sink that is no folder of files, or keep them until the commit.

    Args:
        sink: a sink of the plan.
        described: the sink of its connector.
        frame: the rows, perhaps with event time.
        job: the job that writes them.
    """
    name = output_name(job, name_of(sink))
    task = WriteTask(described, place(sink), name.attempt, f"{name.owner}-{name.run}")
    if is_in_process(described):
        return _Collected(name_of(sink), task, _rows_here(sink, frame))
    with named(place(sink)):
        committer = described.create_committer()
    if committer is None or waits_for_checkpoints(described):
        return _kept(name_of(sink), task, frame.without_time())
    try:
        return _Precommitted(name_of(sink), task, committer, write_in_workers(task, frame))
    except BaseException:
        _discard_orphans(committer, task)
        raise


def _discard_orphans(committer: Committer, task: WriteTask) -> None:
    """Remove the output of tasks that had ended when another task failed."""
    if isinstance(committer, OrphanDiscarding):
        committer.discard_orphans(task.owner, ())


# -- sinks that live in this process ---------------------------------------------------------------------------------------------------


@dataclass
class _Collected:
    """Rows in this process, for sinks such as `print` and `memory`."""

    runs_on_commit: ClassVar[bool] = False

    name: str
    task: WriteTask
    table: pa.Table
    done: bool = field(default=False, init=False)

    @property
    def rows(self) -> int:
        rows: int = self.table.num_rows
        return rows

    def commit(self) -> None:
        if not self.done:
            self.done = True
            write_rows(self.task, map(RecordBatch, self.table.to_batches(_BATCH_ROWS)), 0, self.task.attempt)

    def abort(self) -> None:
        self.done = True


def _rows_here(sink: Sink, frame: SparkFrame) -> pa.Table:
    """All rows in an order that is the same in every run: that of the query if it has one, else by event time and values."""
    schema = frame.schema
    if frame.event_time:
        schema = Schema((*schema.fields, Field(EVENT_TIME, BIGINT)))
    table = from_spark(frame.data.selectExpr(*map(quoted, schema.names)), schema)
    if not _is_ordered(sink.input):
        keys = [n for n in reversed(schema.names) if n == EVENT_TIME] + [
            f.name for f in frame.schema if not f.type.is_nested and not pa.types.is_null(f.type.arrow)
        ]
        if keys and table.num_rows > 1:
            sort_keys = [(key, "ascending", "at_start") for key in keys]
            table = table.take(pc.sort_indices(table, sort_keys=sort_keys))
    return table.select(list(frame.schema.names))


def _is_ordered(node: PlanNode) -> bool:
    while isinstance(node, Calc):
        node = node.input
    return isinstance(node, TemporalSort) or (isinstance(node, Rank) and not node.partition)


# -- sinks that workers write to -------------------------------------------------------------------------------------------------------


@dataclass
class _Precommitted:
    """Rows that tasks have written; the connector's committer makes them visible."""

    runs_on_commit: ClassVar[bool] = True

    name: str
    task: WriteTask
    committer: Committer
    written: Written
    done: bool = field(default=False, init=False)

    @property
    def rows(self) -> int:
        return self.written.rows

    def commit(self) -> None:
        if not self.done:
            with named(self.task.place):
                self.committer.commit(self.written.committables)
            self.done = True

    def abort(self) -> None:
        if not self.done:
            self.done = True
            with named(self.task.place):
                self.committer.abort(self.written.committables)
                _discard_orphans(self.committer, self.task)


@dataclass
class _Kept:
    """Rows that Spark keeps for a sink that shows rows as soon as they are written: the commit writes them."""

    runs_on_commit: ClassVar[bool] = True

    name: str
    task: WriteTask
    frame: SparkFrame
    rows: int
    done: bool = field(default=False, init=False)

    def commit(self) -> None:
        if not self.done:
            write_in_workers(self.task, self.frame)
            self.abort()

    def abort(self) -> None:
        if not self.done:
            self.done = True
            self.frame.data.unpersist()


def _kept(name: str, task: WriteTask, frame: SparkFrame) -> _Kept:
    from pyspark import StorageLevel

    data = frame.data.persist(StorageLevel.DISK_ONLY)
    try:
        return _Kept(name, task, SparkFrame(data, frame.schema), data.count())
    except BaseException:
        data.unpersist()
        raise
