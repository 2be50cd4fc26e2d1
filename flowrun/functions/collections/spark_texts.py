# ruff: noqa: ARG001 - texts share one signature
"""Functions of arrays and maps as Spark SQL text of exactly the same value, as far as Spark has them.

To flowrun's functions -0.0 and 0.0 differ in arrays, and NaN does not equal itself in some; to Spark they are equal: arrays of
approximate numbers are hosted wherever elements are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import quote_text, spark_type

_EACH = "`$each`"
_PLACE = "`$place`"


def _inexact(type: DataType) -> bool:
    return type.is_approximate or type.root is TypeRoot.MAP or any(map(_inexact, type.children))


@record
class Comparing:
    """A template for arrays whose elements Spark compares as flowrun does."""

    text: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
        return None if any(map(_inexact, types)) else self.text.format(*texts, each=_EACH)


def element_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """ELEMENT."""
    failure = f"CAST(raise_error({quote_text('ELEMENT: the array has several elements')}) AS {spark_type(result)})"
    return f"CASE WHEN size({texts[0]}) > 1 THEN {failure} ELSE get({texts[0]}, 0) END"


def sort_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """ARRAY_SORT."""
    array, *flags = texts
    if _inexact(types[0]) or any(flag not in ("TRUE", "FALSE") for flag in flags):
        return None
    ascending = not flags or flags[0] == "TRUE"
    nulls_first = flags[1] == "TRUE" if len(flags) > 1 else ascending
    if nulls_first is ascending:
        return f"sort_array({array}, {str(ascending).upper()})"
    missing, known = (f"filter({array}, {_EACH} -> {_EACH} IS {n}NULL)" for n in ("", "NOT "))
    ordered = f"sort_array({known}, {str(ascending).upper()})"
    return f"concat({missing}, {ordered})" if nulls_first else f"concat({ordered}, {missing})"


def slice_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """ARRAY_SLICE."""
    array, *bounds = texts
    size = f"size({array})"
    first, *last = (f"CASE WHEN {b} < 0 THEN {size} + {b} WHEN {b} = 0 THEN 0 ELSE {b} - 1 END" for b in bounds)
    inside = f"{_PLACE} >= {first}" + "".join(f" AND {_PLACE} <= {stop}" for stop in last)
    known = " AND ".join(f"{b} IS NOT NULL" for b in bounds)
    return f"CASE WHEN {known} THEN filter({array}, ({_EACH}, {_PLACE}) -> {inside}) END"


def map_from_arrays_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """MAP_FROM_ARRAYS."""
    return None if _inexact(types[0]) else f"map_from_arrays({texts[0]}, {texts[1]})"


def map_union_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """MAP_UNION."""
    return None if _inexact(types[0].children[0]) else f"map_concat({', '.join(texts)})"
