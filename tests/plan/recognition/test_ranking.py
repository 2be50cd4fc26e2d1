"""OVER: top-N and deduplication by the condition on a rank above it, running aggregates without one."""

from __future__ import annotations

import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.core.semantics import FrameUnit
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.nodes import walk_plan
from flowrun.plan.relational import Deduplicate, Frame, OverAggregate, Rank
from tests.plan.recognition.queries import planned, problems, shape

WINDOWED = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
COUNTED = f"SELECT window_start, window_end, user_id, COUNT(*) AS n FROM {WINDOWED} GROUP BY window_start, window_end, user_id"


def ranked(condition: str, order: str = "amount DESC", function: str = "ROW_NUMBER", select: str = "id") -> list[str]:
    inner = f"SELECT *, {function}() OVER (PARTITION BY user_id ORDER BY {order}) AS rn FROM orders"
    return shape(planned(f"SELECT {select} FROM ({inner}) WHERE {condition}"))


def test_over_without_an_order_covers_the_whole_partition_and_is_corrected() -> None:
    """TPC-DS q12, q98 and others: a share of the sum of all rows of a class."""
    plan = planned("SELECT id, SUM(amount) OVER (PARTITION BY user_id), COUNT(*) OVER () FROM orders")
    overs = [n for n in walk_plan(plan) if isinstance(n, OverAggregate)]
    assert [(n.order, n.frame, n.corrects) for n in overs] == [((), Frame(FrameUnit.RANGE), True)] * 2


@pytest.mark.parametrize(
    ("frame", "corrects"),
    [
        ("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", False),
        ("ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING", True),
        ("RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '1' MINUTE PRECEDING", True),
    ],
)
def test_frames_by_time_that_end_before_the_current_row_are_corrected(frame: str, corrects: bool) -> None:
    plan = planned(f"SELECT SUM(amount) OVER (ORDER BY ts {frame}) FROM orders")
    assert [n.corrects for n in walk_plan(plan) if isinstance(n, OverAggregate)] == [corrects]


def test_rows_behind_the_current_one_are_for_rows_that_change_and_for_batches() -> None:
    query = "SELECT SUM(amount) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM orders"
    assert problems(query) == [
        "a frame that ends FOLLOWING needs rows that have not come yet: each row of a stream is answered once, when its time has come"
    ]
    assert problems("SET 'execution.runtime-mode' = 'batch'; " + query) == []
    changing = query.replace("orders", "(SELECT amount, MAX(other) AS ts FROM clicks, orders GROUP BY amount)")
    assert problems(changing) == []


@pytest.mark.parametrize(
    ("condition", "ranks"),
    [
        ("rn <= 3", "1..3"),
        ("rn < 3", "1..2"),
        ("3 >= rn", "1..3"),
        ("rn BETWEEN 2 AND 4", "2..4"),
        ("rn > 1 AND rn <= 2 + 1", "2..3"),
        ("rn <= 5 AND rn <= 3", "1..3"),
        ("rn = 2", "2..2"),
        ("rn <= CAST(3 AS BIGINT)", "1..3"),
    ],
)
@pytest.mark.parametrize("function", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
def test_a_bounded_rank_is_a_top_n(condition: str, ranks: str, function: str) -> None:
    assert ranked(condition, function=function) == [f"Rank {function} by (user_id) {ranks}"]


def test_the_rank_comes_out_only_if_it_is_asked_for() -> None:
    assert ranked("rn <= 3", select="id, rn") == ["Rank ROW_NUMBER by (user_id) 1..3 with rank"]
    assert ranked("rn = 2", select="id, rn") == ["Rank ROW_NUMBER by (user_id) 2..2"], "it is the constant 2"
    assert ranked("rn = 2", function="RANK", select="id, rn") == ["Rank RANK by (user_id) 2..2 with rank"]


def test_other_conditions_stay_above() -> None:
    """They see only rows that have the rank among all rows."""
    assert ranked("rn <= 3 AND amount > 1") == ["Rank ROW_NUMBER by (user_id) 1..3", "Filter (amount > 1)"]
    assert ranked("rn IN (1, 3)") == ["Rank ROW_NUMBER by (user_id) 1..3 with rank", "Filter (rn IN (1, 3))"]
    assert ranked("rn <= 3 AND MOD(rn, 2) = 1")[1] == "Filter (MOD(rn, 2) = 1)"
    assert ranked("rn < 1") == ["Rank ROW_NUMBER by (user_id) 1..1", "Filter (1 < 1)"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ts", "Deduplicate first by (user_id) event"),
        ("ts DESC", "Deduplicate last by (user_id) event"),
        ("p", "Deduplicate first by (user_id) processing"),
        ("p DESC", "Deduplicate last by (user_id) processing"),
        ("ts, id", "Rank ROW_NUMBER by (user_id) 1..1"),
        ("amount", "Rank ROW_NUMBER by (user_id) 1..1"),
    ],
)
@pytest.mark.parametrize("condition", ["rn = 1", "rn <= 1", "rn < 2", "1 = rn"])
def test_the_first_by_time_is_a_deduplication(order: str, expected: str, condition: str) -> None:
    assert ranked(condition, order) == [expected]


