"""Types from values: each is one as which all values of the sample are read."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from flowrun.runners.inference.event_time import EventTime, propose
from flowrun.runners.inference.value_types import columns_of, from_texts, type_of


@pytest.mark.parametrize(
    ("values", "name", "type"),
    [
        ([1, -5], "n", "BIGINT"),
        ([2**63], "n", "DECIMAL(38, 0)"),
        ([10**40], "n", "STRING"),
        ([1, 2.5], "x", "DOUBLE"),
        ([19.99, 5], "amount", "DECIMAL(10, 2)"),
        ([0.123456], "price", "DOUBLE"),
        ([float("nan"), 1.5], "price", "DOUBLE"),
        ([Decimal("1.50")], "fee", "DECIMAL(10, 2)"),
        ([True], "b", "BOOLEAN"),
        ([True, 1], "b", "STRING"),
        (["a"], "t", "STRING"),
        (["2024-02-29"], "d", "DATE"),
        (["2024-02-30"], "d", "STRING"),
        (["2024-01-01 10:00:00"], "t", "TIMESTAMP(3)"),
        (["2024-01-01T10:00:00.123456"], "t", "TIMESTAMP(6)"),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00.5+02:00"], "t", "TIMESTAMP_LTZ(3)"),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"], "t", "STRING"),
        (["2024-01-01 25:00:00"], "t", "STRING"),
        (["2024-01-01 10:00"], "t", "TIMESTAMP(3)"),
        (["2024-01-01T10:00", "2024-01-01 10:00:00.1234"], "t", "TIMESTAMP(6)"),
        (["2024-01-01T10:00Z", "2024-01-01 10:00+0530"], "t", "TIMESTAMP_LTZ(3)"),
        (["2024-01-01 10:60"], "t", "STRING"),
        (["2024-02-30 10:00"], "t", "STRING"),
        (["2024-01-01 10:00+99:99"], "t", "STRING"),
        (["1500-01-01 10:00:00.123456789"], "t", "STRING"),
        ([datetime(2024, 1, 1, tzinfo=UTC)], "t", "TIMESTAMP_LTZ(6)"),
        ([[1, None], []], "a", "ARRAY<BIGINT>"),
        ([[]], "a", "ARRAY<STRING>"),
        ([{"a": 1}, {"b": "x"}], "o", "ROW<a BIGINT, b STRING>"),
        ([{}], "o", "MAP<STRING, STRING>"),
        ([{f"k{i}": i} for i in range(30)], "o", "MAP<STRING, BIGINT>"),
        ([], "n", "STRING"),
        ([1, "a"], "n", "STRING"),
    ],
)
def test_types(values: list[Any], name: str, type: str) -> None:
    assert str(type_of(values, name)[0]) == type


def test_a_column_that_takes_several_kinds_says_so() -> None:
    _, note = type_of([1, "a", {"x": 1}])
    assert note == "the sample has values of several kinds: object, text, whole"
    _, note = type_of([{"deep": {"x": [1, "a"]}}])
    assert note is not None
    assert "several kinds" in note


def test_columns_count_what_is_missing_and_what_differs() -> None:
    first, second = columns_of([{"id": 1}, {"id": 2, "x": None}, {"id": 3, "x": "y"}])
    assert (first.is_unique, first.nulls) == (True, 0)
    assert (second.is_unique, second.nulls, second.rows) == (False, 2, 3)


def test_texts_are_numbers_if_all_of_a_column_are() -> None:
    found = from_texts(
        {"n": ["1", None], "id": ["007", "8"], "x": ["1.5", "2"], "b": ["true", "FALSE"], "t": ["1", "x"]}
    )
    assert found == {
        "n": [1, None], "id": ["007", "8"], "x": [Decimal("1.5"), Decimal(2)], "b": [True, False], "t": ["1", "x"],
    }  # fmt: skip


def proposed(*parts: list[dict[str, Any]]) -> EventTime | None:
    return propose(columns_of([r for part in parts for r in part]), parts)


def test_disorder_is_measured_within_a_file() -> None:
    """Files may be of any days: each is a split with a watermark of its own."""
    late = [{"ts": f"2024-01-02 10:00:{s:02d}"} for s in (0, 5, 2, 9)]
    earlier = [{"ts": f"2024-01-01 10:00:{s:02d}"} for s in (0, 1)]
    found = proposed(late, earlier)
    assert found is not None
    assert (found.column, found.disorder_ms, found.delay_ms, found.late, found.rows) == ("ts", 3_000, 5_000, 0.0, 6)


def test_a_single_straggler_does_not_hold_event_time_back_for_days() -> None:
    rows = [{"at": 1_700_000_000_000 + i * 1_000} for i in range(5_000)]
    rows[2_500] = {"at": 1_600_000_000_000}
    found = proposed(rows)
    assert found is not None
    assert (found.unit, found.delay_ms) == ("ms", 0)
    assert found.late == 1 / 5_000
    assert "0.02% of 5,000 rows" in found.reason


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1_700_000_000_000}],  # a number that is called nothing like a time
        [{"ts": 5}],
        [{"ts": None}, {"ts": "2024-01-01 10:00:00"}],
        [{"born": "2024-01-01"}],
    ],
)
def test_no_event_time(rows: list[dict[str, Any]]) -> None:
    assert proposed(rows) is None


@pytest.mark.parametrize(
    "name",
    ["@timestamp", "eventTimestamp", "createdAt", "startTime", "DateTime", "TS", "event-time", "epoch", "time_ms"],
)
def test_numbers_that_are_called_like_a_time(name: str) -> None:
    found = proposed([{"n": 1_700_000_000_000 + i, name: 1_700_000_000_000 + i} for i in range(3)])
    assert found is not None
    assert (found.column, found.unit) == (name, "ms")


@pytest.mark.parametrize("name", ["flatTop", "format", "what", "state", "number"])
def test_numbers_that_are_not(name: str) -> None:
    assert proposed([{name: 1_700_000_000_000 + i} for i in range(3)]) is None


def test_a_name_that_says_time_wins() -> None:
    rows = [
        {"imported": "2024-01-05 10:00:00", "event_time": f"2024-01-01 10:00:{s:02d}", "expires": "2025-01-01 00:00:00"}
        for s in range(3)
    ]
    found = proposed(rows)
    assert found is not None
    assert found.column == "event_time"
