"""What differs between rows that are expected and rows that came, and how that is shown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flowrun.core.elements import RowKind
from flowrun.runners.pipeline_tests.captured import Change, table_of
from flowrun.runners.pipeline_tests.comparing import MOST_SHOWN, difference

ADD, BEFORE, AFTER, DROP = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


def lines(*arguments: Any, **options: Any) -> list[tuple[str, tuple[Any, ...]]]:
    found = difference(("k", "v"), *arguments, **options)
    return [] if found is None else list(found.lines)


def test_rows_are_equal_in_any_order_as_often_as_they_are_there() -> None:
    assert lines([("a", 1), ("b", 2), ("a", 1)], [("b", 2), ("a", 1), ("a", 1)]) == []
    assert lines([("a", 1), ("a", 1)], [("a", 1)]) == [("-", ("a", 1))]
    assert lines([("a", 1)], [("a", 1), ("a", 1)]) == [("+", ("a", 1))]


def test_order_counts_where_it_is_asked_for() -> None:
    expected, came = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]
    found = difference(("k", "v"), expected, came, in_order=True)
    assert found is not None
    assert found.order
    assert lines(expected, expected, in_order=True) == []


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "same"),
    [
        (1.0, 1.0 + 1e-12, 1e-9, True),
        (1.0, 1.1, 1e-9, False),
        (1.0, 1.1, 0.2, True),
        (math.nan, math.nan, 0.0, True),
        ([1.0, {"x": 2.0}], [1.0, {"x": 2.0 + 1e-13}], 1e-9, True),
        (0.0, 1e-13, 1e-9, True),
        (None, 0.0, 1e-9, False),
    ],
)
def test_floating_numbers_may_differ_by_the_tolerance(a: Any, b: Any, tolerance: float, same: bool) -> None:
    assert (lines([("a", a)], [("a", b)], tolerance=tolerance) == []) is same


def test_rows_of_one_key_stand_side_by_side_and_alike_ones_without_a_key() -> None:
    expected, came = [("a", 1), ("b", 2)], [("b", 3), ("a", 9)]
    by_key = [("-", ("a", 1)), ("+", ("a", 9)), ("-", ("b", 2)), ("+", ("b", 3))]
    assert lines(expected, came, key=("k",)) == by_key
    assert lines(expected, came) == by_key


def test_of_many_rows_some_are_shown() -> None:
    found = difference(("k", "v"), [(i, i) for i in range(100)], [])
    assert found is not None
    assert len(found.lines) == 2 * MOST_SHOWN
    assert found.render("").endswith("… and 60 more")


def test_the_table_that_changes_leave() -> None:
    changes = [
        Change(ADD, ("a", 1)),
        Change(BEFORE, ("a", 1)),
        Change(AFTER, ("a", 2)),
        Change(ADD, ("b", 1)),
        Change(DROP, ("b", 1)),
    ]
    assert table_of(changes) == [("a", 2)]
    early = [Change(BEFORE, ("a", 1)), Change(ADD, ("a", 1)), Change(AFTER, ("a", 2))]  # another subtask was faster
    assert table_of(early) == [("a", 2)]
    assert table_of([Change(ADD, ("a", 1)), Change(ADD, ("a", 1))]) == [("a", 1), ("a", 1)]