def test_rank_is_no_deduplication() -> None:
    assert ranked("rn = 1", "ts", "RANK") == ["Rank RANK by (user_id) 1..1"]


def test_rows_that_change_are_ranked() -> None:
    """Deduplication by time takes inserts only."""
    inner = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts DESC) r FROM orders) WHERE r = 1"
    query = f"SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts) rn FROM ({inner})) WHERE rn = 1"
    assert shape(planned(query)) == ["Deduplicate last by (id) event", "Rank ROW_NUMBER by (user_id) 1..1"]


def test_a_rank_within_windows() -> None:
    def query(partition: str, order: str, condition: str, table: str = f"({COUNTED})") -> list[str]:
        inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY {order}) AS rn FROM {table}"
        return shape(planned(f"SELECT user_id, rn FROM ({inner}) WHERE {condition}"))

    assert query("window_start, window_end", "n DESC", "rn <= 3")[-1] == "WindowRank ROW_NUMBER by () 1..3 with rank"
    assert query("user_id, window_end, window_start", "n", "rn = 1")[-1] == "WindowRank ROW_NUMBER by (user_id) 1..1"
    assert query("window_start", "n", "rn <= 2")[-1] == "Rank ROW_NUMBER by (window_start) 1..2 with rank"
    assert query("window_start, window_end, user_id", "ts DESC", "rn = 1", WINDOWED) == [
        "WindowTableFunction TumblingWindow(60000) event",
        "WindowRank ROW_NUMBER by (user_id) 1..1",
    ]


def test_the_condition_may_stand_far_above() -> None:
    """In a view's reader, above other projections, above a join."""
    inner = "SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount) rn FROM orders"
    view = f"CREATE VIEW v AS SELECT id AS i, rn AS place, user_id AS u FROM ({inner});"
    assert shape(planned(f"{view} SELECT i FROM v WHERE place <= 3")) == ["Rank ROW_NUMBER by (user_id) 1..3"]
    assert (
        shape(planned(f"{view} SELECT a FROM (SELECT i + 1 AS a, place + 0 AS q, place FROM v) WHERE place <= 3"))[0]
        == "Rank ROW_NUMBER by (user_id) 1..3"
    )
    lines = shape(planned(f"{view} SELECT v.i FROM v JOIN clicks c ON v.u = c.user_id WHERE v.place < 3 AND c.id = 1"))
    assert lines == ["Rank ROW_NUMBER by (user_id) 1..2", "Filter (id = 1)", "Join inner on (u = user_id)"]


def test_readers_of_one_view_may_limit_its_rank_differently() -> None:
    plan = planned("""
        CREATE VIEW v AS SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts) rn FROM orders;
        SELECT id FROM v WHERE rn = 1; SELECT amount FROM v WHERE rn <= 1; SELECT id FROM v WHERE rn <= 3; SELECT id, rn FROM v;""")
    nodes = [n for n in walk_plan(plan) if isinstance(n, Rank | Deduplicate | OverAggregate)]
    assert [type(n).__name__ for n in nodes] == ["Deduplicate", "Rank", "OverAggregate"], "equal limits share a node"
    places = [n.hints.place for n in nodes]
    assert None not in places
    assert len(set(places)) == 3, "each has state of its own"


