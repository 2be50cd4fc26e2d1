"""Arrow and NumPy values as bytes, and back from bytes that need not be right: every length and offset is checked before use."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

_NUMBERS = "biuf"
"""Kinds of NumPy arrays that travel: numbers and booleans."""


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Field names, types and metadata."""
    data: bytes = schema.serialize().to_pybytes()
    return data


def schema_from_bytes(data: bytes) -> pa.Schema:
    """The way back.

    Raises:
        ValueError: the bytes are no schema.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"no schema ({_first_line(error)})") from error


def table_to_bytes(table: pa.Table) -> bytes:
    """An Arrow IPC stream, not compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def table_from_bytes(data: bytes) -> pa.Table:
    """The way back; columns are views of the bytes.

    Raises:
        ValueError: the bytes are no stream, or one that would take more memory than they have: compressed.
    """
    buffer = pa.py_buffer(data)
    try:
        for message in pa.ipc.MessageReader.open_stream(buffer):
            _refuse_compression(message)
        table = pa.ipc.open_stream(buffer).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"no Arrow stream ({_first_line(error)})") from error
    return table


def batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream of one batch."""
    return table_to_bytes(pa.Table.from_batches([batch]))


def batch_from_bytes(data: bytes) -> pa.RecordBatch:
    """The way back.

    Raises:
        ValueError: the bytes are no stream of one batch.
    """
    table = table_from_bytes(data)
    batches = table.to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], table.schema)
    if len(batches) > 1:
        raise ValueError(f"{len(batches)} batches instead of one")
    return batches[0]


def array_to_bytes(array: pa.Array) -> bytes:
    """A stream of one column."""
    return batch_to_bytes(pa.RecordBatch.from_arrays([array], [""]))


def array_from_bytes(data: bytes) -> pa.Array:
    """The way back.

    Raises:
        ValueError: the bytes are no column.
    """
    batch = batch_from_bytes(data)
    if batch.num_columns != 1:
        raise ValueError(f"{batch.num_columns} columns instead of one")
    return batch.column(0)


def numpy_to_parts(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Its type, its shape and its values."""
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"arrays of {array.dtype} do not travel between processes")
    return array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()


def numpy_from_parts(parts: tuple[str, tuple[int, ...], bytes]) -> Any:
    """The way back; the array is a copy that may be written.

    Raises:
        ValueError: type, shape and number of bytes do not fit each other.
    """
    name, shape, data = parts
    try:
        kind = np.dtype(name)
    except (TypeError, SyntaxError, ValueError):
        raise ValueError("unknown type of an array") from None
    if kind.kind not in _NUMBERS or kind.fields is not None or kind.shape:
        raise ValueError("unknown type of an array")
    if any(n < 0 for n in shape) or len(shape) > 2 or _product(shape) * kind.itemsize != len(data):
        raise ValueError("the shape of an array does not fit its bytes")
    return np.frombuffer(data, kind).reshape(shape).copy()


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# The positions of fields in the tables of Arrow's Message.fbs.
_HEADER_OF_MESSAGE = 2
_COMPRESSION_OF_RECORD_BATCH = 3
_DATA_OF_DICTIONARY_BATCH = 1


def _refuse_compression(message: pa.ipc.Message) -> None:
    """Refuse a compressed body: its bytes say how much memory they would take."""
    if message.type not in ("record batch", "dictionary"):
        return
    metadata = memoryview(message.metadata)
    (root,) = struct.unpack_from("<I", metadata, 0)
    batch = _table_in(metadata, root, _HEADER_OF_MESSAGE)
    if batch is not None and message.type == "dictionary":
        batch = _table_in(metadata, batch, _DATA_OF_DICTIONARY_BATCH)
    if batch is None or _table_in(metadata, batch, _COMPRESSION_OF_RECORD_BATCH) is not None:
        raise pa.ArrowInvalid("compressed, or without a header")


def _table_in(metadata: memoryview, table: int, field: int) -> int | None:
    """Where the table in a field of a FlatBuffers table begins; None if the field is not there."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    entry = 4 + 2 * field
    if entry + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, table - back + entry)
    if not offset:
        return None
    (ahead,) = struct.unpack_from("<I", metadata, table + offset)
    place: int = table + offset + ahead
    return place
