"""Reads a split with exact positions: blocks of records of a record format, or units (row groups) of a file format."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast

import numpy as np
import pyarrow.fs as pafs

from flowrun.api.format import BadRecord, FileReader, FileRows, Framer, RecordChunk, RecordDecoder
from flowrun.api.source import JsonValue
from flowrun.connectors.filesystem.table_path import compression_of, open_error
from flowrun.connectors.filesystem.unfinished import damage_of
from flowrun.connectors.formats.damage import REMEDY, DamagedInputError, is_damage
from flowrun.connectors.formats.records import reject_nulls
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError

BLOCK_BYTES = 8 << 20
"""How many bytes are read and decoded at a time."""
_TAIL_BYTES = 64 << 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_BYTES = 120

Position = Mapping[str, JsonValue]


class SplitReader(Protocol):
    """Reads one split, in one thread."""

    def next_rows(self) -> RecordBatch | None:
        """About a batch of rows, perhaps none; None at the end.

        Raises:
            ConnectorError: the file cannot be read.
            DataError: the file or a value in it is no data of the source's format and schema.
        """
        ...

    @property
    def position(self) -> Position:
        """The position behind the rows that were returned so far."""
        ...

    def close(self) -> None:
        """Close the file. It may be called again."""
        ...


OnBad = Callable[[str, int, BadRecord, bytes], None]
"""Is called with (file, byte offset of the record, what is wrong, its bytes), in order, just before rows behind the record are given."""


class RecordSplitReader:
    """Reads records whose first byte lies in a byte range of a file (for a compressed file, of its decompressed content).

    A position has the `offset` of the next record and the end of the range, `stop` (None: the end of the file). If the range may not begin
    at a record (`aligned` is false), it begins behind the next line end: the record before belongs to the range before.

    Args:
        filesystem: the file system of the file.
        position: the position of the split.
        framer: finds the records.
        decoder: decodes the records; it reads the header of this file again.
        schema: the columns of the rows, some of which may be NOT NULL.
        batch_rows: how many rows `next_rows` returns at most; the rows of one record stay together.
        on_bad: is called for bad records.
        block_bytes: how many bytes to decode at a time.
        upserts: whether the records are upserts, whose deletions may have NULL in NOT NULL columns.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        position: Position,
        framer: Framer,
        decoder: RecordDecoder,
        schema: Schema,
        batch_rows: int,
        on_bad: OnBad,
        block_bytes: int = BLOCK_BYTES,
        *,
        upserts: bool = False,
    ) -> None:
        self._filesystem = filesystem
        self._path = cast(str, position["path"])
        self._stop = cast("int | None", position["stop"])
        self._base = cast(int, position["offset"])  # file offset of the first byte in `_carry`
        self._aligned = cast(bool, position["aligned"])
        self._framer = framer
        self._decoder = decoder
        self._schema = schema
        self._batch_rows = batch_rows
        self._on_bad = on_bad
        self._upserts = upserts
        self._block_bytes = block_bytes
        self._carry = b""
        self._buffer = bytearray()
        self._ended = False
        self._stream: Any = None
        self._rows: RecordBatch | None = None
        self._row = 0
        self._offsets = np.empty(0, np.int64)
        self._bad: deque[tuple[int, BadRecord, bytes]] = deque()
        self._next = self._base

    @property
    def position(self) -> Position:
        """The file, the offset of the next record and the end of the range."""
        return {"path": self._path, "offset": self._next, "stop": self._stop, "aligned": self._aligned}

    def next_rows(self) -> RecordBatch | None:
        """Rows of the current block, or of the next one."""
        if self._rows is None:
            try:
                if self._stream is None:
                    self._open()
                chunk = self._next_chunk()
            except OSError as error:
                raise self._unreadable(error) from error
            if chunk is None:
                return None
            self._decode(chunk)
        return self._slice()

    def _slice(self) -> RecordBatch:
        rows = self._rows
        assert rows is not None
        begin, end = self._row, min(self._row + self._batch_rows, rows.num_rows)
        if begin < end < rows.num_rows:
            end = int(np.searchsorted(self._offsets, self._offsets[end - 1], side="right"))
        if end == rows.num_rows:
            self._rows, self._row, self._next = None, 0, self._base
        else:
            self._row, self._next = end, int(self._offsets[end])
        while self._bad and self._bad[0][0] < self._next:
            offset, bad, raw = self._bad.popleft()
            self._on_bad(self._path, offset, bad, raw)
        return rows.slice(begin, end - begin)

    def _decode(self, chunk: RecordChunk) -> None:
        decoded = reject_nulls(self._decoder.decode(chunk), self._schema, upserts=self._upserts)
        first = self._chunk_base
        self._rows, self._row = RecordBatch(decoded.columns, row_kinds=decoded.kinds), 0
        self._offsets = chunk.starts[decoded.records] + first
        self._bad.extend((int(chunk.starts[b.index]) + first, b, chunk.record(b.index)) for b in decoded.bad)

    def _open(self) -> None:
        compression = compression_of(self._path)
        if compression is None:
            self._stream = self._filesystem.open_input_file(self._path)
        else:
            self._stream = self._filesystem.open_input_stream(self._path, compression=compression)
        if self._decoder.has_header:
            self._read_header()
        if not self._aligned:
            self._align()
        elif self._base == 0:
            self._carry = self._stream.read(len(_BYTE_ORDER_MARK))
            if self._carry == _BYTE_ORDER_MARK:
                self._base, self._carry = len(_BYTE_ORDER_MARK), b""
        elif compression is None:
            self._check_size()
            self._stream.seek(self._base)
        elif self._read_exactly(self._base) < self._base:
            raise self._shrunk()

    def _check_size(self) -> None:
        if self._stream.size() < self._base:
            raise self._shrunk()

    def _shrunk(self) -> ConnectorError:
        return ConnectorError(
            f"{self._path} is shorter than the position {self._base} that was read before: the file was changed",
            retryable=False,
            hint="files of a source must not change once they are there",
        )

    def _read_exactly(self, size: int) -> int:
        done = 0
        while done < size:
            data = self._stream.read(min(self._block_bytes, size - done))
            if not data:
                break
            done += len(data)
        return done

    def _read_header(self) -> None:
        data = b""
        at_end = False
        with self._filesystem.open_input_stream(self._path, compression=compression_of(self._path)) as stream:
            while True:
                more = stream.read(_TAIL_BYTES)
                data, at_end = data + more, not more
                chunk, _ = self._framer.frame(data.removeprefix(_BYTE_ORDER_MARK), at_end)
                if len(chunk) or at_end:
                    break
        if not len(chunk):
            return
        try:
            self._decoder.read_header(chunk.record(0))
        except (DataError, UnicodeDecodeError) as error:
            hint = error.hint if isinstance(error, DataError) else None
            raise DataError(f"{self._path}:1: {getattr(error, 'message', error)}", hint=hint) from error
        if self._base == 0:
            line_end = data.find(b"\n", int(chunk.stops[0]) + len(data) - len(data.removeprefix(_BYTE_ORDER_MARK)))
            self._base = self._next = len(data) if line_end < 0 else line_end + 1

    def _align(self) -> None:
        """Go to the first record that begins at or after the offset."""
        begin = self._base - 1
        self._stream.seek(begin)
        while True:
            data = self._stream.read(_TAIL_BYTES)
            line_end = data.find(b"\n")
            if line_end >= 0 or not data:
                break
            begin += len(data)
        self._base = self._next = begin + line_end + 1 if line_end >= 0 else begin
        self._carry = data[line_end + 1 :] if line_end >= 0 else b""
        self._aligned = True
        self._ended = not data

    def _next_chunk(self) -> RecordChunk | None:
        """The next complete records of the range, which begin at file offset `_chunk_base`; None at the end of the range."""
        while not self._ended:
            if self._stop is not None and self._base >= self._stop:
                break
            beyond = self._stop is not None and self._base + len(self._carry) >= self._stop
            data = self._read_behind(self._carry, max(_TAIL_BYTES if beyond else self._block_bytes, len(self._carry)))
            self._ended = len(data) == len(self._carry)
            chunk, consumed = self._framer.frame(data, self._ended)
            self._chunk_base = self._base
            self._base += consumed
            self._carry = bytes(data[consumed:])
            if self._stop is not None and self._base > self._stop and len(chunk):
                count = int(np.searchsorted(chunk.starts, self._stop - self._chunk_base))
                chunk = chunk.slice(0, count)
                self._ended = self._ended or self._base >= self._stop
            if len(chunk):
                return chunk
        self._next = self._base
        return None

    def _read_behind(self, head: bytes, size: int) -> memoryview:
        """`head` and up to `size` more bytes of the file, in the buffer of the last block: decoders have copied what they keep."""
        begin = len(head)
        if len(self._buffer) < begin + size:
            self._buffer = bytearray(begin + size)
        self._buffer[:begin] = head
        view = memoryview(self._buffer)
        read = self._stream.readinto(view[begin : begin + size])
        return view[: begin + int(read)]

    def _unreadable(self, error: OSError) -> ConnectorError:
        if compression_of(self._path) is not None and is_damage(error):
            damage = DamagedInputError(
                f"{self._path} cannot be decompressed after byte {self._base} of its content: {str(error).splitlines()[0]}",
                hint=f"the file is truncated, or its ending names another compression: {REMEDY}",
            )
            return damage_of(self._filesystem, self._path, damage)
        return open_error(self._path, error)

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class UnitSplitReader:
    """Reads a range of units (row groups) of a file format.

    A position has the `unit`, the `row` in it, and the end of the range, `stop` (None: the end of the file).
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        position: Position,
        reader: FileReader,
        schema: Schema,
        batch_rows: int,
    ) -> None:
        self._filesystem = filesystem
        self._path = cast(str, position["path"])
        self._unit = cast(int, position["unit"])
        self._row = cast(int, position["row"])
        self._stop = cast("int | None", position["stop"])
        self._reader = reader
        self._required = [f.name for f in schema if not f.nullable]
        self._batch_rows = batch_rows
        self._file: Any = None
        self._runs: Iterator[FileRows] | None = None

    @property
    def position(self) -> Position:
        """The file, the next unit, the next row in it and the end of the range."""
        return {"path": self._path, "unit": self._unit, "row": self._row, "stop": self._stop}

    def next_rows(self) -> RecordBatch | None:
        """The next rows of the file."""
        try:
            if self._runs is None:
                self._file = self._filesystem.open_input_file(self._path)
                self._runs = self._reader.read(
                    self._file, self._path, self._unit, self._row, self._stop, self._batch_rows
                )
            run = next(self._runs, None)
        except OSError as error:
            raise open_error(self._path, error) from error
        except DamagedInputError as error:
            raise damage_of(self._filesystem, self._path, error) from error.__cause__
        if run is None:
            return None
        for name in self._required:
            if run.columns.column(name).null_count:
                raise DataError(f"{self._path}: column '{name}' is NOT NULL, but the file holds a NULL")
        self._unit, self._row = run.unit, run.row
        return RecordBatch(run.columns)

    def close(self) -> None:
        """Close the file."""
        self._runs = None
        if self._file is not None:
            self._file.close()
            self._file = None


def line_number(filesystem: pafs.FileSystem, path: str, offset: int) -> int:
    """The number, from 1, of the line that holds byte `offset` of a file's decompressed content. It blocks on I/O."""
    lines, left = 1, offset
    with filesystem.open_input_stream(path, compression=compression_of(path)) as stream:
        while left > 0 and (data := stream.read(min(BLOCK_BYTES, left))):
            lines += data.count(b"\n")
            left -= len(data)
    return lines


def bad_record_error(
    filesystem: pafs.FileSystem, path: str, offset: int, bad: BadRecord, raw: bytes, hint: str
) -> DataError:
    """The error for a bad record: it says the file, the line, the reason and the start of the line."""
    shown = raw[:_SHOWN_BYTES].decode("utf-8", "replace") + ("…" if len(raw) > _SHOWN_BYTES else "")
    return DataError(
        f"{path}:{line_number(filesystem, path, offset)}: {bad.reason}\n    {shown}",
        hint=hint,
    )
