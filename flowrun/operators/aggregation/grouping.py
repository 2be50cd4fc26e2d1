"""Grouping rows by key columns and reducing each group: by direct address where keys allow, else by Arrow's hash aggregate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from flowrun.operators.aggregation.dense import (
    Reduction,
    Slots,
    dense_keys,
    is_reducible,
    present_cells,
    reduce_slots,
)
from flowrun.operators.aggregation.numbering import by_appearance, by_hash, first_rows

Columns: TypeAlias = "list[pa.Array]"


def reduce_by(keys: Sequence[pa.Array], rows: int, reductions: Sequence[Reduction]) -> tuple[Columns, Columns]:
    """(distinct keys, one column per reduction), NULL being a key like any other; no keys: one group.

    Groups come in any order; see `group_ids` for the types that keys may have.

    >>> keys, sums = reduce_by([pa.array([2, 1, 2])], 3, [Reduction("sum", pa.array([1, 2, 3]))])
    >>> keys[0].to_pylist(), sums[0].to_pylist()
    ([1, 2], [2, 4])
    """
    if rows == 0:
        return [k.slice(0, 0) for k in keys], [_empty(r) for r in reductions]
    dense = dense_keys(keys, rows)
    if dense is not None and all(is_reducible(r) for r in reductions):
        cells = present_cells(dense.slots, dense.total)
        return dense.keys_of(cells), [reduce_slots(dense.slots, dense.total, cells, r) for r in reductions]
    if keys and all(_is_hashed(r) for r in reductions):
        return _reduce_hashed(keys, reductions)
    ids, total, first = numbered_groups(keys, rows)
    return [k.take(first) for k in keys], reduce_ids(ids, total, reductions)


def reduce_ids(ids: Slots, total: int, reductions: Sequence[Reduction]) -> Columns:
    """The reductions of the groups 0 … total − 1; a group without rows counts 0 and is NULL otherwise."""
    results: list[pa.Array | None] = [
        reduce_slots(ids, total, None, r) if is_reducible(r) else None for r in reductions
    ]
    hashed = [i for i, r in enumerate(results) if r is None]
    if hashed:
        # a row of NULLs for every group makes each of them appear
        slots = pa.array(np.concatenate([np.arange(total, dtype=np.int64), ids]))
        padded = [Reduction(reductions[i].function, _pad(reductions[i].values, total)) for i in hashed]
        (numbers,), columns = _reduce_hashed([slots], padded)
        order = pa.array(np.argsort(numbers.to_numpy()))
        for i, column in zip(hashed, columns, strict=True):
            results[i] = column.take(order)
    return [r for r in results if r is not None]


def group_ids(keys: Sequence[pa.Array], rows: int) -> tuple[Slots, int]:
    """(a group number per row, how many numbers there are); equal keys have equal numbers. Some numbers may have no row.

    Keys may have any type but lists, structs and maps, which `KeyCodec` turns into text first.
    """
    dense = dense_keys(keys, rows)
    if dense is not None:
        return dense.slots, dense.total
    return by_hash(keys, rows)


def numbered_groups(keys: Sequence[pa.Array], rows: int) -> tuple[Slots, int, pa.Array]:
    """(group number per row, number of groups, first row of each group); groups are numbered in the order in which they appear."""
    ids, total = by_appearance(keys, rows)
    return ids, total, pa.array(first_rows(ids, total))


def _is_hashed(reduction: Reduction) -> bool:
    """Whether Arrow's hash aggregate has this function for this type."""
    if reduction.values is None:
        return True
    if reduction.function in ("first", "last"):
        return False
    return reduction.function == "count" or not pa.types.is_duration(reduction.values.type)


def _reduce_hashed(keys: Sequence[pa.Array], reductions: Sequence[Reduction]) -> tuple[Columns, Columns]:
    names = [f"k{i}" for i in range(len(keys))]
    columns = {f"v{i}": r.values for i, r in enumerate(reductions) if r.values is not None}
    table = pa.table([*keys, *columns.values()], names=[*names, *columns])
    calls = [([], "count_all") if r.values is None else (f"v{i}", r.function) for i, r in enumerate(reductions)]
    grouped = table.group_by(names, use_threads=False).aggregate(calls).combine_chunks()
    flat = [_plain(grouped.column(i)) for i in range(grouped.num_columns)]
    return flat[: len(keys)], flat[len(keys) :]


def _plain(column: pa.ChunkedArray) -> pa.Array:
    combined: pa.Array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return combined


def _pad(values: pa.Array | None, nulls: int) -> pa.Array:
    assert values is not None
    return pa.concat_arrays([pa.nulls(nulls, values.type), values])


def _empty(reduction: Reduction) -> pa.Array:
    if reduction.values is None or reduction.function == "count":
        return pa.array([], pa.int64())
    kind = reduction.values.type
    if reduction.function == "sum":
        if pa.types.is_decimal(kind):
            kind = pa.decimal128(38, kind.scale)
        else:
            kind = pa.float64() if pa.types.is_floating(kind) else pa.int64()
    return pa.array([], kind)
