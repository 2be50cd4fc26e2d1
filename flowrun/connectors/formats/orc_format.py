"""The ORC format: files that are read by stripe. Only the wanted columns are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
from pyarrow import orc

from flowrun.api.format import FileFormat, FilePart, FileReader, FileRows, FileWriter, ReadRequest
from flowrun.connectors.formats.damage import unreadable
from flowrun.connectors.formats.file_columns import file_columns, parts_of, sliced
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError

_OPTIONS = (
    Option(
        "compress",
        OptionType.ENUM,
        "How written files are compressed.",
        default="zlib",
        choices=("none", "zlib", "snappy", "lz4", "zstd"),
    ),
    Option(
        "stripe.size",
        OptionType.MEMORY,
        "Memory that a stripe takes before it is written.",
        default=64 << 20,
        minimum=1,
    ),
)
_BATCH_ROWS = 1024


class OrcReader:
    """Reads ORC files as rows of a schema; the unit of a position is a stripe. Columns that a file does not have are NULL."""

    def __init__(self, request: ReadRequest) -> None:
        self._schema = request.schema

    def parts(self, file: IO[bytes], name: str, target_bytes: int) -> Sequence[FilePart]:
        """Ranges of consecutive stripes of about `target_bytes`, which are taken to be of one size."""
        stripes = _open(file, name).nstripes
        size = file.seek(0, os.SEEK_END)
        return parts_of([size // stripes] * stripes if stripes else [], target_bytes)

    def read(
        self, file: IO[bytes], name: str, first: int, row: int, stop: int | None, batch_rows: int
    ) -> Iterator[FileRows]:
        """The rows of stripes `first` to `stop`; see `FileReader`."""
        opened = _open(file, name)
        columns = file_columns(opened.schema, self._schema, name)
        for stripe in range(first, opened.nstripes if stop is None else min(stop, opened.nstripes)):
            try:
                batch = opened.read_stripe(stripe, columns=columns.leaves or _one_column(opened))
                batch.validate(full=True)  # texts of damaged files need not be UTF-8
            except (pa.ArrowException, OSError) as error:
                raise unreadable(f"{name}: stripe {stripe} cannot be read", error) from error
            yield from sliced(columns.fitted(batch, name), stripe, row if stripe == first else 0, batch_rows)


def _one_column(opened: orc.ORCFile) -> list[str] | None:
    """A column to count the rows by."""
    return opened.schema.names[:1] or None


def _open(file: IO[bytes], name: str) -> orc.ORCFile:
    try:
        opened = orc.ORCFile(file)
        _ = opened.schema.names  # which need not be UTF-8
        return opened
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(f"{name} is no ORC file or is truncated", error) from error


class OrcFileWriter:
    """Writes an ORC file, and holds one stripe of bounded size in memory."""

    def __init__(self, file: IO[bytes], schema: Schema, options: Options) -> None:
        self._file = file
        compress = options.text("orc.compress")
        self._writer = orc.ORCWriter(
            file,
            batch_size=_BATCH_ROWS,
            stripe_size=options.integer("orc.stripe.size"),
            compression="uncompressed" if compress == "none" else compress,
        )
        self._schema = schema.arrow
        self._is_empty = True
        self._waiting_bytes = 0
        self._stored_bytes = 0

    def write(self, columns: pa.RecordBatch) -> None:
        """Add rows to the open stripe."""
        self._is_empty = False
        self._writer.write(pa.Table.from_batches([columns], schema=self._schema))
        stored = self._file.tell()
        self._waiting_bytes = 0 if stored > self._stored_bytes else self._waiting_bytes + columns.nbytes
        self._stored_bytes = stored

    @property
    def written_bytes(self) -> int:
        """The size of the file in bytes, with the open stripe as it is in memory."""
        return self._stored_bytes + self._waiting_bytes

    def finish(self) -> None:
        """Write the last stripe and the footer."""
        if self._is_empty:
            self._writer.write(self._schema.empty_table())
        self._writer.close()

    def abandon(self) -> None:
        """Close the writer; nobody will read the file."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()


def _check(schema: Schema, _options: Options) -> None:
    for field in schema:
        _check_type(field.name, field.type)


def _check_type(column: str, type: DataType) -> None:
    if type.root in (TypeRoot.TIME, TypeRoot.NULL) or type.is_interval:
        raise OptionError("format", f"orc: column '{column}' is {type}, which ORC cannot hold")
    for child in type.children:
        _check_type(column, child)


def _reader(request: ReadRequest) -> FileReader:
    return OrcReader(request)


def _writer(file: IO[bytes], schema: Schema, options: Options) -> FileWriter:
    return OrcFileWriter(file, schema, options)


FORMAT = FileFormat(
    name="orc",
    summary="Apache ORC files. Timestamps are read from the years 1678 to 2261.",
    extension="orc",
    options=_OPTIONS,
    check=_check,
    create_reader=_reader,
    create_writer=_writer,
)
