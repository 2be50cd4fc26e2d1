# ruff: noqa: ARG001 - kernels share one signature
"""Functions of arrays. Positions count from 1; elements compare with NULL equal to NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.types import BOOLEAN, INT, STRING, DataType, TypeRoot, array
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.coercion import common_type
from flowrun.functions.collections import spark_texts as texts
from flowrun.functions.collections.array_columns import FlatLists, Int64Array, codes, first_of_each, joined, lists
from flowrun.functions.contract import Argument, Datum, ScalarFunction, ScalarKernel, Signature, SparkText
from flowrun.functions.rules import ANYTHING, ARRAY, INTEGER, TEXT, TRUTH, Parameter, Rule
from flowrun.functions.spark_text import Function, Template
from flowrun.functions.vectors import any_null_constant, as_array, is_constant, null_of, with_nulls_of


def _collection(type: DataType) -> DataType | None:
    return type if type.root in (TypeRoot.ARRAY, TypeRoot.MAP) else None


def _element(arguments: Sequence[Argument]) -> DataType:
    return arguments[0].type.children[0]


class _SameElements:
    """A rule for one array and elements, or several arrays, that meet in a common element type.

    `arrays` counts leading arrays; the other arguments are elements. `result` of None is the array's own type.
    """

    def __init__(self, usage: str, result: DataType | None, *, elements: int = 0, variadic: bool = False) -> None:
        self.usage, self._result, self._elements = usage, result, elements
        required = (ARRAY,) if variadic or elements else (ARRAY, ARRAY)
        self._shape = Rule(usage, STRING, (*required, *(ANYTHING,) * elements), variadic=ARRAY if variadic else None)

    def __call__(self, arguments: Sequence[Argument]) -> Signature:
        types = self._shape(arguments).arguments
        split = len(types) - self._elements
        given = [a.type for a in arguments[split:]]  # a bare NULL joins any element type
        element = common_type([*(t.children[0] for t in types[:split]), *given])
        if element is None:
            shown = ", ".join(str(a.type) for a in arguments)
            raise ExpressionError(
                f"{self.usage.partition('(')[0]}: {shown} have no common element type", hint=f"usage: {self.usage}"
            )
        cast = (array(element),) * split + (element,) * self._elements
        return Signature(cast, self._result or array(element))


def _cardinality(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    column = arguments[0]
    if isinstance(column, pa.Scalar):
        return pa.scalar(len(column.as_py()) if column.is_valid else None, pa.int32())
    if pa.types.is_map(column.type):
        return with_nulls_of(pa.array(np.diff(column.offsets.to_numpy()).astype(np.int32)), column)
    return pc.list_value_length(column)


def _sole_element(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    several = np.flatnonzero(flat.counts > 1)
    if len(several):
        row = int(several[0])
        raise DataError(f"ELEMENT: the array has {flat.counts[row]} elements, expected at most one", row=row)
    empty = flat.counts == 0
    return flat.values.take(pa.array(np.where(empty, 0, flat.starts[:-1]), mask=empty))


def _matches(arguments: Sequence[Datum], rows: int) -> tuple[FlatLists, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The array column taken apart, and which elements equal their row's needle."""
    flat = FlatLists.of(arguments[0], rows)
    needles = as_array(arguments[1], 1 if is_constant(arguments[1]) else rows)
    element_codes, needle_codes = codes([flat.values, needles])
    wanted = needle_codes[0] if is_constant(arguments[1]) else needle_codes[flat.parents]
    return flat, element_codes == wanted


