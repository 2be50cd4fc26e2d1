"""Joins by their condition: windows, times, or keys alone; and where the parts of a condition go."""

from __future__ import annotations

import pytest

from flowrun.plan.joins import Join
from flowrun.plan.nodes import walk_plan
from tests.plan.recognition.queries import planned, shape

L = "(SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND))) L"
R = "(SELECT * FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '30' SECOND))) R"
WINDOWS = "L.window_start = R.window_start AND L.window_end = R.window_end"


def joins(query: str) -> list[str]:
    return [line for line in shape(planned(query)) if "Join" in line or line.startswith("Filter")]


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
def test_equal_windows_make_a_window_join(kind: str) -> None:
    query = f"SELECT L.id FROM {L} {kind} JOIN {R} ON {WINDOWS} AND L.user_id = R.user_id AND L.amount > R.id"
    expected = f"WindowJoin {kind.lower()} on (user_id = user_id) event if (CAST(amount AS BIGINT) > id)"
    assert joins(query) == [expected]


def test_window_semi_and_anti_joins() -> None:
    inner = f"SELECT 1 FROM {R} WHERE {WINDOWS} AND L.user_id = R.user_id"
    assert joins(f"SELECT L.id FROM {L} WHERE EXISTS ({inner})") == ["WindowJoin semi on (user_id = user_id) event"]
    assert joins(f"SELECT L.id FROM {L} WHERE NOT EXISTS ({inner})") == ["WindowJoin anti on (user_id = user_id) event"]


def test_a_window_join_without_other_keys_spreads_by_window() -> None:
    assert joins(f"SELECT L.id FROM {L} JOIN {R} ON {WINDOWS}") == [
        "WindowJoin inner on (window_end = window_end) event"
    ]


def test_windows_of_aggregates_join_too() -> None:
    def counted(table: str) -> str:
        return f"""(SELECT user_id, window_start s, window_end e, COUNT(*) n FROM
            TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY user_id, window_start, window_end)"""

    query = f"SELECT a.user_id FROM {counted('orders')} a JOIN {counted('clicks')} b ON a.user_id = b.user_id AND a.s = b.s AND b.e = a.e"
    assert joins(query) == ["WindowJoin inner on (user_id = user_id) event"]


@pytest.mark.parametrize(
    "condition",
    [
        "L.window_start = R.window_start AND L.user_id = R.user_id",
        "L.window_end = R.window_end AND L.window_start = R.window_end",
    ],
)
def test_one_bound_alone_is_a_regular_join(condition: str) -> None:
    assert joins(f"SELECT L.id FROM {L} JOIN {R} ON {condition}")[0].startswith("Join inner")


def test_windows_of_other_sizes_are_a_regular_join() -> None:
    other = R.replace("'30'", "'60'")
    assert joins(f"SELECT L.id FROM {L} JOIN {other} ON {WINDOWS}")[0].startswith("Join inner")


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("c.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR", "[0, 3600000]"),
        ("o.ts BETWEEN c.ts - INTERVAL '1' HOUR AND c.ts", "[0, 3600000]"),
        ("c.ts >= o.ts - INTERVAL '5' SECOND AND c.ts <= o.ts + INTERVAL '10' SECOND", "[-5000, 10000]"),
        ("o.ts > c.ts - INTERVAL '10' SECOND AND o.ts < c.ts", "[1, 9999]"),
        ("c.ts + INTERVAL '1' SECOND <= o.ts AND o.ts - INTERVAL '1' MINUTE < c.ts", "[-59999, -1000]"),
        ("o.ts = c.ts", "[0, 0]"),
        ("c.ts = o.ts + INTERVAL '2' SECOND", "[2000, 2000]"),
        ("o.ts <= c.ts AND o.ts >= c.ts - INTERVAL '1' HOUR AND o.ts >= c.ts - INTERVAL '1' MINUTE", "[0, 60000]"),
    ],
)
@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
def test_times_that_bound_each_other_make_an_interval_join(kind: str, condition: str, bounds: str) -> None:
    (line,) = joins(f"SELECT o.id FROM orders o {kind} JOIN clicks c ON o.user_id = c.user_id AND {condition}")
    assert line.startswith(f"IntervalJoin {kind.lower()} on (")
    assert "user_id = user_id" in line
    assert line.endswith(f"{bounds} event")


