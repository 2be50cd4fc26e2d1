"""Reads Parquet files with Spark's own reader, if it reads them exactly as flowrun's does."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.connectors.filesystem.source import FileSource
from flowrun.functions.spark_text import quoted
from flowrun.spark.arrow import spark_data_type
from flowrun.spark.input.exactness import NotExactError
from flowrun.spark.input.native_files import NativeFiles, metadata_texts, native_files, partition_texts
from flowrun.spark.input.parquet_types import StoredColumn, stored_column
from flowrun.spark.input.physical import Physical, in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_FOOTER_THREADS = 16


def read_parquet(session: SparkSession, source: FileSource, *, ordered: bool) -> Physical:
    """The rows of a Parquet source; with `ordered` in the order of the files and of the rows in them.

    Raises:
        ConnectorError: the path does not exist.
        NotExactError: flowrun's reader must read it.
    """
    files = native_files(source)
    stored = _stored_columns(source, _footers(files))
    schema = _read_schema(files, stored)
    texts = {name: column.text or quoted(name) for name, column in stored.items()}
    texts |= partition_texts(source) | metadata_texts(source)
    return Physical(
        in_order(files.paths, lambda paths: files.of(session.read.schema(schema)).parquet(*paths), ordered),
        tuple(texts[name] for name in source.schema.names),
        frozenset(name for name, column in stored.items() if column.text is None),
        frozenset(name for name, column in stored.items() if column.floored),
    )


def _footers(files: NativeFiles) -> list[pa.Schema]:
    """The columns of each file. It blocks on I/O."""

    def read(path: str) -> pa.Schema:
        try:
            return pq.read_schema(path)
        except (pa.ArrowException, OSError):
            raise NotExactError(f"{path} is no Parquet file") from None

    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(read, (f.path for f in files.files)))


def _stored_columns(source: FileSource, schemas: Iterable[pa.Schema]) -> dict[str, StoredColumn]:
    columns: dict[str, StoredColumn] = {}
    given: dict[str, pa.DataType] = {}
    for schema in {s.remove_metadata() for s in schemas}:
        for name in source.request.schema.names:
            position = schema.get_field_index(name)
            if position >= 0 and given.setdefault(name, schema.field(position).type) != schema.field(position).type:
                raise NotExactError(f"files with different types of '{name}'")
    for field in source.request.schema:
        if field.name in given:
            columns[field.name] = stored_column(given[field.name], field.type, quoted(field.name))
        else:
            columns[field.name] = StoredColumn(spark_data_type(field.type))
    return columns


def _read_schema(files: NativeFiles, stored: dict[str, StoredColumn]) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(name, column.type) for name, column in stored.items()]
    return StructType([*fields, *(StructField(name, StringType()) for name in files.partitions)])
