"""Rows as bytes: Arrow IPC messages without a schema, which is sent once a channel, read without copying.

A payload is the number of batches, and for each of them a head, the watermarks between its rows, and its columns, which begin at a
multiple of 64 bytes. Event times and row kinds are columns behind those of the rows. Batches with dictionary columns are whole IPC
streams, as their dictionaries belong to them; compressed ones are, too.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from flowrun.core.elements import PassingWatermarks, RecordBatch, concat_batches
from flowrun.errors import ClusterError
from flowrun.runtime.network.cutting import rows_within

Piece: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Bytes, wherever they are."""

_COUNT = struct.Struct(">I")
_HEAD = struct.Struct(">BIQ")
"""Flags, number of watermarks, bytes of the columns."""
_TIMESTAMPS, _ROW_KINDS, _STREAM = 1, 2, 4
_ALIGNMENT = 64
_SMALL_ROWS = 4096
"""Smaller batches of one frame are put together: each message costs some 20 µs on either side."""


def needs_stream(schema: pa.Schema) -> bool:
    """Whether rows of these columns have dictionaries with them."""
    return any(_has_dictionary(field.type) for field in schema)


_Columns: TypeAlias = tuple[int, Sequence[Piece], int]
"""Flags, the columns as bytes, and how many."""


class EncodedOnce:
    """The bytes of rows that several channels are sent: made by the first of them, whatever connection it is on. Thread-safe.

    If the first channel that has too little credit for all of them cuts them, the others get the same pieces.
    """

    __slots__ = ("_columns", "_lock", "_pieces")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._columns: _Columns | None = None
        self._pieces: list[tuple[RecordBatch, EncodedOnce]] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether a channel has cut them."""
        return self._pieces is not None

    def pieces(self, batch: RecordBatch, most_bytes: int) -> list[tuple[RecordBatch, EncodedOnce]]:
        """The rows, cut to `most_bytes` each as far as that goes, each piece with where its own bytes are kept."""
        with self._lock:
            if self._pieces is None:
                self._pieces = []
                while (rows := rows_within(batch, most_bytes)) < batch.num_rows:
                    self._pieces.append((batch.slice(0, rows), EncodedOnce()))
                    batch = batch.slice(rows)
                self._pieces.append((batch, EncodedOnce()))
            return self._pieces

    def get(self, make: Callable[[], _Columns]) -> _Columns:
        """What `make` gave when it was first called."""
        with self._lock:
            if self._columns is None:
                self._columns = make()
            return self._columns


class BatchEncoder:
    """Makes the payloads of one channel. Buffers are not copied: payloads are to be written while their batches are unchanged.

    Args:
        lz4: compress columns: fewer bytes for some processor time.
    """

    def __init__(self, *, lz4: bool = False) -> None:
        self._options = pa.ipc.IpcWriteOptions(compression="lz4" if lz4 else None)
        self._schema: pa.Schema | None = None
        self._writers: dict[int, _MessageWriter] = {}

    def new_schema(self, batch: RecordBatch) -> pa.Schema | None:
        """The schema that the other side must know before this batch; None: it knows it, or the batch has it with it."""
        schema = batch.columns.schema
        known = self._schema
        if schema is known or (known is not None and schema.equals(known, check_metadata=True)):
            return None
        self._schema, self._writers = schema, {}
        return None if needs_stream(schema) else schema

    def payload(self, batches: Sequence[RecordBatch], once: Sequence[EncodedOnce | None] | None = None) -> list[Piece]:
        """The pieces of a payload with the rows of all, which share the last schema.

        Args:
            batches: the rows.
            once: for each batch where its bytes are kept for other channels, if they get it as well; None: nothing is kept.
        """
        together = [(batch, None) for batch in _together(batches)] if once is None else _with_bytes(batches, once)
        pieces: list[Piece] = [_COUNT.pack(len(together))]
        offset = _COUNT.size
        for batch, kept in together:
            flags, columns, size = self._columns(batch) if kept is None else kept.get(partial(self._columns, batch))
            marks = batch.watermarks
            head = _HEAD.pack(flags, 0 if marks is None else len(marks), size)
            pieces.append(head)
            offset += len(head)
            if marks is not None:
                for values in (marks.rows, marks.timestamps):
                    data = np.ascontiguousarray(values, np.int64).tobytes()
                    pieces.append(data)
                    offset += len(data)
            padding = -offset % _ALIGNMENT
            pieces += (bytes(padding), *columns)
            offset += padding + size
        return pieces

    def _columns(self, batch: RecordBatch) -> _Columns:
        flags, arrays = 0, list(batch.columns.columns)
        if batch.timestamps is not None:
            flags |= _TIMESTAMPS
            arrays.append(batch.timestamps)
        if batch.row_kinds is not None:
            flags |= _ROW_KINDS
            arrays.append(batch.row_kinds)
        writer = self._writers.get(flags)
        if writer is None:
            whole_schema = _schema_with(batch.columns.schema, flags)
            writer = self._writers[flags] = _MessageWriter(whole_schema, self._options)
        whole = pa.RecordBatch.from_arrays(arrays, schema=writer.schema) if arrays else batch.columns
        if not arrays or needs_stream(writer.schema):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, whole.schema, options=self._options) as stream:
                stream.write_batch(whole)
            buffer = sink.getvalue()
            return flags | _STREAM, [buffer], buffer.size
        return flags, *writer.message(whole)


class _MessageWriter:
    """Writes batches as IPC messages without copying their buffers: into a file that only remembers what it was given."""

    closed = False

    def __init__(self, schema: pa.Schema, options: pa.ipc.IpcWriteOptions) -> None:
        self.schema = schema
        self._pieces: list[Piece] = []
        self._writer: pa.RecordBatchStreamWriter | None = None
        if len(schema) and not needs_stream(schema):
            self._writer = pa.ipc.new_stream(pa.PythonFile(self, mode="w"), schema, options=options)
            empty = [pa.array([], field.type) for field in schema]
            self._writer.write_batch(pa.RecordBatch.from_arrays(empty, schema=schema))  # the schema goes before it

    def message(self, batch: pa.RecordBatch) -> tuple[list[Piece], int]:
        """The pieces of one message, and their bytes."""
        assert self._writer is not None
        self._pieces = []
        self._writer.write_batch(batch)
        return self._pieces, sum(len(piece) for piece in self._pieces)

    # What a file of Python's must have.

    def write(self, data: Piece) -> None:
        """Remember a piece."""
        self._pieces.append(data)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False


class BatchDecoder:
    """Reads the payloads of one channel."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._whole: dict[int, pa.Schema] = {}

    def set_schema(self, payload: pa.Buffer) -> None:
        """The columns of rows from now on."""
        self._schema = pa.ipc.read_schema(payload)
        self._whole = {}

    def batches(self, payload: pa.Buffer) -> list[RecordBatch]:
        """The batches of a payload; their columns are views of it.

        Raises:
            ClusterError: it is none.
        """
        try:
            return self._batches(payload)
        except (pa.ArrowException, OSError, struct.error, ValueError) as error:
            raise ClusterError(f"rows of another process could not be read: {error}") from error

    def _batches(self, payload: pa.Buffer) -> list[RecordBatch]:
        view = memoryview(payload)
        (count,) = _COUNT.unpack_from(view)
        offset, found = _COUNT.size, []
        for _ in range(count):
            flags, watermarks, size = _HEAD.unpack_from(view, offset)
            offset += _HEAD.size
            marks = None
            if watermarks:
                rows = np.frombuffer(view, np.int64, watermarks, offset).copy()
                timestamps = np.frombuffer(view, np.int64, watermarks, offset + 8 * watermarks).copy()
                marks = PassingWatermarks(rows, timestamps)
                offset += 16 * watermarks
            offset += -offset % _ALIGNMENT
            if offset + size > payload.size:
                raise ValueError(f"{offset + size} bytes announced, {payload.size} came")
            found.append(self._batch(flags, payload.slice(offset, size), marks))
            offset += size
        return found

    def _batch(self, flags: int, columns: pa.Buffer, marks: PassingWatermarks | None) -> RecordBatch:
        if flags & _STREAM:
            with pa.ipc.open_stream(columns) as reader:
                whole = reader.read_next_batch()
        else:
            whole = pa.ipc.read_record_batch(columns, self._schema_with(flags & (_TIMESTAMPS | _ROW_KINDS)))
        whole.validate()  # costs nothing: sizes of buffers, not what is in them
        kinds = timestamps = None
        last = whole.num_columns
        if flags & _ROW_KINDS:
            last -= 1
            kinds = whole.column(last)
        if flags & _TIMESTAMPS:
            last -= 1
            timestamps = whole.column(last)
        rows = whole if last == whole.num_columns else whole.select(range(last))
        return RecordBatch(rows, timestamps, kinds, marks)

    def _schema_with(self, flags: int) -> pa.Schema:
        schema = self._whole.get(flags)
        if schema is None:
            if self._schema is None:
                raise ValueError("rows came before their columns")
            schema = self._whole[flags] = _schema_with(self._schema, flags)
        return schema


