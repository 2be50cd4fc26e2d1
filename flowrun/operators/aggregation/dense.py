"""Grouped reductions by direct address: one array cell per possible group, for integer-like keys of a bounded range.

Ten times as fast as a hash aggregate where it applies (measured: 200–900 M rows/s against 12–130 M), because `numpy.ufunc.at` runs
an indexed loop without hashing. The cells are a mixed-radix number over the key columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools, Integers
from flowrun.core.decimal_words import decimal_words, decimals_of
from flowrun.core.record import record

Slots: TypeAlias = Integers

_MIN_CELLS = 1 << 16
_CELLS_PER_ROW = 4
_WORD_DECIMAL_DIGITS = 18


@record
class Reduction:
    """One result column: `function` (count_all, count, sum, min, max, first, last) over the non-NULL `values` of a group.

    `count_all` has no values. `first` and `last` go by row order. Sums of integers are BIGINT and wrap: callers check the bound
    (see `sums`); sums of decimals are DECIMAL(38, s); the rest keeps the type of its values.
    """

    function: str
    values: pa.Array | None = None


@record
class _Radix:
    low: int
    size: int
    has_null: bool


@record
class DenseKeys:
    """The cell of every row and how to get keys back from a cell.

    Attributes:
        slots: cell of each row.
        total: number of cells.
    """

    slots: Slots
    total: int
    radices: tuple[_Radix, ...]
    types: tuple[pa.DataType, ...]

    def keys_of(self, cells: Slots) -> list[pa.Array]:
        """The key columns of the given cells."""
        columns: list[pa.Array] = []
        rest = cells
        for radix, kind in zip(reversed(self.radices), reversed(self.types), strict=True):
            if len(self.radices) == 1:
                digit = rest
            else:
                rest, digit = np.divmod(rest, radix.size)
            null = digit == radix.size - 1 if radix.has_null else None
            columns.append(from_words(digit + radix.low, null, kind))
        return columns[::-1]


def is_addressable(kind: pa.DataType) -> bool:
    """Whether values of a type are integers underneath."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind)) and not (
        pa.types.is_uint64(kind) or pa.types.is_interval(kind)
    )


def dense_keys(keys: Sequence[pa.Array], rows: int) -> DenseKeys | None:
    """Cells for the key columns, or None if their types or ranges do not allow it. No keys: one cell."""
    if not keys:
        return DenseKeys(np.zeros(rows, np.int64), 1, (), ())
    if rows == 0 or not all(is_addressable(k.type) for k in keys):
        return None
    limit = max(_MIN_CELLS, _CELLS_PER_ROW * rows)
    radices: list[_Radix] = []
    total = 1
    columns: list[Slots] = []
    for key in keys:
        values = to_words(key)
        valid = values if not key.null_count else values[_valid(key)]
        low, high = (int(valid.min()), int(valid.max())) if len(valid) else (0, 0)
        has_null = key.null_count > 0
        size = high - low + 1 + has_null
        total *= size
        if total > limit:
            return None
        if has_null:
            values = np.where(_valid(key), values, high + 1)
        columns.append(values)
        radices.append(_Radix(low, size, has_null))
    slots = columns[0] - radices[0].low if radices[0].low else columns[0]
    for values, radix in zip(columns[1:], radices[1:], strict=True):
        slots = slots * radix.size
        slots += values
        slots -= radix.low
    return DenseKeys(slots, total, tuple(radices), tuple(k.type for k in keys))


def is_reducible(reduction: Reduction) -> bool:
    """Whether `reduce_slots` can compute it: all but sums and extremes of strings, long decimals and nested values."""
    if reduction.function in ("count_all", "count", "first", "last"):
        return True
    assert reduction.values is not None
    kind = reduction.values.type
    if pa.types.is_floating(kind) or is_addressable(kind):
        return True
    return bool(pa.types.is_decimal128(kind)) and kind.precision <= _WORD_DECIMAL_DIGITS


