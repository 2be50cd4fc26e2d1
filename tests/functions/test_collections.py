"""Functions of arrays and maps."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.core.types import BIGINT, INT, STRING, array, decimal, map_of, row
from flowrun.errors import DataError, ExpressionError
from tests.functions.kernel_calls import Column, Constant, call, check, signature

INTS, TEXTS, MAPS = array(INT), array(STRING), map_of(STRING, INT)


def ints(*values):
    return Constant(list(values), INTS)


def texts(*values):
    return Constant(list(values), TEXTS)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("CARDINALITY", (ints(1, None, 3),), 3),
        ("CARDINALITY", (Constant([("a", 1)], MAPS),), 1),
        ("ELEMENT", (ints(7),), 7),
        ("ELEMENT", (ints(),), None),
        ("ARRAY_CONTAINS", (ints(1, 2), 2), True),
        ("ARRAY_CONTAINS", (ints(1, 2), 3), False),
        ("ARRAY_CONTAINS", (ints(1, None), Constant(None, INT)), True),
        ("ARRAY_CONTAINS", (texts("ü", "☂"), "☂"), True),
        ("ARRAY_POSITION", (texts("a", "b", "b"), "b"), 2),
        ("ARRAY_POSITION", (ints(1, None), Constant(None, INT)), None),
        ("ARRAY_POSITION", (ints(1), 5), 0),
        ("ARRAY_REMOVE", (ints(1, 2, 1, None), 1), [2, None]),
        ("ARRAY_REMOVE", (ints(1, None), Constant(None, INT)), [1]),
        ("ARRAY_APPEND", (ints(1), 2), [1, 2]),
        ("ARRAY_PREPEND", (ints(1), Constant(None, INT)), [None, 1]),
        ("ARRAY_CONCAT", (ints(1, 2), ints(), ints(2, None)), [1, 2, 2, None]),
        ("ARRAY_UNION", (ints(1, 1, None), ints(2, 1, None)), [1, None, 2]),
        ("ARRAY_EXCEPT", (ints(1, 1, 2, None, 3), ints(2, None)), [1, 3]),
        ("ARRAY_INTERSECT", (ints(3, 1, 3, None), ints(None, 3)), [3, None]),
        ("ARRAY_DISTINCT", (ints(2, 1, 2, None, None),), [2, 1, None]),
        ("ARRAY_REVERSE", (ints(1, 2, None),), [None, 2, 1]),
        ("ARRAY_MAX", (ints(1, 9, None),), 9),
        ("ARRAY_MIN", (texts("b", "a"),), "a"),
        ("ARRAY_MAX", (ints(),), None),
        ("ARRAY_MIN", (ints(None),), None),
        ("ARRAY_SORT", (ints(3, None, 1),), [None, 1, 3]),
        ("ARRAY_SORT", (ints(3, None, 1), False), [3, 1, None]),
        ("ARRAY_SORT", (ints(3, None, 1), True, False), [1, 3, None]),
        ("ARRAY_SLICE", (ints(1, 2, 3, 4), 2, 3), [2, 3]),
        ("ARRAY_SLICE", (ints(1, 2, 3, 4), -2), [3, 4]),
        ("ARRAY_SLICE", (ints(1, 2, 3, 4), 2, -2), [2, 3]),
        ("ARRAY_SLICE", (ints(1, 2), 3), []),
        ("ARRAY_JOIN", (texts("a", None, "b"), ","), "a,b"),
        ("ARRAY_JOIN", (texts("a", None, "b"), ",", "-"), "a,-,b"),
        ("ARRAY_JOIN", (texts(), ","), ""),
        ("MAP_KEYS", (Constant([("a", 1), ("b", None)], MAPS),), ["a", "b"]),
        ("MAP_VALUES", (Constant([("a", 1), ("b", None)], MAPS),), [1, None]),
        ("MAP_ENTRIES", (Constant([("a", 1)], MAPS),), [{"key": "a", "value": 1}]),
        ("MAP_FROM_ARRAYS", (texts("a", "b"), ints(1, None)), [("a", 1), ("b", None)]),
        ("MAP_FROM_ARRAYS", (texts("a", "b", "a"), ints(1, 2, 3)), [("a", 3), ("b", 2)]),
        (
            "MAP_UNION",
            (Constant([("a", 1), ("b", 2)], MAPS), Constant([("b", 3), ("c", 4)], MAPS)),
            [("a", 1), ("b", 3), ("c", 4)],
        ),
    ],
)
def test_values(name, arguments, expected):
    check(name, arguments, expected)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("CARDINALITY", (Constant(None, INTS),)),
        ("CARDINALITY", (Constant(None, MAPS),)),
        ("ELEMENT", (Constant(None, INTS),)),
        ("ARRAY_CONTAINS", (Constant(None, INTS), 1)),
        ("ARRAY_DISTINCT", (Constant(None, INTS),)),
        ("ARRAY_CONCAT", (ints(1), Constant(None, INTS))),
        ("ARRAY_EXCEPT", (ints(1), Constant(None, INTS))),
        ("ARRAY_APPEND", (Constant(None, INTS), 1)),
        ("ARRAY_MAX", (Constant(None, INTS),)),
        ("ARRAY_SORT", (Constant(None, INTS),)),
        ("ARRAY_SLICE", (ints(1), Constant(None, INT))),
        ("ARRAY_JOIN", (texts("a"), Constant(None, STRING))),
        ("MAP_KEYS", (Constant(None, MAPS),)),
        ("MAP_FROM_ARRAYS", (Constant(None, TEXTS), ints(1))),
        ("MAP_UNION", (Constant(None, MAPS), Constant([("a", 1)], MAPS))),
    ],
)
def test_null_gives_null(name, arguments):
    check(name, arguments, None)


def test_null_and_empty_rows_among_others():
    column = Column([[1, 2, 1], None, [], [None]], INTS)
    assert call("CARDINALITY", column, sliced=True) == [3, None, 0, 1]
    assert call("ARRAY_DISTINCT", column, sliced=True) == [[1, 2], None, [], [None]]
    assert call("ARRAY_CONTAINS", column, 1, sliced=True) == [True, None, False, False]
    assert call("ARRAY_POSITION", column, Column([1, 1, 1, None], INT), sliced=True) == [1, None, 0, None]
    assert call("ARRAY_UNION", column, Column([[3], [1], [], None], INTS), sliced=True) == [[1, 2, 3], None, [], None]
    pairs = Column([[("a", 1)], None, []], MAPS)
    assert call("MAP_KEYS", pairs, sliced=True) == [["a"], None, []]
    assert call("CARDINALITY", pairs, sliced=True) == [1, None, 0]


def test_nested_elements_compare_by_value():
    nested = Column([[[1], [2], [1]]], array(INTS))
    assert call("ARRAY_DISTINCT", nested) == [[[1], [2]]]
    assert call("ARRAY_CONTAINS", nested, Column([[2]], INTS)) == [True]


def test_elements_meet_in_a_common_type():
    assert signature("ARRAY_CONTAINS", Column([], array(BIGINT)), 1).arguments == (array(BIGINT), BIGINT)
    assert signature("ARRAY_APPEND", Column([], INTS), Constant(Decimal("1.5"), decimal(2, 1))).result == array(
        decimal(11, 1)
    )
    assert signature("MAP_ENTRIES", Column([], MAPS)).result == array(row(("key", STRING), ("value", INT)))
    with pytest.raises(ExpressionError, match="no common element type"):
        signature("ARRAY_CONTAINS", Column([], INTS), "a")
    with pytest.raises(ExpressionError, match="must be an ARRAY"):
        signature("ARRAY_MAX", 5)
    with pytest.raises(ExpressionError, match="have no order"):
        signature("ARRAY_SORT", Column([], array(INTS)))


def test_errors_name_the_row():
    with pytest.raises(DataError, match="has 2 elements") as caught:
        call("ELEMENT", Column([[1], [1, 2]], INTS))
    assert caught.value.row == 1
    with pytest.raises(DataError, match="1 keys for 2 values") as caught:
        call("MAP_FROM_ARRAYS", Column([None, ["a"]], TEXTS), Column([[1], [1, 2]], INTS))
    assert caught.value.row == 1
    with pytest.raises(DataError, match="a key is NULL"):
        call("MAP_FROM_ARRAYS", Column([[None]], TEXTS), Column([[1]], INTS))


LISTS = st.lists(st.none() | st.lists(st.none() | st.integers(0, 4), max_size=6), min_size=1, max_size=8)


def _distinct(values):
    return list(dict.fromkeys(values))


@settings(deadline=None, derandomize=True)
@given(LISTS, LISTS, st.booleans())
def test_array_functions_equal_python_row_by_row(left, right, sliced):
    right = (right * len(left))[: len(left)]
    a, b = Column(left, INTS), Column(right, INTS)

    def each(function):
        return [None if x is None or y is None else function(x, y) for x, y in zip(left, right, strict=True)]

    assert call("ARRAY_CONCAT", a, b, sliced=sliced) == each(lambda x, y: x + y)
    assert call("ARRAY_UNION", a, b, sliced=sliced) == each(lambda x, y: _distinct(x + y))
    assert call("ARRAY_EXCEPT", a, b, sliced=sliced) == each(lambda x, y: _distinct(v for v in x if v not in y))
    assert call("ARRAY_INTERSECT", a, b, sliced=sliced) == each(lambda x, y: _distinct(v for v in x if v in y))
    assert call("ARRAY_REVERSE", a, sliced=sliced) == [None if x is None else x[::-1] for x in left]
    numbers = [None if x is None else [v for v in x if v is not None] for x in left]
    assert call("ARRAY_MAX", a, sliced=sliced) == [max(x) if x else None for x in numbers]
    assert call("ARRAY_MIN", a, sliced=sliced) == [min(x) if x else None for x in numbers]


def test_join_with_a_null_text_for_nulls_is_null():
    column = Column([[], ["a", None], ["a", None]], array(STRING))
    assert call("ARRAY_JOIN", column, ",", Column([None, None, "?"])) == [None, None, "a,?"]
