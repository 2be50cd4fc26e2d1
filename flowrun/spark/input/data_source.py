"""Makes the source of any connector a data source of Spark, through the Python Data Source API: its splits are input partitions.

The driver finds the splits and sends them along, so that Spark always plans and reads the same ones.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import ByteType, StructField, StructType

from flowrun.api.changelog import ChangelogMode, mode_of_source
from flowrun.api.source import Source, Split
from flowrun.connectors.formats.record_hints import leave_warnings_to_others
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.data_errors import NotNullCheck
from flowrun.spark.arrow import spark_arrow, spark_schema, unfit
from flowrun.spark.frame import KIND
from flowrun.spark.input.reading import find_splits, grouped, read_splits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "flowrun"
_REQUEST = "request"
_GROUPS_A_CORE = 4
_registered: WeakSet[SparkSession] = WeakSet()


@record
class _Request:
    """What Spark's Python workers are to read.

    Attributes:
        source: the source, whose own readers read.
        groups: the splits of each input partition.
        place: the name of the source in messages.
        changes: whether rows have their kinds.
    """

    source: Source
    groups: tuple[tuple[Split, ...], ...]
    place: str
    changes: bool


def read_source(session: SparkSession, source: Source, place: str) -> DataFrame:
    """The rows of a source, with its columns and, if they may be updates or deletes, `KIND`.

    Rows of one split stay in their order; so do the partitions of the DataFrame.
    """
    changes = mode_of_source(source) is not ChangelogMode.APPEND
    splits = find_splits(source, place)
    if is_in_process(source):
        return _read_here(session, source, splits, place, changes)
    parallelism = int(session.conf.get("spark.default.parallelism", "0") or 0) or _cores(session)
    groups = tuple(grouped(splits, max(1, parallelism) * _GROUPS_A_CORE))
    _register(session)
    request = base64.b64encode(cloudpickle.dumps(_Request(source, groups, place, changes))).decode()
    reader = session.read.format(_NAME).schema(_row_type(source, changes)).option(_REQUEST, request)
    return reader.load()


def _register(session: SparkSession) -> None:
    if session in _registered:
        return
    with _active(session):
        session.dataSource.register(_FlowrunSource)
    _registered.add(session)


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """A context in which a session is the active one: by mistake Spark looks for the data sources of a new session in the active one."""
    jvm = getattr(session, "_jvm", None)
    if jvm is None:  # Spark Connect
        yield
        return
    before = jvm.SparkSession.getActiveSession()
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            jvm.SparkSession.setActiveSession(before.get())
        else:
            jvm.SparkSession.clearActiveSession()


def is_in_process(part: object) -> bool:
    """Whether the rows of a source or sink live in this process, so that no worker can reach them (`memory`, `print`)."""
    return bool(getattr(part, "in_process", False))


def _cores(session: SparkSession) -> int:
    try:
        return int(session.sparkContext.defaultParallelism)
    except AttributeError:  # Spark Connect has no context here
        return 8


def _row_type(source: Source, changes: bool) -> StructType:
    fields = list(spark_schema(source.schema).fields)
    return StructType([*fields, StructField(KIND, ByteType())] if changes else fields)


def _arrow_schema(source: Source, changes: bool) -> pa.Schema:
    fields = [pa.field(f.name, spark_arrow(f.type)) for f in source.schema]
    return pa.schema([*fields, pa.field(KIND, pa.int8())] if changes else fields)


def _rows(source: Source, splits: Sequence[Split], place: str, changes: bool) -> Iterator[pa.RecordBatch]:
    check = NotNullCheck(source.schema, place, upserts=mode_of_source(source) is ChangelogMode.UPSERT)
    schema = _arrow_schema(source, changes)
    for batch in read_splits(source, splits, place):
        check.check_rows(batch)
        columns = list(unfit(batch.columns, source.schema).columns)
        if changes:
            columns.append(_kinds(batch))
        if columns:
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        else:
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))


def _kinds(batch: RecordBatch) -> pa.Int8Array:
    return pa.array(np.zeros(batch.num_rows, np.int8)) if batch.row_kinds is None else batch.row_kinds


def _read_here(session: SparkSession, source: Source, splits: Sequence[Split], place: str, changes: bool) -> DataFrame:
    batches = list(_rows(source, splits, place, changes))
    if not batches:
        return session.createDataFrame([], _row_type(source, changes))
    return session.createDataFrame(
        pa.Table.from_batches(batches, _arrow_schema(source, changes)), _row_type(source, changes)
    )


class _FlowrunSource(DataSource):  # type: ignore[misc]
    """The data source `flowrun`."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(cast(_Request, pickle.loads(base64.b64decode(self.options[_REQUEST]))))


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, request: _Request) -> None:
        self._request = request

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each group of splits; a single empty one if there are no splits."""
        return [InputPartition(group) for group in self._request.groups or ((),)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a group of splits, read in a worker process of Spark."""
        leave_warnings_to_others()
        request = self._request
        return _rows(request.source, partition.value, request.place, request.changes)