def test_running_aggregates_share_a_node_if_they_share_rows() -> None:
    query = """SELECT id, SUM(amount) OVER u AS a,
               COUNT(*) OVER (PARTITION BY currency ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS b,
               MAX(amount) OVER u AS c FROM orders WINDOW u AS (PARTITION BY user_id ORDER BY ts)"""
    plan = planned(query)
    assert shape(plan) == [
        "OverAggregate SUM(amount), MAX(amount) by (user_id) range None event",
        "OverAggregate COUNT(*) by (currency) rows 2 event",
    ]
    assert plan.sinks[0].input.schema.names == ("id", "a", "b", "c")


def test_a_row_number_by_time_counts_rows() -> None:
    assert shape(planned("SELECT id, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY p) FROM orders")) == [
        "OverAggregate COUNT(*) by (user_id) rows None processing"
    ]


def test_running_aggregates_beside_a_rank_see_all_rows() -> None:
    query = """SELECT id, s, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount) rn,
               SUM(amount) OVER (PARTITION BY user_id ORDER BY ts) s FROM orders) WHERE rn <= 3"""
    plan = planned(query)
    assert shape(plan) == [
        "OverAggregate SUM(amount) by (user_id) range None event",
        "Rank ROW_NUMBER by (user_id) 1..3 with rank",
    ]
    assert [str(t) for t in plan.sinks[0].input.schema.types] == ["BIGINT", "INT", "BIGINT"]


def test_over_a_changelog_any_order_will_do() -> None:
    """Nexmark q6, which Flink cannot run: the average of the last ten winning bids."""
    query = """SELECT user_id, AVG(amount) OVER (PARTITION BY user_id ORDER BY ts ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
      FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY amount DESC, ts) rn FROM orders) WHERE rn <= 1)"""
    assert shape(planned(query)) == [
        "Rank ROW_NUMBER by (id) 1..1",
        "OverAggregate AVG(amount) by (user_id) rows 10 event",
    ]


def test_over_inserts_columns_that_are_no_time_give_updates() -> None:
    for order in ("amount", "amount + 1, ts", "amount DESC"):
        plan = planned(f"SELECT user_id, SUM(amount) OVER (PARTITION BY user_id ORDER BY {order}) FROM orders")
        assert shape(plan)[-1] == "OverAggregate SUM(amount) by (user_id) range None event"
        (over,) = (n for n in walk_plan(plan) if isinstance(n, OverAggregate))
        assert changelog_modes(plan)[id(over)] is ChangelogMode.RETRACT, order


def test_order_by_time_sorts_and_limit_ranks() -> None:
    assert shape(planned("SELECT id FROM orders ORDER BY ts, amount DESC")) == ["TemporalSort"]
    assert shape(planned("SELECT id FROM orders ORDER BY amount LIMIT 3")) == ["Rank ROW_NUMBER by () 1..3"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT id FROM (SELECT id, RANK() OVER (ORDER BY amount) rn FROM orders) WHERE rn > 3",
            "RANK() OVER needs a condition on its result, or one time attribute ascending as its order",
        ),
        (
            "SELECT SUM(id) OVER (ORDER BY ts DESC) FROM orders",
            "SUM OVER needs one time attribute ascending as its order, not ts DESC",
        ),
        (
            "SELECT id FROM orders ORDER BY amount",
            "ORDER BY begins with 'amount', which is no time attribute: rows of a stream can be sorted by a time attribute ascending only",
        ),
        (
            "SELECT id FROM orders ORDER BY ts DESC",
            "ORDER BY begins with 'ts', descending: rows of a stream can be sorted by a time attribute ascending only",
        ),
    ],
)
def test_orders_that_a_stream_cannot_have(query: str, message: str) -> None:
    assert problems(query) == [message]


def test_offset_without_limit_is_for_batches() -> None:
    query = "SELECT id FROM orders ORDER BY amount OFFSET 2"
    assert problems(query) == ["OFFSET without LIMIT keeps a stream's rows for ever"]
    assert problems("SET 'execution.runtime-mode' = 'batch'; " + query) == []


def test_batches_cut_windows_by_any_time() -> None:
    query = "SELECT * FROM TABLE(TUMBLE(TABLE (SELECT id, MAX(ts) AS ts FROM orders GROUP BY id), DESCRIPTOR(ts), INTERVAL '1' DAY))"
    assert problems(query) == ["TUMBLE needs a time attribute, but 'ts' is an ordinary TIMESTAMP(3) column"]
    assert problems("SET 'execution.runtime-mode' = 'batch'; " + query) == []
