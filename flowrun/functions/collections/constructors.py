"""Kernels that build and take apart nested values: ROW(…), ARRAY[…], MAP[…], element access."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType
from flowrun.errors import DataError
from flowrun.functions.casts.to_text import entries
from flowrun.functions.contract import Datum
from flowrun.functions.decimals import to_mask


def _columns(arguments: Sequence[Datum], rows: int) -> list[pa.Array]:
    return [
        a if not isinstance(a, pa.Scalar) else pa.repeat(a, rows) if a.is_valid else pa.nulls(rows, a.type)
        for a in arguments
    ]


def make_row(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """A ROW of the arguments; never NULL itself."""
    return pa.StructArray.from_arrays(_columns(arguments, rows), fields=list(result.arrow))


def _interleaved(columns: list[pa.Array], rows: int) -> pa.Array:
    """Row by row, the values of all columns."""
    stacked = pa.concat_arrays(columns)
    order = np.arange(len(stacked)).reshape(len(columns), rows).T.ravel()
    return stacked.take(pa.array(order))


def _offsets(rows: int, width: int) -> pa.Int32Array:
    return pa.array(np.arange(rows + 1, dtype=np.int32) * width)


def make_array(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """An ARRAY of the arguments, in order."""
    if not arguments:
        return pa.ListArray.from_arrays(_offsets(rows, 0), pa.array([], result.arrow.value_type))
    values = _interleaved(_columns(arguments, rows), rows)
    return pc.cast(pa.ListArray.from_arrays(_offsets(rows, len(arguments)), values), result.arrow)


def make_map(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """A MAP of alternating keys and values; of equal keys the last one stays.

    Raises:
        DataError: a key is NULL.
    """
    columns = _columns(arguments, rows)
    keys, values = columns[0::2], columns[1::2]
    for key in keys:
        if key.null_count:
            hint = "leave such rows out (WHERE key IS NOT NULL), or give them another key (COALESCE)"
            raise DataError("a key of MAP[…] is NULL", row=int(np.argmax(to_mask(pc.is_null(key)))), hint=hint)
    if not keys:
        empty = pa.array([], result.arrow.key_type), pa.array([], result.arrow.item_type)
        return pa.MapArray.from_arrays(_offsets(rows, 0), *empty)
    repeated = [pc.any(pc.equal(a, b)).as_py() for i, a in enumerate(keys) for b in keys[i + 1 :]]
    if any(repeated):
        lists = zip(*(c.to_pylist() for c in columns), strict=True)
        return pa.array([list(dict(zip(r[0::2], r[1::2], strict=True)).items()) for r in lists], result.arrow)
    return pa.MapArray.from_arrays(_offsets(rows, len(keys)), _interleaved(keys, rows), _interleaved(values, rows))


def element_at(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """`array[i]`, 1-based, or `map[key]`; NULL if there is no such element."""
    container, index = arguments
    column = container if not isinstance(container, pa.Scalar) else _columns([container], rows)[0]
    if not pa.types.is_map(column.type):
        return _list_element(column, index, rows)
    if isinstance(index, pa.Scalar):
        if not index.is_valid:
            return pa.scalar(None, result.arrow)
        return pc.map_lookup(column, index, "first")
    return _map_element(column, index, rows)


def _list_element(column: pa.ListArray, index: Datum, rows: int) -> pa.Array:
    if isinstance(index, pa.Scalar):
        if not index.is_valid:
            return pa.nulls(rows, column.type.value_type)
        at: np.ndarray[tuple[int], np.dtype[np.int64]] | int = index.as_py()
    else:
        at = pc.fill_null(pc.cast(index, pa.int64()), 0).to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    starts = column.offsets.to_numpy(zero_copy_only=False)[:-1].astype(np.int64)
    outside = (lengths < at) | (np.asarray(at) < 1)
    return column.values.take(pa.array(starts + at - 1, mask=outside))


def _map_element(column: pa.MapArray, keys: pa.Array, rows: int) -> pa.Array:
    pairs = entries(column)
    flat = pc.list_flatten(pairs)
    lengths = pc.fill_null(pc.list_value_length(pairs), 0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(rows), lengths)
    hits = np.flatnonzero(to_mask(pc.equal(flat.field(0), keys.take(pa.array(owners)))))
    positions = np.full(rows, -1, np.int64)
    positions[owners[hits]] = hits
    return flat.field(1).take(pa.array(positions, mask=positions < 0))
