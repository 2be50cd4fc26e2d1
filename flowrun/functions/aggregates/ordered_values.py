"""The values of ordered aggregates: LISTAGG(…) WITHIN GROUP (ORDER BY …) and ARRAY_AGG(… ORDER BY …) collect rows, and end with this."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import DataType, array
from flowrun.functions.collections.array_columns import FlatLists, Int64Array, lists
from flowrun.functions.contract import Argument, Datum, ScalarFunction, Signature
from flowrun.functions.spark_text import quoted

VALUES_IN_ORDER = "$VALUES_IN_ORDER"


def directions_text(directions: Sequence[tuple[bool, bool]]) -> str:
    """What the function takes as its second argument: two letters for each (descending, NULLs first).

    >>> directions_text([(False, True), (True, False)])
    'af dl'
    """
    return " ".join(f"{'d' if down else 'a'}{'f' if first else 'l'}" for down, first in directions)


def _rule(arguments: Sequence[Argument]) -> Signature:
    rows, directions = (a.type for a in arguments)
    return Signature((rows, directions), array(rows.children[0].children[-1]))


def _ranks(values: pa.Array, *, descending: bool = False, nulls_first: bool = True) -> Int64Array:
    """A number for each value, greater for what comes later, equal for equal values. NaN is the greatest number."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 equals 0.0
    encoded = pc.dictionary_encode(values)
    ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
    ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    ranks = -ranks if descending else ranks
    ranks[-1] = -len(ranks) if nulls_first else len(ranks)
    codes: Int64Array = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy().astype(np.int64)
    found: Int64Array = ranks[codes]
    return found


def _kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """The last field of each list's rows, in order of the fields before, then of itself; NULL of NULL."""
    flat = FlatLists.of(arguments[0], rows)
    *keys, value = flat.values.flatten()
    keys = [
        _ranks(key, descending=d[0] == "d", nulls_first=d[1] == "f")
        for key, d in zip(keys, arguments[1].as_py().split(), strict=True)
    ]
    last = [] if pa.types.is_nested(value.type) else [_ranks(value)]
    order = np.lexsort((*last, *reversed(keys), flat.parents))
    return lists(value.take(pa.array(order)), flat.counts, flat.valid, result.arrow)


def _spark(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    rows, directions = texts
    *keys, value = types[0].children[0].names
    cases = []
    for key, d in zip(keys, directions.strip("'").split(), strict=True):
        cases += _comparison(quoted(key), descending=d[0] == "d", nulls_first=d[1] == "f")
    if not result.children[0].is_nested:
        cases += _comparison(quoted(value), descending=False, nulls_first=True)
    compared = f"array_sort({rows}, (`$l`, `$r`) -> CASE {' '.join(cases)} ELSE 0 END)"
    return f"transform({compared}, `$l` -> `$l`.{quoted(value)})"


def _comparison(field: str, *, descending: bool, nulls_first: bool) -> list[str]:
    left, right = f"`$l`.{field}", f"`$r`.{field}"
    before, behind = ("1", "-1") if descending else ("-1", "1")
    absent, present = ("-1", "1") if nulls_first else ("1", "-1")
    return [
        f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {absent}",
        f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {present}",
        f"WHEN {left} < {right} THEN {before}",
        f"WHEN {left} > {right} THEN {behind}",
    ]


ORDERED_VALUES = (
    ScalarFunction(
        VALUES_IN_ORDER, _rule, _kernel, "$VALUES_IN_ORDER(array of rows, directions)",
        "The last fields of rows, in order of the fields before.", _spark,
    ),
)  # fmt: skip
"""Functions that are in no reference."""
