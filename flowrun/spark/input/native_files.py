"""Files that Spark's own readers read: their paths, and the columns whose values come from folder names and the files themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from flowrun.connectors.filesystem.enumerator import found_files, is_wanted, no_files
from flowrun.connectors.filesystem.file_metadata import MODIFICATION_TIME, NAME, PATH, SIZE
from flowrun.connectors.filesystem.partitions import DEFAULT_PARTITION_NAME, partition_values
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.filesystem.table_path import FoundFile, relative_parts
from flowrun.connectors.formats.value_text import value_text
from flowrun.core.record import record
from flowrun.errors import ConnectorError, DataError
from flowrun.functions.spark_text import quote_text, quoted, spark_type
from flowrun.spark.input.exactness import NotExactError

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader

import pyarrow as pa

_GLOB = re.compile(r"[{}\[\]*?\\]")
_PARTITION = "flowrun$partition "
"""The prefix of partition columns, which Spark finds in folder names and has as text."""
_ODD_IN_URL = re.compile(r"[^A-Za-z0-9_./=,:@~ -]")


@record
class NativeFiles:
    """The files of a source.

    Attributes:
        files: the files in the order in which they are read.
        base: the folder below which partition folders begin.
        partitions: names of the partition columns, outermost first.
    """

    files: tuple[FoundFile, ...]
    base: str
    partitions: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """The paths as Spark takes them."""
        return ["file://" + _GLOB.sub(lambda m: "\\" + m[0], f.path) for f in self.files]

    def of(self, reader: DataFrameReader) -> DataFrameReader:
        """The reader with the folder below which partition folders begin."""
        return reader.option("basePath", "file://" + self.base) if self.partitions else reader


def native_files(source: FileSource) -> NativeFiles:
    """The files that a source reads.

    Raises:
        ConnectorError: the path does not exist.
        NotExactError: Spark would find other rows, or other values in folder names.
    """
    if not source.location.is_local:
        raise NotExactError("files that are not local")
    found = found_files(source)
    if not found and source.monitor_interval_ms is None:
        no_files(source)
    files = tuple(f for f in found if is_wanted(source, f))
    _, base = source.location.open()
    keys = _check_folders(source, files, base) if source.partitions.fields else ()
    if source.metadata.fields and any(_ODD_IN_URL.search(f.path) for f in files):
        raise NotExactError("file names that URLs write in another way")
    return NativeFiles(files, base, keys)


def _check_folders(source: FileSource, files: Sequence[FoundFile], base: str) -> tuple[str, ...]:
    """The partition columns, as folders name them.

    Raises:
        NotExactError: Spark would find other values in the folder names.
    """
    default = source.options.text("partition.default-name")
    layout: tuple[str, ...] | None = None
    seen: set[tuple[str, ...]] = set()
    for file in files:
        parts = tuple(relative_parts(file.path, base))
        if parts in seen:
            continue
        seen.add(parts)
        pairs = [part.partition("=") for part in parts]
        names = tuple(name for name, _, _ in pairs)
        if layout not in (None, names) or any(not equals for _, equals, _ in pairs):
            raise NotExactError("partition folders of several layouts")
        layout = names
        if any("%" in name or not value.isascii() for name, _, value in pairs):
            raise NotExactError("partition folders with other characters")
        _check_values(source, file.path, base, {n: unquote(v) for n, _, v in pairs}, default)
    if layout is None:
        return source.partitions.names
    if set(layout) != set(source.partitions.names) or DEFAULT_PARTITION_NAME in layout:
        raise NotExactError("partition folders that are no columns")
    return layout


def _check_values(source: FileSource, path: str, base: str, spelled: Mapping[str, str], default: str) -> None:
    if set(spelled) != set(source.partitions.names):
        raise NotExactError("partition folders that are no columns")
    try:
        values = partition_values(path, base, source.partitions, default)
    except (ConnectorError, DataError):
        raise NotExactError("partition folders that hold no values") from None
    for field in source.partitions:
        text = spelled[field.name]
        if text == DEFAULT_PARTITION_NAME != default:
            raise NotExactError("a partition folder with Hive's name for NULL")
        scalar = values[field.name]
        if scalar.is_valid and value_text(pa.array([scalar.as_py()], field.type.arrow), field.type)[0].as_py() != text:
            raise NotExactError("partition folders that spell values in another way")


def partition_texts(source: FileSource) -> dict[str, str]:
    """Partition column → its Spark SQL text, over the columns that Spark finds in folder names."""
    default = source.options.text("partition.default-name")
    texts = {}
    for field in source.partitions:
        text = quoted(field.name)
        if default != DEFAULT_PARTITION_NAME:
            text = f"nullif({text}, {quote_text(default)})"
        texts[field.name] = text if field.type.is_character else f"CAST({text} AS {spark_type(field.type)})"
    return texts


def metadata_texts(source: FileSource) -> dict[str, str]:
    """METADATA column of a source → its Spark SQL text."""
    return {n: _METADATA_TEXTS[key] for n, key in zip(source.metadata.names, source.metadata_keys, strict=True)}


_METADATA_TEXTS: Mapping[str, str] = {
    PATH: "regexp_replace(replace(_metadata.file_path, '%20', ' '), '^file:/+', '/')",
    NAME: "replace(_metadata.file_name, '%20', ' ')",
    SIZE: "_metadata.file_size",
    MODIFICATION_TIME: "_metadata.file_modification_time",
}
"""Key of a METADATA column → Spark SQL text of its value."""
