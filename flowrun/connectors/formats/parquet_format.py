"""The Parquet format: files that are read by row group. Only the wanted columns are read, and statistics exclude row groups."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.api.format import FileFormat, FilePart, FileReader, FileRows, FileWriter, ReadRequest
from flowrun.connectors.formats.damage import unreadable
from flowrun.connectors.formats.file_columns import FileColumns, file_columns
from flowrun.connectors.formats.parquet_statistics import may_match
from flowrun.connectors.formats.records import batch_of
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.errors import OptionError

_OPTIONS = (
    Option(
        "compression",
        OptionType.ENUM,
        "How written files are compressed.",
        default="snappy",
        choices=("snappy", "gzip", "zstd", "lz4", "brotli", "uncompressed"),
    ),
    Option(
        "block.size",
        OptionType.MEMORY,
        "Memory that a row group takes before it is written.",
        default=64 << 20,
        minimum=1,
    ),
    Option("utc-timezone", OptionType.BOOLEAN, "Known to Flink; timestamps are always stored in UTC.", default=True),
)
_ROW_GROUP_ROWS = 1 << 20
_TAIL, _MARK = struct.Struct("<I4s"), b"PAR1"
"""The end of a file: the length of its footer, and a mark."""
_FIRST_READ_BYTES = 64 << 10
"""Most footers are shorter, and are so read from an object store at once."""


class ParquetReader:
    """Reads Parquet files as rows of a schema. Columns that a file does not have are NULL.

    The metadata of a file with many row groups takes longer to decode than some of its columns, and a source opens a file for each
    part of it. So what was decoded last is used again for each footer with the very same bytes.
    """

    def __init__(self, request: ReadRequest) -> None:
        self._schema = request.schema
        self._filters = request.filters
        self._types = {f.name: f.type for f in request.declared} | {f.name: f.type for f in request.schema}
        self._last: tuple[bytes, pq.FileMetaData] | None = None
        """A footer and what it says."""

    def parts(self, file: IO[bytes], name: str, target_bytes: int) -> Sequence[FilePart]:
        """Ranges of consecutive row groups of about `target_bytes`, without the groups that statistics exclude."""
        metadata = self._open(file, name, is_part=False).metadata
        parts: list[FilePart] = []
        for group in range(metadata.num_row_groups):
            described = metadata.row_group(group)
            if not may_match(described, self._filters, self._types):
                continue
            size = sum(described.column(i).total_compressed_size for i in range(described.num_columns))
            last = parts[-1] if parts else None
            if last is not None and last.stop == group and last.size + size <= target_bytes:
                parts[-1] = FilePart(last.first, group + 1, last.size + size)
            else:
                parts.append(FilePart(group, group + 1, size))
        return parts

    def read(
        self, file: IO[bytes], name: str, first: int, row: int, stop: int | None, batch_rows: int
    ) -> Iterator[FileRows]:
        """The rows of row groups `first` to `stop`; see `FileReader`."""
        parquet = self._open(file, name, is_part=stop is not None)
        plan = file_columns(parquet.schema_arrow, self._schema, name)
        for group in range(first, parquet.metadata.num_row_groups if stop is None else stop):
            skip = row if group == first else 0
            described = parquet.metadata.row_group(group)
            if not may_match(described, self._filters, self._types):
                continue
            yield from self._read_group(parquet, name, group, skip, batch_rows, plan, described.num_rows)

    def _open(self, file: IO[bytes], name: str, *, is_part: bool) -> pq.ParquetFile:
        """Open a file; of one that is read whole, the footer is not read a second time for nothing."""
        try:
            footer, last = _read_footer(file) if is_part else None, self._last
            known = last[1] if last is not None and last[0] == footer else None
            parquet = pq.ParquetFile(file, metadata=known, pre_buffer=True)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(f"{name} is no Parquet file or is truncated", error) from error
        if footer is not None:
            self._last = footer, parquet.metadata
        return parquet

    def _read_group(
        self,
        parquet: pq.ParquetFile,
        name: str,
        group: int,
        skip: int,
        batch_rows: int,
        plan: FileColumns,
        rows: int,
    ) -> Iterator[FileRows]:
        done = 0
        batches = self._batches(parquet, name, group, batch_rows, plan, rows)
        for batch in batches:
            begin, done = done, done + batch.num_rows
            if done <= skip:
                continue
            if begin < skip:
                batch = batch.slice(skip - begin)  # noqa: PLW2901
            position = (group + 1, 0) if done >= rows else (group, done)
            yield FileRows(plan.fitted(batch, name), *position)

    def _batches(
        self, parquet: pq.ParquetFile, name: str, group: int, batch_rows: int, plan: FileColumns, rows: int
    ) -> Iterator[pa.RecordBatch]:
        if not plan.names:
            for begin in range(0, rows, batch_rows):
                yield batch_of([], Schema(()), min(batch_rows, rows - begin))
            return
        try:
            yield from parquet.iter_batches(
                batch_size=batch_rows,
                row_groups=[group],
                columns=plan.leaves,
                use_threads=False,
            )
        except (pa.ArrowException, OSError) as error:
            raise unreadable(f"{name}: row group {group} cannot be read", error) from error


class ParquetFileWriter:
    """Writes a Parquet file, and holds one row group of bounded size in memory."""

    def __init__(self, file: IO[bytes], schema: Schema, options: Options) -> None:
        self._file = file
        compression = options.text("parquet.compression")
        self._writer = pq.ParquetWriter(
            file, schema.arrow, compression="none" if compression == "uncompressed" else compression, version="2.6"
        )
        self._group_bytes = options.integer("parquet.block.size")
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._schema = schema.arrow

    def write(self, columns: pa.RecordBatch) -> None:
        """Add rows to the open row group."""
        self._pending.append(columns)
        self._pending_bytes += columns.nbytes
        self._pending_rows += columns.num_rows
        if self._pending_bytes >= self._group_bytes or self._pending_rows >= _ROW_GROUP_ROWS:
            self._write_group()

    @property
    def written_bytes(self) -> int:
        """The size of the file in bytes, with the open row group."""
        return self._file.tell() + self._pending_bytes

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._pending:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Drop what is pending and close the writer."""
        self._pending = []
        with contextlib.suppress(OSError):  # nobody will read the file, so that a full disk does not matter
            self._writer.close()
        self._writer.is_open = False  # else the writer would try again to close the file when it is garbage collected

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._pending, schema=self._schema)
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))


