"""Aggregates over windows: rows are multiplied only where the query needs that."""

from __future__ import annotations

import pytest

from flowrun.plan.nodes import Calc, WindowAggregate, walk_plan
from flowrun.plan.recognition import recognise
from tests.plan.recognition.queries import planned, problems, shape

TUMBLE = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
HOP = "TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE))"
SESSION = "TABLE(SESSION(TABLE orders PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
BOUNDS = "GROUP BY window_start, window_end"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"SELECT window_start, COUNT(*) FROM {TUMBLE} {BOUNDS}", "TumblingWindow(60000) by () event"),
        (f"SELECT COUNT(*) FROM {HOP} {BOUNDS}, user_id", "SlidingWindow(120000, 60000) by (user_id) event"),
        (f"SELECT user_id, COUNT(*) FROM {SESSION} {BOUNDS}, user_id", "SessionWindow(60000) by (user_id) event"),
        (f"SELECT DISTINCT id, window_end, window_start FROM {TUMBLE}", "TumblingWindow(60000) by (id) event"),
        (f"SELECT window_time, COUNT(*) FROM {TUMBLE} {BOUNDS}, window_time", "TumblingWindow(60000) by () event"),
        (
            f"SELECT COUNT(*) FROM {TUMBLE.replace('(ts)', '(p)')} {BOUNDS}, id",
            "TumblingWindow(60000) by (id) processing",
        ),
        (
            "SELECT user_id, TUMBLE_END(ts, INTERVAL '1' MINUTE) FROM orders GROUP BY user_id, TUMBLE(ts, INTERVAL '1' MINUTE)",
            "TumblingWindow(60000) by (user_id) event",
        ),
        (
            "SELECT user_id, COUNT(*) FROM orders GROUP BY user_id, SESSION(ts, INTERVAL '1' MINUTE)",
            "SessionWindow(60000) by (user_id) event",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT ts FROM orders UNION ALL SELECT ts FROM clicks) GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
            "TumblingWindow(60000) by () event",
        ),
    ],
)
def test_grouping_by_both_bounds_is_a_window_aggregate(query: str, expected: str) -> None:
    assert shape(planned(query)) == [f"WindowAggregate {expected}"]


def test_filters_and_projections_between_go_below_the_window() -> None:
    query = f"""SELECT s, big, SUM(x) FROM (SELECT window_start AS s, window_end AS e, amount * 2 AS x, amount > 9 AS big
                FROM {TUMBLE} WHERE user_id <> 'me') GROUP BY s, e, big"""
    assert shape(planned(query)) == ["Filter (user_id <> 'me')", "WindowAggregate TumblingWindow(60000) by (big) event"]


def test_grouping_sets_stay_below_the_window() -> None:
    query = (
        f"SELECT user_id, currency, window_start, COUNT(DISTINCT id) FROM {TUMBLE} {BOUNDS}, CUBE (user_id, currency)"
    )
    lines = shape(planned(query))
    assert lines[0] == "Expand"
    assert lines[1].startswith("WindowAggregate TumblingWindow(60000) by (user_id0, currency0")
    assert len(lines) == 2


def test_grouping_sets_that_lack_a_bound_are_ordinary_groups() -> None:
    lines = shape(planned(f"SELECT window_start, COUNT(*) FROM {TUMBLE} GROUP BY ROLLUP (window_start, window_end)"))
    assert [line.split()[0] for line in lines] == ["WindowTableFunction", "Expand", "GroupAggregate"]


def test_one_bound_alone_makes_an_ordinary_group() -> None:
    assert shape(planned(f"SELECT window_start, COUNT(*) FROM {TUMBLE} GROUP BY window_start")) == [
        "WindowTableFunction TumblingWindow(60000) event",
        "GroupAggregate by (window_start)",
    ]


def test_rows_that_need_their_window_carry_it() -> None:
    """The aggregate then groups rows by the window that they have: a window of 1 ms around window_time."""
    assert shape(planned(f"SELECT window_start, MAX(window_end) FROM {HOP} {BOUNDS}")) == [
        "WindowTableFunction SlidingWindow(120000, 60000) event",
        "AssignTime $9",
        "WindowAggregate TumblingWindow(1) by (window_start) event",
    ]


def test_an_aggregate_over_a_window_aggregate_keeps_its_windows() -> None:
    inner = f"SELECT user_id, window_start, window_end, COUNT(*) AS n FROM {HOP} {BOUNDS}, user_id"
    assert shape(planned(f"SELECT window_start, window_end, MAX(n) FROM ({inner}) {BOUNDS}")) == [
        "WindowAggregate SlidingWindow(120000, 60000) by (user_id) event",
        "WindowAggregate TumblingWindow(1) by (window_start) event",
    ]


