"""Writes files with Spark's own writers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.partitions import DEFAULT_PARTITION_NAME
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.connectors.formats.csv_options import csv_settings
from flowrun.core.record import record
from flowrun.core.schema import Field
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import is_counted, quote_text, quoted
from flowrun.spark.frame import SparkFrame
from flowrun.spark.output.names import OutputName
from flowrun.spark.output.spelling import NotSpelledError, csv_line, json_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_COMPRESSIONS = {"snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "lz4": "lz4_raw", "uncompressed": "none"}
_THREADS = 16


@record
class NativeFiles:
    """Files that Spark wrote: how many rows they have, the renames that make them visible, and the hidden folder that they are in."""

    rows: int
    publish: tuple[tuple[str, str], ...]
    scratch: str


def write_natively(sink: FileSink, frame: SparkFrame, folder: OutputFolder, name: OutputName) -> NativeFiles:
    """Write the rows into a hidden folder.

    Raises:
        NotSpelledError: nothing was written, because flowrun's writers would write something else.
    """
    if not sink.location.is_local:
        raise NotSpelledError("a folder that is not local")
    if sink.buckets is not None:
        raise NotSpelledError("buckets")
    write = _WRITERS.get(sink.format_name)
    if write is None:
        raise NotSpelledError(sink.format_name)
    scratch = folder.path(name.scratch)
    rows = write(sink, frame, "file://" + scratch)
    files = sorted(_written(scratch))
    counts = _footer_rows([f"{scratch}/{f}" for f in files]) if rows is None else [rows] * len(files)
    folder.force(f"{scratch}/{f}" for f in files)
    kept = [f for f, n in zip(files, counts, strict=True) if n and os.path.getsize(f"{scratch}/{f}")]
    return NativeFiles(
        sum(counts) if rows is None else rows, _renames(folder, name, scratch, kept, sink.format.extension), scratch
    )


def _write_parquet(sink: FileSink, frame: SparkFrame, path: str) -> None:
    """Write Parquet files. Their footers say how many rows there are."""
    compression = _COMPRESSIONS.get(sink.options.text("parquet.compression"))
    if compression is None:
        raise NotSpelledError("a compression that Spark does not bring along")
    for field in sink.stored:
        _check_stored(field.name, field.type)
    writer = _writer(sink, frame.data, [quoted(f.name) for f in sink.stored])
    writer = writer.option("compression", compression)
    writer.option("parquet.block.size", sink.options.integer("parquet.block.size")).parquet(path)


def _write_json(sink: FileSink, frame: SparkFrame, path: str) -> int:
    options = sink.options
    iso = options.text("json.timestamp-format.standard") == "iso-8601"
    line = json_line(sink.stored, iso=iso, ignore_null_fields=options.flag("json.encode.ignore-null-fields"))
    return _write_lines(sink, frame, path, line)


def _write_csv(sink: FileSink, frame: SparkFrame, path: str) -> int:
    return _write_lines(sink, frame, path, csv_line(sink.stored, csv_settings(sink.options)))


def _write_lines(sink: FileSink, frame: SparkFrame, path: str, line: str) -> int:
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    if _LINE in sink.partitions:
        raise NotSpelledError(f"a partition column of the name '{_LINE}'")
    seen = Observation()
    data = frame.data.observe(seen, count(lit(1)).alias("rows"))
    _writer(sink, data, [f"{line} AS {_LINE}"]).option("lineSep", "\n").option("compression", "none").text(path)
    return int(seen.get["rows"])


_LINE = "value"
_WRITERS: Mapping[str, Callable[[FileSink, SparkFrame, str], int | None]] = {
    "parquet": _write_parquet,
    "json": _write_json,
    "csv": _write_csv,
}
"""Format → the function that writes the rows below a folder. It gives how many rows there are, or None if the files say it."""


def _writer(sink: FileSink, data: DataFrame, columns: list[str]) -> DataFrameWriter:
    writer = data.selectExpr(*columns, *_folder_columns(sink)).write.mode("overwrite")
    return writer.partitionBy(*sink.partitions.names) if sink.partitions.fields else writer


def _check_stored(name: str, type: DataType) -> None:
    if is_counted(type) or type.root in (TypeRoot.TIME, TypeRoot.NULL):
        raise NotSpelledError(f"column '{name}' of type {type}")
    for child in type.children:
        _check_stored(name, child)


_FOLDERS = (TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT, TypeRoot.DATE)


def _folder_columns(sink: FileSink) -> Iterator[str]:
    for field in sink.partitions:
        yield f"{_folder_text(field, sink.default_partition)} AS {quoted(field.name)}"


def _folder_text(field: Field, default: str) -> str:
    if not field.type.is_character and field.type.root not in _FOLDERS:
        raise NotSpelledError(f"partition column '{field.name}' of type {field.type}")
    text = f"CAST({quoted(field.name)} AS STRING)"
    return text if default == DEFAULT_PARTITION_NAME else f"coalesce(nullif({text}, ''), {quote_text(default)})"


def _written(scratch: str) -> Iterator[str]:
    """The paths of the files that have rows, relative to the folder."""
    for folder, _, names in os.walk(scratch):
        for name in names:
            if not name.startswith((".", "_")):
                yield os.path.relpath(os.path.join(folder, name), scratch)


def _footer_rows(files: list[str]) -> list[int]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: pq.read_metadata(path).num_rows, files))


def _renames(
    folder: OutputFolder, name: OutputName, scratch: str, files: list[str], extension: str
) -> tuple[tuple[str, str], ...]:
    renames = []
    for number, path in enumerate(files):
        parent = os.path.dirname(path)
        renames.append((f"{scratch}/{path}", folder.path(parent, f"{name.stem}-{number}.{extension}")))
    return tuple(renames)
