"""The form in which rows leave one stage and enter the next.

A stage gives one DataFrame with a struct column for each destination that its rows go to: `edge` says which of them a row is in. Columns of
structs are numbered, so that no name of a user's can be in the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Int32s, Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.spark.arrow import fit, spark_arrow, spark_data_type, unfit

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EDGE = "edge"
"""INT: the destination of the row; `NOTE` for a note of the task."""
TARGET = "target"
"""INT: the subtask that gets the row; NULL if it stays in its partition or the reader chooses the subtask."""
ORDER = "ord"
"""BIGINT: the order in which rows are processed: their event time, or, for changes, the greatest one so far. NULL: no event time."""
SEQUENCE = "seq"
"""BIGINT: the order in which their producer sent rows that are equal in `ORDER`."""
TIME = "time"
"""BIGINT: the event time in ms since the epoch."""
KIND = "kind"
"""TINYINT: the row kind; NULL: an insert."""
CONTENT = "note"
"""BINARY: a note of the task, pickled."""
INPUT = "input"
"""INT: the input of the next stage."""
ROW = "row"
"""The struct of a row's columns in a flow."""
NOTE = -1

_HEAD = pa.schema(
    [(EDGE, pa.int32()), (TARGET, pa.int32()), (ORDER, pa.int64()), (SEQUENCE, pa.int64()), (TIME, pa.int64()), (KIND, pa.int8())]
)  # fmt: skip


def row_column(number: int) -> str:
    """The name of the struct column of the rows of one destination."""
    return f"r{number}"


def field_names(schema: Schema) -> list[str]:
    """Names of the columns inside a struct."""
    return [f"c{i}" for i in range(len(schema))]


def row_type(schema: Schema) -> StructType:
    """The struct of a row as a Spark type."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(n, spark_data_type(t)) for n, t in zip(field_names(schema), schema.types, strict=True)]
    )


def plain_type(schema: Schema, *, timed: bool) -> StructType:
    """The columns that a plain stage gives: those of a row, and its event time if it has one."""
    from pyspark.sql import types as spark

    times = [spark.StructField(TIME, spark.LongType())] if timed else []
    return spark.StructType([*row_type(schema).fields, *times])


def decode_plain(batch: pa.RecordBatch, schema: Schema) -> RecordBatch:
    """The rows that a plain stage gets: a batch of their columns, and perhaps of their event times."""
    count = len(schema)
    columns = pa.RecordBatch.from_arrays(fit(batch.select(range(count)), schema).columns, schema=schema.arrow)
    times = batch.column(count) if batch.num_columns > count else None
    return RecordBatch(columns, None if times is None or times.null_count else times)


def encode_plain(rows: RecordBatch, schema: Schema, *, timed: bool) -> pa.RecordBatch:
    """Rows as a plain stage gives them, with their event times if they are `timed`."""
    columns, names = list(unfit(rows.columns, schema).columns), field_names(schema)
    if timed:
        columns.append(pa.nulls(rows.num_rows, pa.int64()) if rows.timestamps is None else rows.timestamps)
        names.append(TIME)
    return pa.RecordBatch.from_arrays(columns, names=names)


def stage_type(destinations: Sequence[Schema]) -> StructType:
    """The columns that a stage gives."""
    from pyspark.sql import types as spark

    head = [
        spark.StructField(EDGE, spark.IntegerType()),
        spark.StructField(TARGET, spark.IntegerType()),
        spark.StructField(ORDER, spark.LongType()),
        spark.StructField(SEQUENCE, spark.LongType()),
        spark.StructField(TIME, spark.LongType()),
        spark.StructField(KIND, spark.ByteType()),
    ]
    rows = [spark.StructField(row_column(i), row_type(schema)) for i, schema in enumerate(destinations)]
    return spark.StructType([*head, *rows, spark.StructField(CONTENT, spark.BinaryType())])


def stage_arrow(destinations: Sequence[Schema]) -> pa.Schema:
    """The columns that a stage gives, in Arrow."""
    rows = [
        pa.field(
            row_column(i),
            pa.struct(list(zip(field_names(schema), [spark_arrow(t) for t in schema.types], strict=True))),
        )
        for i, schema in enumerate(destinations)
    ]
    return pa.schema([*_HEAD, *rows, pa.field(CONTENT, pa.binary())])


@record(eq=False)
class Sent:
    """Rows for a destination. `order` is None if they have no event time, `targets` if they stay in their partition."""

    rows: RecordBatch
    first: int
    order: Integers | None
    targets: Int32s | None


def encode(destination: int, sent: Sent, schema: Schema, form: pa.Schema) -> pa.RecordBatch:
    """Rows in the form in which a stage gives them; `form` is the result of `stage_arrow`."""
    rows = sent.rows
    count = rows.num_rows
    struct = pa.StructArray.from_arrays(unfit(rows.columns, schema).columns, names=field_names(schema))
    given = {
        EDGE: pa.array(np.full(count, destination, np.int32)),
        TARGET: None if sent.targets is None else pa.array(sent.targets),
        ORDER: None if sent.order is None else pa.array(sent.order),
        SEQUENCE: pa.array(np.arange(sent.first, sent.first + count)),
        TIME: rows.timestamps,
        KIND: rows.row_kinds,
        row_column(destination): struct,
    }
    columns = [given.get(f.name) for f in form]
    return pa.RecordBatch.from_arrays(
        [pa.nulls(count, f.type) if c is None else c for c, f in zip(columns, form, strict=True)], schema=form
    )


def encode_note(content: bytes, form: pa.Schema) -> pa.RecordBatch:
    """A note of a task as a row."""
    given = {EDGE: pa.array([NOTE], pa.int32()), CONTENT: pa.array([content], pa.binary())}
    return pa.RecordBatch.from_arrays([given.get(f.name, pa.nulls(1, f.type)) for f in form], schema=form)


def decode(batch: pa.RecordBatch, inputs: Sequence[Schema]) -> list[tuple[int, RecordBatch]]:
    """(an input, its rows), in order, of a batch that a stage gets, which has `INPUT`, `TIME`, `KIND` and a struct for each input."""
    if len(inputs) == 1:
        return [(0, _rows(batch, 0, inputs[0]))]
    which = batch.column(INPUT).to_numpy()
    parts = []
    for number, schema in enumerate(inputs):
        mine = np.flatnonzero(which == number)
        if len(mine):
            part = batch if len(mine) == batch.num_rows else batch.take(pa.array(mine))
            parts.append((number, _rows(part, number, schema)))
    return parts


def _rows(batch: pa.RecordBatch, number: int, schema: Schema) -> RecordBatch:
    struct = batch.column(row_column(number))
    plain = pa.RecordBatch.from_arrays(struct.flatten(), names=field_names(schema))
    columns = pa.RecordBatch.from_arrays(fit(plain, schema).columns, schema=schema.arrow)
    times, kinds = batch.column(TIME), batch.column(KIND)
    if kinds.null_count == len(kinds):
        kinds = None
    elif kinds.null_count:
        kinds = kinds.fill_null(0)
    return RecordBatch(columns, None if times.null_count else times, kinds)