_TIMESTAMP_FIELD = pa.field("__timestamp", pa.int64())
_ROW_KIND_FIELD = pa.field("__row_kind", pa.int8())


def _schema_with(columns: pa.Schema, flags: int) -> pa.Schema:
    """The columns of rows with those behind them."""
    fields = list(columns)
    if flags & _TIMESTAMPS:
        fields.append(_TIMESTAMP_FIELD)
    if flags & _ROW_KINDS:
        fields.append(_ROW_KIND_FIELD)
    return pa.schema(fields)


def _with_bytes(
    batches: Sequence[RecordBatch], once: Sequence[EncodedOnce | None]
) -> list[tuple[RecordBatch, EncodedOnce | None]]:
    """Batches with where their bytes are kept; those for which they are not may be put together."""
    found: list[tuple[RecordBatch, EncodedOnce | None]] = []
    for alone, run in groupby(zip(batches, once, strict=True), key=lambda pair: pair[1] is not None):
        pairs = list(run)
        found += pairs if alone else [(batch, None) for batch in _together([batch for batch, _ in pairs])]
    return found


def _together(batches: Sequence[RecordBatch]) -> list[RecordBatch]:
    """Runs of small neighbours that agree on having event times as one batch each."""
    found: list[RecordBatch] = []
    for (small, _), run in groupby(batches, key=lambda b: (b.num_rows < _SMALL_ROWS, b.timestamps is None)):
        members = list(run)
        found += [concat_batches(members)] if small and len(members) > 1 else members
    return found


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else False