def test_a_cascade_through_window_time_makes_larger_windows() -> None:
    inner = f"SELECT user_id, window_time AS wt, COUNT(*) AS n FROM {TUMBLE} {BOUNDS}, window_time, user_id"
    query = f"WITH s AS ({inner}) SELECT SUM(n) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(wt), INTERVAL '1' HOUR)) {BOUNDS}"
    assert shape(planned(query)) == [
        "WindowAggregate TumblingWindow(60000) by (user_id) event",
        "WindowAggregate TumblingWindow(3600000) by () event",
    ]


def test_old_group_windows_cascade_through_their_rowtime() -> None:
    inner = (
        "SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS rt FROM orders GROUP BY id, TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    assert shape(planned(f"SELECT COUNT(*) FROM ({inner}) GROUP BY TUMBLE(rt, INTERVAL '1' HOUR)")) == [
        "WindowAggregate TumblingWindow(60000) by (id) event",
        "WindowAggregate TumblingWindow(3600000) by () event",
    ]


def test_groups_finer_than_the_sessions_share_them() -> None:
    assert shape(planned(f"SELECT user_id, currency, COUNT(*) FROM {SESSION} {BOUNDS}, user_id, currency")) == [
        "WindowTableFunction SessionWindow(60000) event",
        "WindowAggregate TumblingWindow(1) by (window_start, user_id, currency) event",
    ]


def test_in_processing_time_groups_of_windowed_rows_are_ordinary_ones() -> None:
    inner = f"SELECT user_id, window_start, window_end, COUNT(*) AS n FROM {TUMBLE.replace('(ts)', '(p)')} {BOUNDS}, user_id"
    assert shape(planned(f"SELECT window_start, MAX(n) FROM ({inner}) {BOUNDS}")) == [
        "WindowAggregate TumblingWindow(60000) by (user_id) processing",
        "GroupAggregate by (window_start, window_end)",
    ]


def test_another_time_attribute_than_the_rows_carry_is_assigned() -> None:
    joined = """SELECT o.ts, c.ts AS ct FROM orders o JOIN clicks c
                ON o.id = c.id AND o.ts BETWEEN c.ts - INTERVAL '1' MINUTE AND c.ts"""
    assert shape(planned(f"SELECT COUNT(*) FROM ({joined}) GROUP BY TUMBLE(ct, INTERVAL '1' MINUTE)")) == [
        "IntervalJoin inner on (id = id) [0, 60000] event",
        "AssignTime ct",
        "WindowAggregate TumblingWindow(60000) by () event",
    ]


def test_columns_keep_names_order_and_types() -> None:
    plan = planned(
        f"SELECT COUNT(*) AS user_id, window_time, window_end, user_id AS u FROM {TUMBLE} {BOUNDS}, window_time, user_id"
    )
    sink = plan.sinks[0]
    assert [str(f.type) for f in sink.input.schema] == ["BIGINT", "TIMESTAMP(3)", "TIMESTAMP(3)", "STRING"]
    assert sink.input.schema.names == ("user_id", "window_time", "window_end", "u")


def test_readers_of_one_view_share_its_window() -> None:
    plan = planned(f"""
        CREATE VIEW v AS SELECT user_id, window_start, window_end, COUNT(*) AS n FROM {TUMBLE} {BOUNDS}, user_id;
        SELECT * FROM v WHERE n > 1; SELECT window_start, MAX(n) FROM v {BOUNDS};""")
    windows = [n for n in walk_plan(plan) if isinstance(n, WindowAggregate)]
    assert len(windows) == 2
    assert sum(1 for n in walk_plan(plan) if isinstance(n, Calc) and n.input is windows[0]) == 1


def test_recognising_twice_changes_nothing() -> None:
    plan = planned(f"SELECT user_id, COUNT(*) FROM {SESSION} {BOUNDS}, user_id, currency")
    assert shape(recognise(plan)) == shape(plan)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            f"SELECT COUNT(*) FROM {TUMBLE.replace('orders', 'clicks').replace('(ts)', '(other)')} {BOUNDS}",
            "TUMBLE needs a time attribute, but 'other' is an ordinary TIMESTAMP(3) column",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT CAST(ts AS TIMESTAMP(0)) AS t FROM orders) GROUP BY TUMBLE(t, INTERVAL '1' MINUTE)",
            "TUMBLE needs a time attribute, but 't' is an ordinary TIMESTAMP(0) column",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT o.ts FROM orders o JOIN clicks c ON o.id = c.id) GROUP BY SESSION(ts, INTERVAL '1' MINUTE)",
            "SESSION needs a time attribute, but 'ts' is an ordinary TIMESTAMP(3) column",
        ),
    ],
)
def test_windows_need_a_time_attribute(query: str, message: str) -> None:
    assert problems(query) == [message]


def test_all_problems_of_a_script_are_named() -> None:
    script = """SELECT COUNT(*) FROM clicks GROUP BY TUMBLE(other, INTERVAL '1' MINUTE);
                SELECT id, ROW_NUMBER() OVER (ORDER BY amount) FROM orders;"""
    assert len(problems(script)) == 2
