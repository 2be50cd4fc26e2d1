"""Joins count the rows that found no match, on each side."""

from __future__ import annotations

import numpy as np
import pytest

from flowrun.core.semantics import JoinKind
from flowrun.operators.joins.factories import OuterSides
from flowrun.testing.harness import OperatorHarness
from tests.operators.joins import test_interval_join as interval
from tests.operators.joins import test_lookup_join as lookup
from tests.operators.joins import test_regular_join as regular
from tests.operators.joins import test_temporal_join as temporal
from tests.operators.joins import test_window_join as window


def counts(join: OperatorHarness, name: str = "Unmatched") -> tuple[int, int]:
    return tuple(join.metrics.count(f"num{side}Records{name}") for side in ("Left", "Right"))


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL])
def test_a_join_of_windows_knows_when_a_window_ends(kind: JoinKind) -> None:
    join = window.harness(window.factory(kind))
    window.push(join, 0, ("a", 0, 10, 1), ("b", 0, 10, 2), ("c", 10, 20, 3))
    window.push(join, 1, (7, "a", 0, 10), (8, "z", 0, 10))
    assert counts(join) == (0, 0), "the windows are open: the rows may find a match yet"
    window.watermark(join, 9)
    assert counts(join) == (1, 1)
    window.watermark(join, 19)
    assert counts(join) == (2, 1), "of the second window there is one side only"


def test_a_regular_join_counts_what_finds_nothing_when_it_comes() -> None:
    join = regular.harness(regular.factory())
    regular.push(join, 1, ("+I", (1, 10)), ("+I", (1, 20)))
    assert counts(join, "UnmatchedOnArrival") == (0, 2)
    regular.push(join, 0, ("+I", (10, "a", 1)), ("+I", (30, "a", 2)), ("+I", (None, "a", 3)))
    assert counts(join, "UnmatchedOnArrival") == (1, 2)
    assert join.metrics.count("numNullKeyRecordsDropped") == 1
    regular.push(join, 0, ("-D", (30, "a", 2)))
    assert counts(join, "UnmatchedOnArrival") == (1, 2), "what goes away looks for no match"


def test_an_outer_join_counts_alike() -> None:
    join = regular.harness(regular.factory(JoinKind.FULL))
    regular.push(join, 0, ("+I", (10, "a", 1)), ("+I", (None, "a", 1)))
    regular.push(join, 1, ("+I", (1, 10)))
    assert counts(join, "UnmatchedOnArrival") == (2, 0)
    assert join.metrics.count("numNullKeyRecordsDropped") == 0, "it comes out without a match"


def test_an_interval_join_counts_what_finds_nothing_when_it_comes() -> None:
    join = interval.harness(interval.factory(-5, 5, OuterSides.LEFT))
    interval.push(join, 0, ("a", 10, 1), ("b", 10, 1))
    interval.push(join, 1, ("a", 12, 1), ("a", 90, 1))
    assert counts(join, "UnmatchedOnArrival") == (2, 1)


@pytest.mark.parametrize("outer", [False, True])
def test_left_rows_of_a_temporal_join_without_a_version(outer: bool) -> None:
    join = temporal.harness(temporal.factory(outer))
    temporal.push(join, 1, [("a", 5, 1)])
    temporal.push(join, 0, [("a", 3, 1), ("a", 7, 1), ("z", 7, 1), (None, 7, 1)])
    for side in (0, 1):
        join.watermark(20, side)
    dropped = 0 if outer else 1
    assert counts(join) == (3 - dropped, 0)
    assert join.metrics.count("numNullKeyRecordsDropped") == dropped


@pytest.mark.parametrize("outer", [False, True])
def test_rows_that_an_outside_table_has_nothing_for(outer: bool) -> None:
    join = lookup.harness(lookup.World({"a": [1, 2]}), outer=outer)
    lookup.push(join, ("a", 1), ("b", 1), ("a", 2), (None, 3))
    assert counts(join) == (2, 0)
    join.close()


def test_many_rows_against_a_loop() -> None:
    random = np.random.default_rng(4)
    join = regular.harness(regular.factory())
    held: tuple[set[int], set[int]] = (set(), set())
    expected = [0, 0]
    for _ in range(40):
        side = int(random.integers(2))
        keys = random.integers(30, size=int(random.integers(1, 9))).tolist()
        rows = [(1, key) if side else (key, "a", 1) for key in keys]
        regular.push(join, side, *(("+I", row) for row in rows))
        expected[side] += sum(key not in held[1 - side] for key in keys)
        held[side].update(keys)
    assert counts(join, "UnmatchedOnArrival") == tuple(expected)
