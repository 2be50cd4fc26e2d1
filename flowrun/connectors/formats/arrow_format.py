"""The Arrow format: IPC files, which hold batches as they are in memory (Feather, version 2). Only the wanted columns are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa

from flowrun.api.format import FileFormat, FilePart, FileReader, FileRows, FileWriter, ReadRequest
from flowrun.connectors.formats.damage import unreadable
from flowrun.connectors.formats.file_columns import file_columns, parts_of, sliced
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema

_OPTIONS = (
    Option(
        "compression",
        OptionType.ENUM,
        "How the buffers of written files are compressed.",
        default="lz4",
        choices=("none", "lz4", "zstd"),
    ),
)


class ArrowReader:
    """Reads IPC files as rows of a schema; the unit of a position is a batch. Columns that a file does not have are NULL."""

    def __init__(self, request: ReadRequest) -> None:
        self._schema = request.schema

    def parts(self, file: IO[bytes], name: str, target_bytes: int) -> Sequence[FilePart]:
        """Ranges of consecutive batches of about `target_bytes`, which are taken to be of one size."""
        batches = _open(file, name, None).num_record_batches
        size = file.seek(0, os.SEEK_END)
        return parts_of([size // batches] * batches if batches else [], target_bytes)

    def read(
        self, file: IO[bytes], name: str, first: int, row: int, stop: int | None, batch_rows: int
    ) -> Iterator[FileRows]:
        """The rows of batches `first` to `stop`; see `FileReader`."""
        given = _open(file, name, None).schema
        columns = file_columns(given, self._schema, name)
        wanted = [given.get_field_index(n) for n in columns.names] or [0] * bool(len(given))
        opened = _open(file, name, wanted)
        count = opened.num_record_batches
        for unit in range(first, count if stop is None else min(stop, count)):
            try:
                batch = opened.get_batch(unit)
                batch.validate(full=True)  # nothing else stands between what a file says and memory
            except (pa.ArrowException, OSError) as error:
                raise unreadable(f"{name}: batch {unit} cannot be read", error) from error
            yield from sliced(columns.fitted(batch, name), unit, row if unit == first else 0, batch_rows)


def _open(file: IO[bytes], name: str, wanted: list[int] | None) -> pa.ipc.RecordBatchFileReader:
    options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
    try:
        file.seek(0)
        opened = pa.ipc.open_file(file, options=options)
        _ = opened.schema.names  # which need not be UTF-8
        return opened
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(f"{name} is no Arrow file or is truncated", error) from error


class ArrowFileWriter:
    """Writes an IPC file, one batch for each batch of rows."""

    def __init__(self, file: IO[bytes], schema: Schema, options: Options) -> None:
        self._file = file
        codec = options.text("arrow.compression")
        written = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec, use_threads=False)
        self._writer = pa.ipc.new_file(file, schema.arrow, options=written)

    def write(self, columns: pa.RecordBatch) -> None:
        """Write rows as a batch."""
        self._writer.write_batch(columns)

    @property
    def written_bytes(self) -> int:
        """The size of the file in bytes."""
        return self._file.tell()

    def finish(self) -> None:
        """Write the footer."""
        self._writer.close()

    def abandon(self) -> None:
        """Close the writer; nobody will read the file."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()


def _check(_schema: Schema, _options: Options) -> None:
    """Arrow holds every type."""


def _reader(request: ReadRequest) -> FileReader:
    return ArrowReader(request)


def _writer(file: IO[bytes], schema: Schema, options: Options) -> FileWriter:
    return ArrowFileWriter(file, schema, options)


FORMAT = FileFormat(
    name="arrow",
    summary="Arrow IPC files (Feather).",
    extension="arrow",
    options=_OPTIONS,
    check=_check,
    create_reader=_reader,
    create_writer=_writer,
)
