"""Functions of maps. Arrow keeps entries in order, so results list them in the order of the map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, array, map_of, row
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.coercion import common_type
from flowrun.functions.collections import spark_texts as texts
from flowrun.functions.collections.array_columns import FlatLists, codes, first_of_each, joined, lists
from flowrun.functions.contract import Argument, Datum, ScalarFunction, Signature
from flowrun.functions.rules import ARRAY, MAP, Rule
from flowrun.functions.spark_text import Function
from flowrun.functions.vectors import any_null_constant, null_of


def _keys_type(arguments: Sequence[Argument]) -> DataType:
    return array(arguments[0].type.children[0])


def _values_type(arguments: Sequence[Argument]) -> DataType:
    return array(arguments[0].type.children[1])


def _entries_type(arguments: Sequence[Argument]) -> DataType:
    key, value = arguments[0].type.children
    return array(row(("key", key), ("value", value)))


def _from_arrays_type(arguments: Sequence[Argument]) -> DataType:
    return map_of(arguments[0].type.children[0], arguments[1].type.children[0])


def _field(place: int, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    return lists(flat.values.field(place), flat.counts, flat.valid, result.arrow)


def _keys(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return _field(0, arguments, rows, result)


def _values(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return _field(1, arguments, rows, result)


def _entries(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    return lists(flat.values, flat.counts, flat.valid, result.arrow)


def _maps(entries: FlatLists, result: DataType) -> pa.Array:
    """A map column of entries; of equal keys of one row the last value stays, at the place of the first."""
    keys, values = entries.values.field(0), entries.values.field(1)
    numbers = codes([keys])[0] if len(keys) else np.array([], np.int64)
    first = first_of_each(entries.parents, numbers)
    if not first.all():
        last = first_of_each(entries.parents[::-1], numbers[::-1])[::-1]
        pairs = entries.parents * (int(numbers.max()) + 1) + numbers
        by_pair = np.flatnonzero(last)[np.argsort(pairs[last], kind="stable")]
        order = by_pair[np.searchsorted(pairs[by_pair], pairs[first])]
        counts = np.bincount(entries.parents[first], minlength=len(entries.counts))
        keys, values = keys.filter(pa.array(first)), values.take(pa.array(order))
    else:
        counts = entries.counts
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    mask = None if entries.valid.all() else pa.array(~entries.valid)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values, mask=mask).cast(result.arrow)


def _from_arrays(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    keys, values = (FlatLists.of(a, rows) for a in arguments)
    valid = keys.valid & values.valid
    wrong = np.flatnonzero((keys.counts != values.counts) & valid)
    if len(wrong):
        place = int(wrong[0])
        raise DataError(f"MAP_FROM_ARRAYS: {keys.counts[place]} keys for {values.counts[place]} values", row=place)
    kept_keys = keys.values.filter(pa.array(valid[keys.parents]))
    kept_values = values.values.filter(pa.array(valid[values.parents]))
    if kept_keys.null_count:
        at = int(keys.parents[valid[keys.parents]][pc.index(pc.is_null(kept_keys), True).as_py()])
        raise DataError("MAP_FROM_ARRAYS: a key is NULL", row=at)
    entries = pa.StructArray.from_arrays([kept_keys, kept_values], ["key", "value"])
    return _maps(FlatLists(entries, np.where(valid, keys.counts, 0), valid), result)


def _union(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    return _maps(joined([FlatLists.of(a, rows) for a in arguments]), result)


class _UnionRule:
    """Maps of one common type."""

    def __init__(self, usage: str) -> None:
        self._shape = Rule(usage, MAP.null_type, (MAP,), variadic=MAP)

    def __call__(self, arguments: Sequence[Argument]) -> Signature:
        types = self._shape(arguments).arguments
        common = common_type(types)
        if common is None:
            raise ExpressionError(f"MAP_UNION: {', '.join(map(str, types))} have no common type", hint="use CAST")
        return Signature((common,) * len(types), common)


_FROM_ARRAYS = "MAP_FROM_ARRAYS(keys, values)"

MAPS = (
    ScalarFunction("MAP_KEYS", Rule("MAP_KEYS(map)", _keys_type, (MAP,)), _keys, "MAP_KEYS(map)",
                   "The keys as an array.", Function("map_keys")),
    ScalarFunction("MAP_VALUES", Rule("MAP_VALUES(map)", _values_type, (MAP,)), _values, "MAP_VALUES(map)",
                   "The values as an array.", Function("map_values")),
    ScalarFunction("MAP_ENTRIES", Rule("MAP_ENTRIES(map)", _entries_type, (MAP,)), _entries, "MAP_ENTRIES(map)",
                   "The entries as an array of rows (key, value).", Function("map_entries")),
    ScalarFunction("MAP_FROM_ARRAYS", Rule(_FROM_ARRAYS, _from_arrays_type, (ARRAY, ARRAY)), _from_arrays,
                   _FROM_ARRAYS, "A map of keys and values; an error if their numbers differ.", texts.map_from_arrays_text, fallible=True),
    ScalarFunction("MAP_UNION", _UnionRule("MAP_UNION(map, …)"), _union, "MAP_UNION(map, …)",
                   "The entries of all maps; later ones win.", texts.map_union_text),
)  # fmt: skip
"""Functions of maps."""
