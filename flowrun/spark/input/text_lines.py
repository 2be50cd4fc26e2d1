"""Reads files of lines with Spark's own text reader, for JSON and CSV."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flowrun.connectors.filesystem.source import FileSource
from flowrun.functions.spark_text import quoted
from flowrun.spark.input.exactness import NotExactError
from flowrun.spark.input.native_files import NativeFiles, metadata_texts, native_files, partition_texts
from flowrun.spark.input.physical import in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE = "value"
"""The name that Spark gives the column of the text."""
_UNKNOWN_TO_SPARK = (".gzip", ".zst", ".zstd", ".lz4")
_UNKNOWN_TO_FLOWRUN = (".deflate", ".snappy")


def read_lines(session: SparkSession, source: FileSource, *, ordered: bool) -> DataFrame:
    """The lines of a source's files in `LINE`, and the columns whose values come from folder names and the files themselves.

    Raises:
        ConnectorError: the path does not exist.
        NotExactError: flowrun's reader must read it.
    """
    files = native_files(source)
    for file in files.files:
        if os.path.splitext(file.path)[1].lower() in (*_UNKNOWN_TO_SPARK, *_UNKNOWN_TO_FLOWRUN):
            raise NotExactError(f"compression of {file.path}")
    if files.partitions and not files.files:
        raise NotExactError("partition columns that no folder gives")
    beside = partition_texts(source) | metadata_texts(source)
    if LINE in beside:
        raise NotExactError(f"a column of the name '{LINE}'")
    lines = in_order(files.paths, lambda paths: _text(session, files).text(list(paths)), ordered)
    return lines.selectExpr(LINE, *(f"{text} AS {quoted(name)}" for name, text in beside.items()))


def _text(session: SparkSession, files: NativeFiles):  # type: ignore[no-untyped-def]
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(name, StringType()) for name in (LINE, *files.partitions)]
    return files.of(session.read.schema(StructType(fields)).option("lineSep", "\n"))
