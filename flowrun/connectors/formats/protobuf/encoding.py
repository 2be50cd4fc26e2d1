"""Writes the fields of many messages at once, with kernels: as Avro's records are (`avro.encoding`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.avro.encoding import joined_pieces, numbers_of, same_size, unsigned_varints, varints
from flowrun.connectors.formats.protobuf.fields import kind_of
from flowrun.connectors.formats.protobuf.wire import check_in_step, tag_of
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.errors import DataError

Encode = Callable[[pa.Array], tuple[pa.Array, Bools]]
"""A column → (the encoded values, which of them are default values); for NULL any value."""

_FIXED = {1: "<f8", 2: "<f4", 6: "<u8", 7: "<u4", 15: "<i4", 16: "<i8"}
"""`FieldDescriptor.type` → how its values stand in a message, if they have a fixed size."""
_ZIGZAG = (17, 18)
_RANGES = {"INT32": (-(1 << 31), (1 << 31) - 1), "UINT32": (0, (1 << 32) - 1), "UINT64": (0, (1 << 63) - 1)}
_ENUM_RANGE = _RANGES["INT32"]


@record
class _Field:
    name: str
    index: int
    number: int
    head: bytes
    presence: bool
    encode: Encode


class MessageWriter:
    """Encodes rows as messages of one type.

    Args:
        descriptor: of the messages.
        names: the fields of the columns.
        types: the types of the columns; they fit.

    Raises:
        NotInStepError: a column is of a kind that the library must write.
    """

    def __init__(self, descriptor: Any, names: Sequence[str], types: Sequence[DataType]) -> None:
        check_in_step(descriptor, names)
        fields = []
        for index, (name, type) in enumerate(zip(names, types, strict=True)):
            field = descriptor.fields_by_name[name]
            head = unsigned_varints(np.array([tag_of(field)], np.uint64))[0].as_py()
            fields.append(_Field(name, index, field.number, head, field.has_presence, _encoder(field, type)))
        self._fields = sorted(fields, key=lambda f: f.number)

    def write(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """A message for each row; NULLs, and default values of fields that have no presence, are absent.

        Raises:
            DataError: a value cannot be written.
        """
        if not rows or not self._fields:
            return pa.array([b""] * rows, pa.binary())
        pieces: list[pa.Array | bytes] = []
        for field in self._fields:
            column = columns[field.index]
            try:
                values, default = field.encode(column)
            except DataError as error:
                raise DataError(f"field '{field.name}': {error.message}", row=error.row) from None
            there = column.is_valid().to_numpy(zero_copy_only=False)
            if not field.presence:
                there &= ~default
            piece = joined_pieces([field.head, values])
            pieces.append(piece if there.all() else pc.if_else(pa.array(there), piece, pa.scalar(b"", pa.binary())))
        return joined_pieces(pieces)


def _encoder(field: Any, type: DataType) -> Encode:
    kind = kind_of(field)
    match kind:
        case "MESSAGE":
            return _message(field, type)
        case "STRING" | "BYTES":
            return _sized
        case "BOOL":
            return _boolean
        case "FLOAT" | "DOUBLE":
            return _floating("<f8" if kind == "DOUBLE" else "<f4")
        case "ENUM":
            return _enum(field, type)
    low_high = _RANGES.get(kind)
    fixed = _FIXED.get(field.type)

    def number(column: pa.Array) -> tuple[pa.Array, Bools]:
        values = numbers_of(column)
        if low_high is not None:
            _check_range(values, *low_high, kind.lower())
        if fixed is not None:
            narrow = values.astype(fixed)
            return same_size(np.ascontiguousarray(narrow).view(np.uint8), narrow.itemsize), values == 0
        encoded = varints(values) if field.type in _ZIGZAG else unsigned_varints(values.view(np.uint64))
        return encoded, values == 0

    return number


def _check_range(values: Integers, low: int, high: int, what: str) -> None:
    wrong = (values < low) | (values > high)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{values[row]} is no {what}", row=row)


def _message(field: Any, type: DataType) -> Encode:
    writer = MessageWriter(field.message_type, type.names, type.children)

    def encode(column: pa.Array) -> tuple[pa.Array, Bools]:
        values, _ = _sized(writer.write(column.flatten(), len(column)))
        return values, np.zeros(len(column), np.bool_)

    return encode


def _sized(column: pa.Array) -> tuple[pa.Array, Bools]:
    values = pc.fill_null(pc.cast(column, pa.binary()), b"")
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return joined_pieces([unsigned_varints(lengths.view(np.uint64)), values]), lengths == 0


def _boolean(column: pa.Array) -> tuple[pa.Array, Bools]:
    flags: Bools = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return same_size(flags.astype(np.uint8), 1), ~flags


def _floating(wire: str) -> Encode:
    def encode(column: pa.Array) -> tuple[pa.Array, Bools]:
        values = np.ascontiguousarray(pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False).astype(wire))
        default = (values == 0) & ~np.signbit(values)  # minus zero is no default
        return same_size(values.view(np.uint8), values.itemsize), default

    return encode


def _enum(field: Any, type: DataType) -> Encode:
    numbers = np.array([v.number for v in field.enum_type.values], np.int64)
    names = pa.array([v.name for v in field.enum_type.values], pa.string())
    name = field.enum_type.full_name
    closed = bool(getattr(field.enum_type, "is_closed", True))

    def encode(column: pa.Array) -> tuple[pa.Array, Bools]:
        if type.is_character:
            places = pc.index_in(pc.fill_null(column, names[0]), names)
            if places.null_count:
                row = int(np.argmax(places.is_null().to_numpy(zero_copy_only=False)))
                raise DataError(f"'{column[row]}' is no value of the enum {name}", row=row)
            values = numbers[places.to_numpy(zero_copy_only=False)]
        else:
            filled = pc.fill_null(column, pa.scalar(int(numbers[0])).cast(column.type))
            values = numbers_of(filled)
            unknown = ~np.isin(values, numbers)
            if closed and unknown.any():
                row = int(np.argmax(unknown))
                raise DataError(f"{values[row]} is no value of the enum {name}", row=row)
            _check_range(values, *_ENUM_RANGE, "value of an enum")
        return unsigned_varints(values.view(np.uint64)), values == 0

    return encode