def test_processing_times_bound_each_other_too() -> None:
    query = "SELECT o.id FROM orders o JOIN clicks c ON o.id = c.id AND o.p BETWEEN c.p - INTERVAL '1' MINUTE AND c.p"
    assert joins(query) == ["IntervalJoin inner on (id = id) [0, 60000] processing"]


@pytest.mark.parametrize(
    "condition",
    [
        "o.ts >= c.ts",  # one side only
        "c.other BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR",  # no time attribute
        "c.ts BETWEEN o.ts + INTERVAL '1' HOUR AND o.ts",  # nothing can match
        "c.ts BETWEEN o.p AND o.p + INTERVAL '1' HOUR",  # of two clocks
    ],
)
def test_other_conditions_on_times_are_those_of_a_regular_join(condition: str) -> None:
    condition = condition.replace("o.p", "CAST(o.p AS TIMESTAMP(3))")
    assert joins(f"SELECT o.id FROM orders o JOIN clicks c ON o.id = c.id AND {condition}")[0].startswith(
        "Join inner on (id = id) if"
    )


def test_an_interval_join_needs_rows_that_never_change() -> None:
    last = (
        "(SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts DESC) rn FROM clicks) WHERE rn = 1)"
    )
    query = f"SELECT o.id FROM orders o JOIN {last} c ON o.id = c.id AND c.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
    assert joins(query)[0].startswith("Join inner on (id = id) if")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("o.id = c.id", "on (id = id)"),
        ("c.id = o.id AND o.user_id = c.url", "on (id = id, user_id = url)"),
        ("o.id = c.order_id", "on (id = $7)"),  # BIGINT and INT: the INT is cast below
        ("UPPER(o.user_id) = c.user_id", "on ($6 = user_id)"),
        ("o.id = c.id AND o.amount < c.order_id", "on (id = id) if (amount < order_id)"),
        ("o.user_id IS NOT DISTINCT FROM c.user_id", "on (user_id = user_id)"),
        ("o.user_id = c.user_id OR (o.user_id IS NULL AND c.user_id IS NULL)", "on (user_id = user_id)"),
        ("(c.user_id IS NULL AND o.user_id IS NULL) OR o.user_id = c.user_id", "on (user_id = user_id)"),
        ("o.user_id = c.user_id OR o.id = c.id", "on () if ((user_id = user_id) OR (id = id))"),
    ],
)
def test_equalities_are_keys(condition: str, expected: str) -> None:
    assert joins(f"SELECT o.id, c.url FROM orders o FULL JOIN clicks c ON {condition}") == [f"Join full {expected}"]


def test_equalities_of_nulls_say_so() -> None:
    plan = planned(
        "SELECT o.id FROM orders o JOIN clicks c ON o.user_id IS NOT DISTINCT FROM c.user_id AND o.id = c.id"
    )
    (join,) = [n for n in walk_plan(plan) if isinstance(n, Join)]
    assert join.null_safe == (True, False)


def test_columns_for_keys_do_not_come_out() -> None:
    plan = planned("SELECT * FROM orders o LEFT JOIN clicks c ON o.id = c.order_id AND o.amount + 1 = c.id")
    names = plan.sinks[0].input.schema.names
    assert len(names) == 6 + 7
    assert not any("$" in n for n in names)


def test_where_makes_a_comma_a_join() -> None:
    query = """SELECT o.id FROM orders o, clicks c, rates r
               WHERE o.id = c.id AND r.currency = o.currency AND o.amount > 3 AND r.rate < o.amount"""
    assert joins(query) == [
        "Filter (amount > 3)",
        "Join inner on (id = id)",
        "Join inner on (currency = currency) if (rate < CAST(amount AS DOUBLE))",
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INNER", ["Filter (amount > 1)", "Filter (url = 'x')", "Join inner on (id = id)"]),
        ("LEFT", ["Filter (url = 'x')", "Join left on (id = id) if (amount > 1)"]),
        ("RIGHT", ["Filter (amount > 1)", "Join right on (id = id) if (url = 'x')"]),
        ("FULL", ["Join full on (id = id) if ((amount > 1) AND (url = 'x'))"]),
    ],
)
def test_conditions_of_one_side_go_below_where_that_is_the_same(kind: str, expected: list[str]) -> None:
    assert (
        joins(f"SELECT o.id FROM orders o {kind} JOIN clicks c ON o.id = c.id AND o.amount > 1 AND c.url = 'x'")
        == expected
    )