def _contains(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat, equal = _matches(arguments, rows)
    hits = np.bincount(flat.parents[equal], minlength=rows) > 0
    return pa.array(hits, mask=~flat.valid)


def _position(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    flat, equal = _matches(arguments, rows)
    found = np.zeros(rows, np.int32)
    hits = np.flatnonzero(equal)[::-1]  # backwards, so that the first hit of a row is written last
    found[flat.parents[hits]] = flat.places[hits] + 1
    missing = ~flat.valid | ~pc.is_valid(as_array(arguments[1], rows)).to_numpy(zero_copy_only=False)
    return pa.array(found, mask=missing)


def _remove(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat, equal = _matches(arguments, rows)
    return flat.kept(~equal, result.arrow)


def _distinct(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    return flat.kept(first_of_each(flat.parents, codes([flat.values])[0]), result.arrow)


def _reverse(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    starts, parents = flat.starts, flat.parents
    return flat.reordered(starts[parents] + starts[parents + 1] - 1 - np.arange(len(flat.values)), result.arrow)


def _concat(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    whole = joined([FlatLists.of(a, rows) for a in arguments])
    return lists(whole.values, whole.counts, whole.valid, result.arrow)


def _one_each(datum: Datum, rows: int) -> FlatLists:
    return FlatLists(as_array(datum, rows), np.ones(rows, np.int64), np.ones(rows, bool))


def _append(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    whole = joined([FlatLists.of(arguments[0], rows), _one_each(arguments[1], rows)])
    return lists(whole.values, whole.counts, whole.valid, result.arrow)


def _prepend(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    whole = joined([_one_each(arguments[1], rows), FlatLists.of(arguments[0], rows)])
    return lists(whole.values, whole.counts, whole.valid, result.arrow)


def _union(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    whole = joined([FlatLists.of(a, rows) for a in arguments])
    return whole.kept(first_of_each(whole.parents, codes([whole.values])[0]), result.arrow)


def _membership(wanted: bool, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    """ARRAY_INTERSECT (`wanted`) and ARRAY_EXCEPT: distinct elements of the first array that are, or are not, in the second."""
    left, right = (FlatLists.of(a, rows) for a in arguments)
    left_codes, right_codes = codes([left.values, right.values])
    top = max(int(left_codes.max(initial=0)), int(right_codes.max(initial=0))) + 1
    present = np.isin(left.parents * top + left_codes, right.parents * top + right_codes)
    keep = (present == wanted) & first_of_each(left.parents, left_codes)
    valid = left.valid & right.valid
    narrowed = FlatLists(left.values, left.counts, valid)
    return narrowed.kept(keep & valid[left.parents], result.arrow)


def _in_order(flat: FlatLists, *, ascending: bool, nulls_first: bool) -> Int64Array:
    """Positions in `flat.values`, row by row, each row's elements in order."""
    missing = pc.is_null(flat.values).to_numpy(zero_copy_only=False)
    ranks = np.empty(len(flat.values), np.int64)
    order = pc.array_sort_indices(flat.values, order="ascending" if ascending else "descending").to_numpy()
    ranks[order] = np.arange(len(order))
    ranks[missing] = -1 if nulls_first else len(order)
    return np.lexsort((ranks, flat.parents))


def _extreme(name: str, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    valid = pc.is_valid(flat.values).to_numpy(zero_copy_only=False)
    order = _in_order(flat, ascending=name == "min", nulls_first=False)
    order = order[valid[order]]
    rows_of, places = np.unique(flat.parents[order], return_index=True)
    chosen = np.full(rows, -1, np.int64)
    chosen[rows_of] = order[places]
    return flat.values.take(pa.array(np.maximum(chosen, 0), mask=chosen < 0))


def _sort(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    ascending = bool(arguments[1].as_py()) if len(arguments) > 1 else True
    nulls_first = bool(arguments[2].as_py()) if len(arguments) == 3 else ascending
    flat = FlatLists.of(arguments[0], rows)
    return flat.reordered(_in_order(flat, ascending=ascending, nulls_first=nulls_first), result.arrow)


def _bound(datum: Datum, counts: Int64Array, rows: int) -> Int64Array:
    """Positions from 1 (0 counts as 1, negative ones from the end) as positions from 1; before the first becomes below 1."""
    given: Int64Array = pc.fill_null(as_array(datum, rows), 1).to_numpy().astype(np.int64)
    return np.where(given < 0, counts + given + 1, np.maximum(given, 1))


def _slice(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    flat = FlatLists.of(arguments[0], rows)
    valid = flat.valid.copy()
    for bound in arguments[1:]:
        valid &= pc.is_valid(as_array(bound, rows)).to_numpy(zero_copy_only=False)
    start = np.maximum(_bound(arguments[1], flat.counts, rows), 1)
    end = _bound(arguments[2], flat.counts, rows) if len(arguments) == 3 else flat.counts
    places = flat.places + 1
    keep = (places >= start[flat.parents]) & (places <= end[flat.parents]) & valid[flat.parents]
    return FlatLists(flat.values, flat.counts, valid).kept(keep, result.arrow)


def _join(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    if any_null_constant(arguments):
        return null_of(result)
    flat = FlatLists.of(arguments[0], rows)
    missing = pc.is_null(flat.values)
    if len(arguments) == 3:
        filler = as_array(arguments[2], rows).take(pa.array(flat.parents))
        texts = lists(pc.if_else(missing, filler, flat.values), flat.counts, flat.valid, arguments[0].type)
    else:
        texts = flat.kept(~missing.to_numpy(zero_copy_only=False), arguments[0].type)
    whole = pc.binary_join(texts, as_array(arguments[1], rows))
    if len(arguments) < 3 or is_constant(arguments[2]):
        return whole
    return pc.if_else(pc.is_valid(arguments[2]), whole, pa.scalar(None, pa.string()))


def _texts(arguments: Sequence[Argument]) -> str | None:
    given = arguments[0].type
    return None if given.children[0].is_character else f"the array must hold character strings, {given} given"


def _sortable(arguments: Sequence[Argument]) -> str | None:
    element = arguments[0].type.children[0]
    return f"elements of type {element} have no order" if element.is_nested else None


def _record(
    name: str,
    parameters: str,
    rule: Callable[[str], Callable[[Sequence[Argument]], Signature]],
    kernel: ScalarKernel,
    doc: str,
    spark: SparkText | None = None,
    *,
    fallible: bool = False,
) -> ScalarFunction:
    usage = f"{name}({parameters})"
    return ScalarFunction(name, rule(usage), kernel, usage, doc, spark, fallible=fallible)


_COLLECTION = Parameter("an ARRAY or MAP", _collection, ARRAY.null_type)
_CONSTANT_TRUTH = Parameter("a BOOLEAN", TRUTH.resolve, BOOLEAN, constant=True)


def _own(arguments: Sequence[Argument]) -> DataType:
    return arguments[0].type


ARRAYS = (
    _record("CARDINALITY", "array or map", lambda u: Rule(u, INT, (_COLLECTION,)), _cardinality,
            "The number of elements or entries.", Template("CASE WHEN {0} IS NOT NULL THEN size({0}) END")),
    _record("ELEMENT", "array", lambda u: Rule(u, _element, (ARRAY,)), _sole_element,
            "The only element; NULL if there is none; an error if there are several.", texts.element_text, fallible=True),
    _record("ARRAY_CONTAINS", "array, element", lambda u: _SameElements(u, BOOLEAN, elements=1), _contains,
            "Whether an element, possibly NULL, is in the array.",
            texts.Comparing("exists({0}, {each} -> {each} <=> {1})")),
    _record("ARRAY_POSITION", "array, element", lambda u: _SameElements(u, INT, elements=1), _position,
            "The position of the first equal element; 0 if there is none.",
            texts.Comparing("CAST(array_position({0}, {1}) AS INT)")),
    _record("ARRAY_REMOVE", "array, element", lambda u: _SameElements(u, None, elements=1), _remove,
            "The array without the elements equal to one.",
            texts.Comparing("filter({0}, {each} -> NOT ({each} <=> {1}))")),
    _record("ARRAY_APPEND", "array, element", lambda u: _SameElements(u, None, elements=1), _append,
            "The array with an element at its end.", Function("array_append")),
    _record("ARRAY_PREPEND", "array, element", lambda u: _SameElements(u, None, elements=1), _prepend,
            "The array with an element at its start.", Function("array_prepend")),
    _record("ARRAY_CONCAT", "array, …", lambda u: _SameElements(u, None, variadic=True), _concat,
            "The arrays one after the other; NULL if any is NULL.", Function("concat")),
    _record("ARRAY_UNION", "array, array", lambda u: _SameElements(u, None), _union,
            "The distinct elements of both arrays.", texts.Comparing("array_union({0}, {1})")),
    _record("ARRAY_EXCEPT", "array, array", lambda u: _SameElements(u, None), partial(_membership, False),
            "The distinct elements of the first array that are not in the second.", texts.Comparing("array_except({0}, {1})")),
    _record("ARRAY_INTERSECT", "array, array", lambda u: _SameElements(u, None), partial(_membership, True),
            "The distinct elements that are in both arrays.", texts.Comparing("array_intersect({0}, {1})")),
    _record("ARRAY_DISTINCT", "array", lambda u: Rule(u, _own, (ARRAY,)), _distinct,
            "The array without repeated elements.", texts.Comparing("array_distinct({0})")),
    _record("ARRAY_REVERSE", "array", lambda u: Rule(u, _own, (ARRAY,)), _reverse,
            "The elements in reverse order.", Function("reverse")),
    _record("ARRAY_MAX", "array", lambda u: Rule(u, _element, (ARRAY,), check=_sortable), partial(_extreme, "max"),
            "The greatest element, NULLs left out.", texts.Comparing("array_max({0})")),
    _record("ARRAY_MIN", "array", lambda u: Rule(u, _element, (ARRAY,), check=_sortable), partial(_extreme, "min"),
            "The least element, NULLs left out.", texts.Comparing("array_min({0})")),
    _record("ARRAY_SORT", "array[, ascending[, nulls first]]",
            lambda u: Rule(u, _own, (ARRAY,), (_CONSTANT_TRUTH, _CONSTANT_TRUTH), check=_sortable), _sort,
            "The elements in order; NULLs first when ascending, unless said otherwise.", texts.sort_text),
    _record("ARRAY_SLICE", "array, start[, end]", lambda u: Rule(u, _own, (ARRAY, INTEGER), (INTEGER,)), _slice,
            "The elements from start to end (inclusive), counted from the end if negative.",
            texts.slice_text),
    _record("ARRAY_JOIN", "array, delimiter[, null text]",
            lambda u: Rule(u, STRING, (ARRAY, TEXT), (TEXT,), check=_texts), _join,
            "The strings joined by a delimiter, NULLs left out or replaced.", Function("array_join")),
)  # fmt: skip
"""Functions of arrays."""
