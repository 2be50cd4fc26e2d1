"""Converts between flowrun's Arrow types and those in which Spark gives and takes columns.

Where flowrun has ms, Spark has microseconds; intervals and nanoseconds are numbers in Spark (see `spark_text.is_counted`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import DataError
from flowrun.functions.spark_text import is_counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType as SparkType
    from pyspark.sql.types import StructType


def spark_schema(schema: Schema) -> StructType:
    """The columns with Spark's types; each may be NULL."""
    from pyspark.sql.types import StructField, StructType

    fields = zip(schema.names, schema.types, strict=True)
    return StructType([StructField(name, spark_data_type(type)) for name, type in fields])


def spark_data_type(type: DataType) -> SparkType:
    """The Spark type whose name is `spark_text.spark_type`."""
    from pyspark.sql import types as spark

    if is_counted(type):
        return spark.IntegerType() if type.root is TypeRoot.INTERVAL_YEAR_MONTH else spark.LongType()
    match type.root:
        case TypeRoot.DECIMAL:
            return spark.DecimalType(type.precision or 10, type.scale or 0)
        case TypeRoot.TIME:
            return spark.TimeType(type.precision or 0)
        case TypeRoot.ARRAY:
            return spark.ArrayType(spark_data_type(type.children[0]))
        case TypeRoot.MAP:
            return spark.MapType(*(spark_data_type(c) for c in type.children))
        case TypeRoot.ROW:
            inner = zip(type.names, type.children, strict=True)
            return spark.StructType([spark.StructField(name, spark_data_type(child)) for name, child in inner])
    simple: dict[TypeRoot, Callable[[], Any]] = {
        TypeRoot.NULL: spark.NullType,
        TypeRoot.BOOLEAN: spark.BooleanType,
        TypeRoot.TINYINT: spark.ByteType,
        TypeRoot.SMALLINT: spark.ShortType,
        TypeRoot.INTEGER: spark.IntegerType,
        TypeRoot.BIGINT: spark.LongType,
        TypeRoot.FLOAT: spark.FloatType,
        TypeRoot.DOUBLE: spark.DoubleType,
        TypeRoot.VARIANT: spark.StringType,
        TypeRoot.CHAR: spark.StringType,
        TypeRoot.VARCHAR: spark.StringType,
        TypeRoot.BINARY: spark.BinaryType,
        TypeRoot.VARBINARY: spark.BinaryType,
        TypeRoot.DATE: spark.DateType,
        TypeRoot.TIMESTAMP: spark.TimestampNTZType,
        TypeRoot.TIMESTAMP_LTZ: spark.TimestampType,
    }
    made: SparkType = simple[type.root]()
    return made


@lru_cache(maxsize=4096)
def spark_arrow(type: DataType) -> pa.DataType:
    """The Arrow type in which Spark gives and takes a column of a type.

    >>> from flowrun.core.types import INTERVAL_DAY_TIME, time, timestamp
    >>> spark_arrow(timestamp(3)), spark_arrow(time(0)), spark_arrow(INTERVAL_DAY_TIME)
    (TimestampType(timestamp[us]), Time64Type(time64[ns]), DataType(int64))
    """
    if is_counted(type):
        return pa.int32() if type.root is TypeRoot.INTERVAL_YEAR_MONTH else pa.int64()
    match type.root:
        case TypeRoot.TIME:
            return pa.time64("ns")
        case TypeRoot.VARIANT:
            return pa.string()
        case TypeRoot.TIMESTAMP:
            return pa.timestamp("us")
        case TypeRoot.TIMESTAMP_LTZ:
            return pa.timestamp("us", "UTC")
        case TypeRoot.ARRAY:
            return pa.list_(spark_arrow(type.children[0]))
        case TypeRoot.MAP:
            return pa.map_(*(spark_arrow(c) for c in type.children))
        case TypeRoot.ROW:
            inner = zip(type.names, type.children, strict=True)
            return pa.struct([pa.field(name, spark_arrow(child)) for name, child in inner])
    return type.arrow


def fit(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """A batch from Spark with the Arrow types of the schema. Columns are matched by position."""
    columns = [_cast(c, t.arrow, t) for c, t in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(schema.names))


def unfit(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """A batch of flowrun with the Arrow types that Spark takes. Columns are matched by position.

    Raises:
        DataError: Spark cannot hold a time (years −290307 to 294246).
    """
    columns = [_cast(c, spark_arrow(t), t) for c, t in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(schema.names))


def _cast(column: pa.Array, target: pa.DataType, type: DataType) -> pa.Array:
    if column.type == target:
        return column
    try:
        return column.cast(target)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a value of type {type} cannot pass between flowrun and Spark: {error}",
            hint="Spark's times have microseconds and reach from the year -290307 to 294246",
        ) from error


def to_spark(table: pa.Table, schema: Schema, session: SparkSession) -> DataFrame:
    """The rows of a table in memory as a DataFrame of exactly the schema's Spark types."""
    batches = [unfit(batch, schema) for batch in table.to_batches() or [_no_rows(schema)]]
    return session.createDataFrame(pa.Table.from_batches(batches), spark_schema(schema))


def _no_rows(schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type.arrow) for f in schema], schema=schema.arrow)


def from_spark(frame: DataFrame, schema: Schema) -> pa.Table:
    """All rows of a DataFrame, in memory, with the Arrow types of the schema."""
    return pa.Table.from_batches([fit(batch, schema) for batch in frame.toArrow().to_batches()], schema.arrow)