@pytest.mark.parametrize(
    ("kind", "where", "expected"),
    [
        ("LEFT", "o.amount > 1", ["Filter (amount > 1)", "Join left on (id = id)"]),
        ("LEFT", "c.url = 'x'", ["Filter (url = 'x')", "Join inner on (id = id)"]),
        ("LEFT", "c.url IS NULL", ["Join left on (id = id)", "Filter IS NULL(url)"]),
        ("RIGHT", "o.amount IN (2, 3)", ["Filter (amount IN (2, 3))", "Join inner on (id = id)"]),
        # what may fail (overflow) is not tested on rows that join with nothing
        ("LEFT", "o.amount + 1 = 2", ["Join left on (id = id)", "Filter ((amount + 1) = 2)"]),
        ("FULL", "o.amount > 1", ["Filter (amount > 1)", "Join left on (id = id)"]),
        ("FULL", "c.url LIKE 'x%'", ["Filter LIKE(url, 'x%')", "Join right on (id = id)"]),
        (
            "FULL",
            "o.amount > 1 AND c.url <> ''",
            ["Filter (amount > 1)", "Filter (url <> '')", "Join inner on (id = id)"],
        ),
        ("FULL", "o.amount > 1 OR c.url <> ''", ["Join full on (id = id)", "Filter ((amount > 1) OR (url <> ''))"]),
    ],
)
def test_where_above_an_outer_join(kind: str, where: str, expected: list[str]) -> None:
    """A condition that missing rows cannot satisfy leaves less of the outer join: with fewer corrections, too."""
    assert joins(f"SELECT o.id FROM orders o {kind} JOIN clicks c ON o.id = c.id WHERE {where}") == expected


def test_a_join_that_two_queries_read_stays_one() -> None:
    plan = planned("""CREATE VIEW v AS SELECT o.id, c.url, o.amount FROM orders o JOIN clicks c ON o.id = c.id;
                      SELECT id FROM v WHERE url = 'a'; SELECT id FROM v WHERE amount > 1;""")
    assert sum(isinstance(n, Join) for n in walk_plan(plan)) == 1


def test_parts_of_one_side_do_not_hide_an_interval() -> None:
    query = "SELECT o.id FROM orders o JOIN clicks c ON o.id = c.id AND c.ts BETWEEN o.ts AND o.ts + INTERVAL '1' MINUTE AND o.amount > 2"
    assert joins(query) == ["Filter (amount > 2)", "IntervalJoin inner on (id = id) [0, 60000] event"]


def test_an_equality_that_all_branches_of_an_or_share_is_a_key() -> None:
    """TPC-H q19: without the key, every pair of rows would be formed."""
    query = """SELECT o.id FROM orders o, clicks c
               WHERE (o.id = c.id AND o.amount BETWEEN 1 AND 5 AND c.url = 'a') OR (c.id = o.id AND o.amount > 9 AND c.url = 'b')"""
    either = "(((amount >= 1) AND (amount <= 5) AND (url = 'a')) OR ((amount > 9) AND (url = 'b')))"
    assert joins(query) == [f"Join inner on (id = id) if {either}"]


def test_an_interval_that_all_branches_share_makes_an_interval_join() -> None:
    near = "c.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
    branches = f"(o.id = c.id AND {near} AND o.amount > 1) OR ({near} AND c.id = o.id AND c.url = 'a')"
    query = f"SELECT o.id FROM orders o JOIN clicks c ON {branches}"
    assert joins(query) == ["IntervalJoin inner on (id = id) [0, 3600000] event if ((amount > 1) OR (url = 'a'))"]


def test_a_correlated_subquery_may_say_its_equality_in_each_branch() -> None:
    """TPC-DS q41."""
    query = """SELECT id FROM orders o WHERE
               (SELECT COUNT(*) FROM clicks c WHERE (c.id = o.id AND c.url = 'a') OR (c.id = o.id AND c.order_id > 7)) > 0"""
    assert joins(query)[:2] == ["Filter ((url = 'a') OR (order_id > 7))", "Join left on (id = id)"]


def test_where_with_branches_that_missing_rows_cannot_satisfy_makes_a_join_inner() -> None:
    query = "SELECT o.id FROM orders o LEFT JOIN clicks c ON o.id = c.id WHERE (c.url = 'a' AND o.amount > 1) OR c.order_id > 4"
    assert joins(query)[0].startswith("Join inner on (id = id) if")
