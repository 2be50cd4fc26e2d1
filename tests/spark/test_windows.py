"""Windows on Spark hold the rows and results that they hold in the stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flowrun.errors import UnsupportedPlanError
from flowrun.plan.nodes import Plan, WindowAggregate, walk_plan
from flowrun.plan.windows import CountWindow, TriggerSpec
from flowrun.spark.context import Context
from flowrun.spark.frame import NotNative
from flowrun.spark.native.windows import translate_window_aggregate
from flowrun.spark.translated import Inputs
from tests.spark.plans import (
    EVENTS,
    NONE,
    NOW_MS,
    ONE,
    Table,
    assert_same,
    assert_same_plan,
    spark_results,
    sql_plan,
    yaml_plan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = Table("old", EVENTS.columns, [(k, v, d, s, ts.replace(year=1969)) for k, v, d, s, ts in EVENTS.rows])
"""Rows from before 1970, whose times are negative."""
LOCAL = Table(
    "local",
    "k STRING, v INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    [(k, v, f"{ts.isoformat()}Z") for k, v, _, _, ts in EVENTS.rows],
)

ALIGNED = [
    "TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '7' SECOND)",
    "TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '7' SECOND, INTERVAL '2' SECOND)",
    "HOP(TABLE {0}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    "HOP(TABLE {0}, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND, INTERVAL '1' SECOND)",
    "HOP(TABLE {0}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '2' SECOND)",
    "CUMULATE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '12' SECOND)",
    "CUMULATE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '12' SECOND, INTERVAL '3' SECOND)",
]


@pytest.mark.parametrize("window", ALIGNED)
def test_aggregates_of_aligned_windows(window: str, spark: SparkSession) -> None:
    keyed, alone, edges = assert_same(
        spark,
        [EVENTS, ONE, NONE, OLD],
        f"""
        SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v), MAX(s), COUNT(DISTINCT s) FILTER (WHERE v > 2)
        FROM {window.format("events")} GROUP BY k, window_start, window_end;
        SELECT window_start, window_end, window_time, AVG(v) FROM {window.format("old")} GROUP BY window_start, window_end, window_time;
        SELECT window_end, 'one', COUNT(*) FROM {window.format("one")} GROUP BY window_start, window_end
        UNION ALL SELECT window_end, 'none', COUNT(*) FROM {window.format("nothing")} GROUP BY window_start, window_end;
        """,
    )
    assert keyed
    assert alone
    assert {row[1] for row in edges} <= {"one"}


def test_rows_of_windows(spark: SparkSession) -> None:
    text = "".join(f"SELECT * FROM {window.format('events')};" for window in ALIGNED[1:4:2] + ALIGNED[4:6])
    assert_same(spark, [EVENTS, LOCAL], text + f"SELECT * FROM {ALIGNED[2].format('local')};")


def test_sessions(spark: SparkSession) -> None:
    by_key, single, rows, alone, edges = assert_same(
        spark,
        [EVENTS, ONE, NONE],
        """
        SELECT k, window_start, window_end, COUNT(*), SUM(v), LISTAGG(s)
        FROM SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY k, window_start, window_end;
        SELECT window_start, window_end, COUNT(DISTINCT v)
        FROM SESSION(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end;
        SELECT * FROM SESSION(TABLE events PARTITION BY (k, v), DESCRIPTOR(ts), INTERVAL '2' SECOND);
        SELECT * FROM SESSION(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND);
        SELECT window_end, COUNT(*)
        FROM SESSION(TABLE one, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end
        UNION ALL SELECT window_end, COUNT(*)
        FROM SESSION(TABLE nothing, DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY window_start, window_end;
        """,
    )
    assert len(by_key) > 5
    assert len(single) > 2, "there are gaps"
    assert rows.total() == alone.total() == len(EVENTS.rows)
    assert edges.total() == 1


def test_rows_of_sessions_arrive_when_their_session_closes(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS],
        """
        SELECT k, v, s FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY d) AS n
          FROM (SELECT k, v, s, d FROM SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND))
        ) WHERE n <= 2;
        """,
    )


def test_windows_over_windows_go_by_their_end(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS],
        """
        CREATE VIEW small AS
        SELECT k, window_start AS s, window_end AS e, window_time AS at, COUNT(*) AS n
        FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND) GROUP BY k, window_start, window_end, window_time;
        SELECT window_start, window_end, SUM(n)
        FROM TUMBLE(TABLE small, DESCRIPTOR(at), INTERVAL '15' SECOND) GROUP BY window_start, window_end;
        """,
    )


def yaml_windows(null_keys: str) -> Plan:
    return yaml_plan(
        f"""
        name: windows
        sources:
          events:
            connector: memory
            table: windowed
            schema: {{k: STRING, v: INT, ts: TIMESTAMP(3)}}
            watermark: {{column: ts, delay: 5s}}
        steps:
          counted:
            from: events
            key_by: k
            null_keys: {null_keys}
            window: {{type: tumbling, size: 10s, allowed_lateness: 5s, late_output: late}}
            aggregate: COUNT(*) AS n
        sinks:
          out: {{from: counted, connector: print}}
          late: {{from: late, connector: print}}
        """,
        {"windowed": [(k, v, ts) for k, v, _, _, ts in EVENTS.rows]},
    )


ORDERED_WINDOWS = (
    "{type: tumbling, size: 10s}",
    "{type: sliding, size: 10s, slide: 4s}",
    "{type: session, gap: 3s}",
    "{type: count, size: 3}",
    "{type: global, trigger: {count: 4, purge: true}}",
)


@pytest.mark.parametrize("window", ORDERED_WINDOWS)
def test_users_and_ordered_aggregates_of_windowed_steps(window: str, spark: SparkSession) -> None:
    plan = yaml_plan(
        f"""
        name: windows
        functions: {{joined: "tests.spark.aggregates_in_steps:Joined"}}
        sources:
          events:
            connector: memory
            table: windowed
            schema: {{k: STRING, v: INT, ts: TIMESTAMP(3)}}
            watermark: {{column: ts, delay: 1h}}
        steps:
          ordered:
            from: events
            key_by: k
            null_keys: group
            window: {window}
            aggregate:
              - LISTAGG(CAST(v AS STRING), ' ') WITHIN GROUP (ORDER BY v DESC, ts) AS by_value
              - UPPER(joined(k, v)) AS joined
              - COUNT(k, v) FILTER (WHERE v > 1) AS pairs
            having: pairs >= 0
        sinks:
          out: {{from: ordered, connector: print}}
        """,
        {"windowed": [(k, v, ts) for k, v, _, _, ts in EVENTS.rows]},
    )
    (rows,) = assert_same_plan(spark, plan, hosted=["WindowAggregate"])
    assert rows


def test_null_keys_are_dropped_or_a_group(spark: SparkSession) -> None:
    dropped, late = assert_same_plan(spark, yaml_windows("drop"))
    grouped, _ = assert_same_plan(spark, yaml_windows("group"))
    assert None in {row[0] for row in grouped}
    assert None not in {row[0] for row in dropped}
    assert not late, "nothing is late in a batch"


def test_null_keys_fail_the_run(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="key column 'k' is NULL; expected a value"):
        spark_results(spark, yaml_windows("fail"))


def test_a_batch_has_no_processing_time(spark: SparkSession) -> None:
    table = Table("clock", "k STRING, at AS PROCTIME()", [("a",)])
    plan = sql_plan(
        [table],
        "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE clock, DESCRIPTOR(at), INTERVAL '5' SECOND) GROUP BY window_start, window_end",
    )
    with pytest.raises(UnsupportedPlanError, match="windows by processing time, which a batch does not have") as raised:
        spark_results(spark, plan)
    assert "event time" in (raised.value.hint or "")


def test_triggers_evictors_and_counting_windows_are_hosted(spark: SparkSession) -> None:
    (node,) = (n for n in walk_plan(yaml_windows("group")) if isinstance(n, WindowAggregate))
    context = Context(spark, Plan("p", ()).settings, NOW_MS)
    for special in (replace(node, trigger=TriggerSpec(count=2)), replace(node, window=CountWindow(2, 1))):
        with pytest.raises(NotNative):
            translate_window_aggregate(special, Inputs(special, {}), context)


@pytest.mark.parametrize(
    "window", [*ALIGNED[:1], *ALIGNED[3:4], "SESSION(TABLE {0} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND)"]
)
def test_windows_of_a_zone_run_the_operators_of_the_stream(window: str, spark: SparkSession) -> None:
    (rows,) = assert_same(
        spark,
        [LOCAL],
        f"SELECT k, window_start, window_end, window_time, COUNT(*) FROM {window.format('local')}"
        " GROUP BY k, window_start, window_end, window_time;",
        settings={"settings.time_zone": "Asia/Kolkata"},
        hosted=["WindowAggregate", "Calc"],
    )
    assert rows


def test_windows_of_a_zone_are_joined_and_ranked_by_the_operators_of_the_stream(spark: SparkSession) -> None:
    (rows,) = assert_same(
        spark,
        [LOCAL],
        """
        CREATE VIEW w AS SELECT * FROM TABLE(TUMBLE(TABLE local, DESCRIPTOR(ts), INTERVAL '7' SECOND));
        CREATE VIEW best AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end ORDER BY v DESC, k) AS place FROM w) WHERE place <= 2;
        SELECT l.k, l.v, l.window_start, CAST(l.ts AS STRING) FROM best l JOIN best p
        ON l.k = p.k AND l.window_start = p.window_start AND l.window_end = p.window_end;
        """,
        settings={"settings.time_zone": "Asia/Kolkata"},
        hosted=["WindowTableFunction", "WindowRank", "WindowJoin", "Calc"],
    )
    assert rows
