"""Avro's decimals: unscaled numbers as two's complement bytes, the highest first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.avro.lanes import Lanes
from flowrun.connectors.formats.text_values import round_decimal
from flowrun.core.arrays import Bytes, Integers
from flowrun.core.types import MAX_DECIMAL_PRECISION, DataType

_WIDTH = 16
"""The bytes of a decimal in Arrow."""
_LARGEST = 10**MAX_DECIMAL_PRECISION


def decimal_column(lanes: Lanes, size: int | None, scale: int, target: DataType) -> pa.Array:
    """Read a decimal of each lane.

    Args:
        lanes: where they stand.
        size: the bytes of each value; None: its length stands before it.
        scale: the digits behind the point that the values have.
        target: the type of the column. Digits that its scale has no room for are rounded half up, as Flink does.
    """
    start, length = lanes.sized() if size is None else lanes.fixed(size)
    lanes.fail(length == 0, "a decimal has no bytes")
    length = np.where(length == 0, 0, length)
    bytes_ = _right_aligned(lanes.source.bytes, start, length)
    wide = np.flatnonzero(length > _WIDTH)
    if len(wide):
        _take_wide(lanes, start, length, wide, bytes_)
    values = np.ascontiguousarray(bytes_[:, ::-1])
    wire = pa.decimal128(MAX_DECIMAL_PRECISION, scale)
    column = pa.Array.from_buffers(wire, len(start), [None, pa.py_buffer(values)])
    try:
        column.validate(full=True)
        return _fitted(column, target)
    except pa.ArrowInvalid:
        return _one_by_one(lanes, column, target)


def _right_aligned(data: Bytes, start: Integers, length: Integers) -> Bytes:
    """The last 16 bytes of each value; what is before a shorter one is filled with its sign."""
    places = (start + length)[:, None] - _WIDTH + np.arange(_WIDTH)
    inside = places >= start[:, None]
    bytes_ = data[np.maximum(places, 0)]
    sign = np.where((length > 0) & (data[start] >= 0x80), 0xFF, 0).astype(np.uint8)
    return np.where(inside, bytes_, sign[:, None])


def _take_wide(lanes: Lanes, start: Integers, length: Integers, wide: Integers, into: Bytes) -> None:
    """Values of more than 16 bytes, which a fixed may have: most of them are small numbers all the same."""
    text = lanes.source.text
    broken = np.zeros(len(lanes), np.bool_)
    for lane in wide.tolist():
        value = int.from_bytes(text[start[lane] : start[lane] + length[lane]], "big", signed=True)
        broken[lane] = abs(value) >= _LARGEST
        kept = 0 if broken[lane] else value
        into[lane] = np.frombuffer(kept.to_bytes(_WIDTH, "big", signed=True), np.uint8)
    lanes.fail(broken, f"a decimal has more than {MAX_DECIMAL_PRECISION} digits")


def _fitted(column: pa.Array, target: DataType) -> pa.Array:
    if column.type.scale > (target.scale or 0):
        return round_decimal(column, target)
    return pc.cast(column, target.arrow)


def _one_by_one(lanes: Lanes, column: pa.Array, target: DataType) -> pa.Array:
    """The values that fit; the records of the others are broken."""
    broken = np.zeros(len(column), np.bool_)
    pieces = []
    for i in range(len(column)):
        try:
            column[i : i + 1].validate(full=True)
            pieces.append(_fitted(column[i : i + 1], target))
        except pa.ArrowInvalid:
            broken[i] = True
            pieces.append(pa.nulls(1, target.arrow))
    lanes.fail(broken, f"a decimal is no {target}")
    return pa.concat_arrays(pieces)
