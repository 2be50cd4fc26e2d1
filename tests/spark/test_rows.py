"""Nodes that work on each row by itself give on Spark what they give in the stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flowrun.plan.nodes import NodeHints, Plan
from flowrun.plan.relational import AssignTime
from flowrun.spark.context import Context
from flowrun.spark.native.rows import no_rows
from tests.spark.plans import (
    EVENTS,
    NONE,
    NOW_MS,
    ONE,
    Table,
    assert_same,
    assert_same_plan,
    check_frame,
    collected,
    spark_results,
    sql_plan,
    yaml_plan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NESTED = Table(
    "nested",
    "id INT, tags ARRAY<STRING>, parts ARRAY<ROW<a INT, b STRING>>, counts MAP<STRING, INT>, bag MULTISET<STRING>,"
    " ts TIMESTAMP(3), WATERMARK FOR ts AS ts",
    [
        (
            1,
            ["x", None, "y"],
            [{"a": 1, "b": "u"}, None, {"a": None, "b": "v"}],
            {"k": 1, "l": None},
            {"m": 2, "n": 1},
            "2024-01-01T00:00:01",
        ),
        (2, [], [], {}, {}, "2024-01-01T00:00:02"),
        (3, None, None, None, None, "2024-01-01T00:00:03"),
        (4, ["y"], [{"a": 4, "b": None}], {"k": 4}, {"n": 3}, "2024-01-01T00:00:04"),
    ],
)


def test_filters_and_projections(spark: SparkSession) -> None:
    kept, renamed, nothing = assert_same(
        spark,
        [EVENTS, NONE],
        """
        SELECT * FROM events WHERE v > 3 AND k IS NOT NULL;
        SELECT UPPER(s) AS `a b.c``d`, v * 2 AS v, ts FROM events;
        SELECT k, v FROM nothing;
        """,
    )
    assert kept
    assert renamed.total() == len(EVENTS.rows)
    assert not nothing


def test_constant_rows(spark: SparkSession) -> None:
    assert_same(
        spark,
        [],
        """
        SELECT * FROM (VALUES (1, 'it''s', TIMESTAMP '2024-01-01 00:00:00.123', DATE '2024-02-29'), (2, NULL, NULL, NULL))
          AS t (a, b, c, d);
        SELECT a, ARRAY[a, 2], MAP['k', a], ROW(a, 'x') FROM (VALUES (1), (1 + 1)) AS t (a);
        SELECT * FROM (VALUES (5), (3), (4)) AS t (a) LIMIT 2;
        """,
    )


def test_unions_have_the_event_time_and_arrival_that_all_members_have(spark: SparkSession) -> None:
    timed, *_ = assert_same(
        spark,
        [EVENTS, ONE],
        """
        SELECT k, v, ts FROM events UNION ALL SELECT s, v + 1, ts FROM one;
        SELECT k, v FROM events UNION ALL SELECT 'x', 1;
        SELECT * FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n
          FROM (SELECT k, s, ts FROM events WHERE v < 4 UNION ALL SELECT s, k, ts FROM one)
        ) WHERE n = 1;
        """,
    )
    assert timed.total() == len(EVENTS.rows) + 1


def test_a_row_goes_to_every_branch_that_is_true(spark: SparkSession) -> None:
    plan = yaml_plan(
        """
        name: branches
        sources:
          events:
            connector: memory
            table: branches
            schema: {k: STRING, v: INT, ts: TIMESTAMP(3)}
            watermark: {column: ts, delay: 5s}
        steps:
          sizes: {from: events, split: {big: v > 2, named: k IS NOT NULL, odd: v % 2 = 1}}
        sinks:
          rest: {from: sizes, connector: print}
          big: {from: big, connector: print}
          named: {from: named, connector: print}
          odd: {from: odd, connector: print}
        """,
        {"branches": [(k, v, ts) for k, v, _, _, ts in EVENTS.rows]},
    )
    rest, big, named, _ = assert_same_plan(spark, plan)
    assert rest
    assert big & named, "some rows go to both"


TWO_TIMES = Table(
    "two_times",
    "id INT, ts TIMESTAMP(3), other TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    [(1, "2024-01-01T00:00:01", "2024-01-01T00:00:02.5Z"), (2, "2024-01-01T00:00:02", "2024-01-01T00:00:03Z")],
)


def by_other_time(table: Table) -> Plan:
    """The rows of a table with its third column as event time."""
    plan = sql_plan([table], f"SELECT * FROM {table.name}")
    (sink,) = plan.sinks
    timed = AssignTime(sink.schema, NodeHints(name="timed"), sink.input, 2)
    return replace(plan, sinks=(replace(sink, input=timed),))


def test_rows_take_a_column_as_their_event_time(spark: SparkSession) -> None:
    (rows,) = assert_same_plan(spark, by_other_time(TWO_TIMES))
    assert {(row[0], row[-1]) for row in rows} == {(1, 1_704_067_202_500), (2, 1_704_067_203_000)}


def test_event_time_is_never_null(spark: SparkSession) -> None:
    broken = replace(TWO_TIMES, rows=[*TWO_TIMES.rows, (3, "2024-01-01T00:00:03", None)])
    with pytest.raises(Exception, match="'timed': the time attribute 'other' must not be NULL"):
        spark_results(spark, by_other_time(broken))


def test_side_outputs_that_get_no_row_are_empty(spark: SparkSession) -> None:
    plan = by_other_time(TWO_TIMES)
    node = plan.sinks[0].input
    frame = no_rows(node.schema, node.event_time, Context(spark, plan.settings, NOW_MS))
    check_frame(frame, node)
    assert not collected(frame)


def test_grouping_sets_repeat_rows(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS, ONE],
        """
        SELECT k, v, COUNT(*), SUM(v) FROM events GROUP BY ROLLUP (k, v);
        SELECT k, v, COUNT(*), GROUPING(k), GROUPING_ID(k, v) FROM events GROUP BY GROUPING SETS ((k), (v), ());
        SELECT k, s, COUNT(*) FROM one GROUP BY CUBE (k, s);
        """,
    )


def test_elements_of_collections_become_rows(spark: SparkSession) -> None:
    assert_same(
        spark,
        [NESTED],
        """
        SELECT id, tag, ts FROM nested CROSS JOIN UNNEST(tags) AS t (tag);
        SELECT * FROM nested LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, place) ON TRUE;
        SELECT id, a, b FROM nested LEFT JOIN UNNEST(parts) AS t (a, b) ON TRUE;
        SELECT id, b, place FROM nested CROSS JOIN UNNEST(parts) WITH ORDINALITY AS t (a, b, place);
        SELECT id, name, number FROM nested LEFT JOIN UNNEST(counts) AS t (name, number) ON TRUE;
        SELECT id, word FROM nested LEFT JOIN UNNEST(bag) AS t (word) ON TRUE;
        """,
    )


def test_elements_arrive_in_their_order(spark: SparkSession) -> None:
    (joined,) = assert_same(
        spark,
        [NESTED],
        "SELECT id, LISTAGG(tag), FIRST_VALUE(tag) FROM nested CROSS JOIN UNNEST(tags) AS t (tag) GROUP BY id",
    )
    assert (1, "x,y", "x") in joined