def reduce_slots(slots: Slots, total: int, cells: Slots | None, reduction: Reduction) -> pa.Array:
    """The reduction of the rows of each cell in `cells` (None: all `total`); NULL where no value counts."""
    values = reduction.values
    if reduction.function == "count_all":
        return pa.array(_pick(np.bincount(slots, minlength=total), cells))
    assert values is not None
    if values.null_count:
        valid = np.flatnonzero(_valid(values))
        slots = slots[valid]
    else:
        valid = None
    if reduction.function == "count":
        return pa.array(_pick(np.bincount(slots, minlength=total), cells))
    if reduction.function in ("first", "last"):
        return _reduce_position(slots, total, cells, reduction.function, values, valid)
    empty = None
    if valid is not None or cells is None:
        seen = np.zeros(total, np.bool_)
        seen[slots] = True
        empty = ~_pick(seen, cells)
    if valid is not None:
        values = values.take(pa.array(valid))
    return _reduce_values(slots, total, cells, reduction.function, values, empty)


def present_cells(slots: Slots, total: int) -> Slots:
    """The cells that have rows, ascending."""
    seen = np.zeros(total, np.bool_)
    seen[slots] = True
    return np.flatnonzero(seen)


def _reduce_position(
    slots: Slots, total: int, cells: Slots | None, function: str, values: pa.Array, valid: Slots | None
) -> pa.Array:
    rows = np.arange(len(values), dtype=np.int64) if valid is None else valid
    position = np.full(total, -1, np.int64)
    if function == "last":
        position[slots] = rows  # NumPy keeps the last of several assignments to one cell
    else:
        position[slots[::-1]] = rows[::-1]
    picked = _pick(position, cells)
    return values.take(pa.array(picked, mask=picked < 0))


def _reduce_values(
    slots: Slots, total: int, cells: Slots | None, function: str, values: pa.Array, empty: Bools | None
) -> pa.Array:
    kind = values.type
    if pa.types.is_floating(kind):
        return _reduce_floats(slots, total, cells, function, values, empty)
    numbers = to_words(values)
    if function == "sum":
        out = np.zeros(total, np.int64)
        np.add.at(out, slots, numbers)
    elif function == "min":
        out = np.full(total, np.iinfo(np.int64).max)
        np.minimum.at(out, slots, numbers)
    else:
        out = np.full(total, np.iinfo(np.int64).min)
        np.maximum.at(out, slots, numbers)
    picked = _pick(out, cells)
    if function != "sum":
        return from_words(picked, empty, kind)
    if pa.types.is_decimal(kind):
        return from_words(picked, empty, pa.decimal128(38, kind.scale))
    return pa.array(picked, mask=empty)


def _reduce_floats(
    slots: Slots, total: int, cells: Slots | None, function: str, values: pa.Array, empty: Bools | None
) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    if function == "sum":
        out = np.zeros(total, np.float64)
        np.add.at(out, slots, numbers.astype(np.float64, copy=False))
        return pa.array(_pick(out, cells), mask=empty)
    out = np.full(total, np.nan, numbers.dtype)  # fmin and fmax let any number win over NaN
    (np.fmin if function == "min" else np.fmax).at(out, slots, numbers)
    return pa.array(_pick(out, cells), mask=empty)


def _pick(values: npt.NDArray[Any], cells: Slots | None) -> npt.NDArray[Any]:
    return values if cells is None or len(cells) == len(values) else values[cells]


def _valid(array: pa.Array) -> Bools:
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def to_words(array: pa.Array) -> Slots:
    """The integers underneath a column (of decimals the low 64 bits), with anything in NULL places."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return decimal_words(array)[:, 0]
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    if array.null_count:
        array = pc.fill_null(array, 0)
    numbers: Slots = array.to_numpy().astype(np.int64, copy=False)
    return numbers


def from_words(numbers: Slots, null: Bools | None, kind: pa.DataType) -> pa.Array:
    """A column of the integers underneath it, NULL where `null`; the reverse of `to_words`."""
    if null is not None:
        numbers = np.where(null, 0, numbers)
    if pa.types.is_decimal(kind):
        return decimals_of(numbers, kind, null)
    if pa.types.is_boolean(kind):
        values = pa.array(numbers.astype(np.bool_))
    elif pa.types.is_temporal(kind):
        values = pa.array(numbers.astype(np.int64 if kind.bit_width == 64 else np.int32, copy=False)).view(kind)
    else:
        values = pa.array(numbers.astype(kind.to_pandas_dtype(), copy=False))
    if null is None or not null.any():
        return values
    return pc.if_else(pa.array(null), pa.scalar(None, kind), values)