def _read_footer(file: IO[bytes]) -> bytes | None:
    """The bytes that describe a file, with their length and the mark after them; None if this is no such file."""
    size = file.seek(0, os.SEEK_END)
    end = _read_end(file, min(size, _FIRST_READ_BYTES))
    if len(end) < _TAIL.size:
        return None
    length, mark = _TAIL.unpack(end[-_TAIL.size :])
    wanted = length + _TAIL.size
    if mark != _MARK or wanted > size:
        return None
    return end[-wanted:] if wanted <= len(end) else _read_end(file, wanted)


def _read_end(file: IO[bytes], size: int) -> bytes:
    file.seek(-size, os.SEEK_END)
    return file.read(size)


def _check(_schema: Schema, options: Options) -> None:
    if not options.flag("parquet.utc-timezone"):
        raise OptionError(
            "parquet.utc-timezone", "parquet.utc-timezone: timestamps are always stored in UTC; remove the option"
        )


def _reader(request: ReadRequest) -> FileReader:
    return ParquetReader(request)


def _writer(file: IO[bytes], schema: Schema, options: Options) -> FileWriter:
    return ParquetFileWriter(file, schema, options)


FORMAT = FileFormat(
    name="parquet",
    summary="Apache Parquet files.",
    extension="parquet",
    options=_OPTIONS,
    check=_check,
    create_reader=_reader,
    create_writer=_writer,
)
