"""Encodes rows as Avro records with kernels, a column at a time.

Each column becomes a binary array of encoded values. They are joined element by element, with what is the same for all rows between
them. No Python code runs for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.json_encoder import joined_bytes
from flowrun.core.arrays import Bools, Integers, UInt64s
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot

_NULL, _VALUE = b"\x00", b"\x02"
"""The branches of a union of null and another type."""
_END = b"\x00"
"""What ends an array or map."""


class AvroEncoder:
    """Encodes rows as records of the schema that stands for the table (`types.schema_text`).

    Args:
        schema: the columns of the rows.
    """

    def __init__(self, schema: Schema) -> None:
        self._types = schema.types
        self._required = [not f.nullable for f in schema]

    def header(self) -> bytes:
        """Empty: single records have no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All rows, one behind the other, as they stand in a block of a container file."""
        return joined_bytes(self.encode_messages(columns))

    def encode_messages(self, columns: pa.RecordBatch, before: bytes = b"") -> pa.Array:
        """A record for each row, each behind the bytes `before`."""
        return record_pieces(columns.columns, self._types, self._required, columns.num_rows, before)


def record_pieces(
    columns: list[pa.Array], types: tuple[DataType, ...], required: list[bool], rows: int, before: bytes = b""
) -> pa.Array:
    """The encoded fields of records, one behind the other, behind the bytes `before`."""
    parts: list[pa.Array | bytes] = []
    literal = before
    for column, type, always in zip(columns, types, required, strict=True):
        if type.root is TypeRoot.NULL:
            continue
        if always:
            parts += [literal, _values(column, type)]
        elif not column.null_count:
            parts += [literal + _VALUE, _values(column, type)]
        else:
            parts += [literal, _or_null(column, type)]
        literal = b""
    if len(parts) == 0:
        return pa.array([literal] * rows, pa.binary())
    return joined_pieces([*parts, literal])


def joined_pieces(parts: list[pa.Array | bytes]) -> pa.Array:
    """Binary arrays, and bytes that are the same for all rows, joined element by element."""
    given = [pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in parts if not isinstance(p, bytes) or p]
    if len(given) == 1:
        return given[0]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", pa.binary()))


def _or_null(column: pa.Array, type: DataType) -> pa.Array:
    """Values of a union of null and a type."""
    if type.root is TypeRoot.NULL:
        return pa.array([_NULL] * len(column), pa.binary())
    full = joined_pieces([_VALUE, _values(column, type)])
    return pc.if_else(column.is_valid(), full, pa.scalar(_NULL, pa.binary())) if column.null_count else full


def _values(column: pa.Array, type: DataType) -> pa.Array:
    """The encoded values; for NULLs any value."""
    return _ENCODERS[type.root](column, type)


def varints(values: Integers) -> pa.Array:
    r"""Numbers as Avro writes int and long: zigzag, 7 bits a byte, the lowest first.

    >>> varints(np.array([0, -1, 64])).to_pylist()
    [b'\x00', b'\x01', b'\x80\x01']
    """
    return unsigned_varints(((values << 1) ^ (values >> 63)).view(np.uint64))


def unsigned_varints(bits: UInt64s) -> pa.Array:
    """Numbers in 7 bits a byte, the lowest first."""
    sizes = np.ones(len(bits), np.int64)
    for shift in range(7, 64, 7):
        more = bits >= np.uint64(1 << shift)
        if not more.any():
            break
        sizes += more
    offsets = _ends(sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    for place in range(int(sizes.max(initial=0))):
        which: Integers | slice = slice(None) if place == 0 else np.flatnonzero(sizes > place)
        digits = ((bits[which] >> np.uint64(7 * place)) & np.uint64(0x7F)).astype(np.uint8)
        digits |= (sizes[which] > place + 1).astype(np.uint8) << 7
        out[offsets[:-1][which] + place] = digits
    return _binary_array(offsets, out)


def _ends(sizes: Integers) -> Integers:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _binary_array(offsets: Integers, data: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def same_size(data: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], size: int) -> pa.Array:
    """Values of `size` bytes each."""
    return _binary_array(np.arange(0, len(data) + 1, size), data)


def numbers_of(column: pa.Array) -> Integers:
    """The 64-bit integers of a column of integers or times; 0 for NULL."""
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    plain = column.view(width) if not pa.types.is_integer(column.type) else column
    filled = pc.fill_null(plain, 0) if plain.null_count else plain
    numbers: Integers = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _integer(column: pa.Array, _type: DataType) -> pa.Array:
    return varints(numbers_of(column))


def _boolean(column: pa.Array, _type: DataType) -> pa.Array:
    flags: Bools = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return same_size(flags.astype(np.uint8), 1)


def _floating(column: pa.Array, type: DataType) -> pa.Array:
    wide = "<f8" if type.root is TypeRoot.DOUBLE else "<f4"
    numbers = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False).astype(wide)
    return same_size(np.ascontiguousarray(numbers).view(np.uint8), numbers.itemsize)


def _text(column: pa.Array, _type: DataType) -> pa.Array:
    values = pc.cast(column, pa.binary())
    values = pc.fill_null(values, b"") if values.null_count else values
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return joined_pieces([varints(lengths), values])


_WIDTH = 16


def _decimal(column: pa.Array, type: DataType) -> pa.Array:
    """Two's complement, the highest byte first, as few bytes as hold the number."""
    column = pc.fill_null(column, pa.scalar(Decimal(0), type.arrow)) if column.null_count else column
    data = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * _WIDTH : (column.offset + len(column)) * _WIDTH]
    highest_first = data.reshape(len(column), _WIDTH)[:, ::-1]
    sign = np.where(highest_first[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    differs = highest_first != sign[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), _WIDTH - 1)
    top = highest_first[np.arange(len(column)), first]
    first -= (top >= 0x80) != (sign == 0xFF)
    lengths = _WIDTH - first
    kept = highest_first[np.arange(_WIDTH) >= first[:, None]]
    return joined_pieces([varints(lengths), _binary_array(_ends(lengths), np.ascontiguousarray(kept))])


def _array(column: pa.Array, type: DataType) -> pa.Array:
    offsets, (items,) = _spans(column, lambda lists: [lists.values])
    element = type.children[0]
    encoded = _values(items, element) if type.is_required(0) else _or_null(items, element)
    return _blocks(offsets, encoded)


def _map(column: pa.Array, type: DataType) -> pa.Array:
    offsets, (keys, items) = _spans(column, lambda maps: [maps.keys, maps.items])
    value = type.children[1]
    encoded = _values(items, value) if type.is_required(1) else _or_null(items, value)
    return _blocks(offsets, joined_pieces([_text(keys, type.children[0]), encoded]))


def _spans(column: pa.Array, children: Callable[[pa.Array], list[pa.Array]]) -> tuple[Integers, list[pa.Array]]:
    """(the offsets from 0 of a list or map array whose NULLs are empty, what of its children it covers)."""
    lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
    if column.null_count and lengths[column.is_null().to_numpy(zero_copy_only=False)].any():
        column = column.take(pa.array(np.arange(len(column))))  # after `take` there are no children behind NULLs
    ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return ends - ends[0], [child.slice(int(ends[0]), int(ends[-1] - ends[0])) for child in children(column)]


def _blocks(offsets: Integers, encoded: pa.Array) -> pa.Array:
    """Each list as one block with its count, and the end."""
    lengths = np.diff(offsets)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), encoded), b"")
    filled = joined_pieces([varints(lengths), joined, _END])
    return pc.if_else(pa.array(lengths > 0), filled, pa.scalar(_END, pa.binary())) if (lengths == 0).any() else filled


def _row(column: pa.Array, type: DataType) -> pa.Array:
    required = [type.is_required(i) for i in range(len(type.children))]
    return record_pieces(column.flatten(), type.children, required, len(column))


_ENCODERS: dict[TypeRoot, Callable[[pa.Array, DataType], pa.Array]] = {
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _integer,
    TypeRoot.SMALLINT: _integer,
    TypeRoot.INTEGER: _integer,
    TypeRoot.BIGINT: _integer,
    TypeRoot.DATE: _integer,
    TypeRoot.TIME: _integer,
    TypeRoot.TIMESTAMP: _integer,
    TypeRoot.TIMESTAMP_LTZ: _integer,
    TypeRoot.FLOAT: _floating,
    TypeRoot.DOUBLE: _floating,
    TypeRoot.DECIMAL: _decimal,
    TypeRoot.CHAR: _text,
    TypeRoot.VARCHAR: _text,
    TypeRoot.BINARY: _text,
    TypeRoot.VARBINARY: _text,
    TypeRoot.ARRAY: _array,
    TypeRoot.MAP: _map,
    TypeRoot.ROW: _row,
}
