"""Nodes on the streaming operators inside Spark tasks: each kind gives what the stream gives, whatever the order of its input."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.errors import JobFailedError
from flowrun.plan.co_process import CoProcess
from flowrun.plan.nodes import AsyncMap, Plan, Process, PythonMap, Scan, Sink, Split, walk_plan
from flowrun.spark import translation
from flowrun.spark.context import Context
from flowrun.spark.failures import job_failure
from flowrun.spark.output.staging import OutputJob, stage
from flowrun.spark.session import SparkOptions, open_session
from flowrun.spark.translation import translate
from tests.spark.plans import (
    EVENTS,
    NOW_MS,
    Table,
    collected,
    spark_results,
    sql_plan,
    stream_results,
    translate_shuffled,
    yaml_plan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = Table(
    "others",
    "k STRING, w INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    [("a", 1, "2024-01-01 00:00:31"), ("b", 2, "2024-01-01 00:00:36"), ("a", 3, "2024-01-01 00:00:34"),
     (None, 4, "2024-01-01 00:00:40"), ("c", 5, "2024-01-01 00:00:44"), ("c", None, "2024-01-01 00:00:50")],
)  # fmt: skip
RATES = Table(
    "rates",
    "k STRING, r INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (k) NOT ENFORCED",
    [("a", 10, "2024-01-01 00:00:20"), ("b", 20, "2024-01-01 00:00:20"), ("a", 11, "2024-01-01 00:00:40")],
)
CLOCKED = Table("clocked", "k STRING, v INT, now AS PROCTIME()", [("a", 1), ("b", 2), ("a", None), (None, 4), ("z", 5)])
NAMES = """
CREATE TABLE kept (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector'='blackhole');
CREATE TABLE names (k STRING, name STRING) WITH ('connector'='filesystem', 'path'='{path}', 'format'='json');
SET 'flowrun.functions' = 'tests';
CREATE FUNCTION letters AS 'tests.spark.hosted_functions.letters' LANGUAGE PYTHON;
"""

QUERIES = {
    "Calc": "SELECT k, v + 1 AS v FROM events WHERE v > 2",
    "Union": "SELECT k, v FROM events UNION ALL SELECT k, w FROM others",
    "Values": "SELECT * FROM (VALUES (1, 'x'), (2, 'y')) AS t (a, b)",
    "Unnest": "SELECT v, e FROM events CROSS JOIN UNNEST(ARRAY[v, 7]) AS t (e)",
    "TableFunctionCall": "SELECT k, letter, n FROM events LEFT JOIN LATERAL TABLE(letters(s)) AS t (letter, n) ON TRUE",
    "LookupJoin": "SELECT c.v, n.name FROM clocked AS c LEFT JOIN names FOR SYSTEM_TIME AS OF c.now AS n ON c.k = n.k",
    "Expand": "SELECT k, s, COUNT(*) AS n FROM events GROUP BY GROUPING SETS ((k), (s), ())",
    "FromChangelog": "SELECT id, name FROM FROM_CHANGELOG((SELECT * FROM (VALUES (1, 'INSERT', 'A'), (2, 'INSERT', 'B'),"
    " (1, 'DELETE', 'A')) AS t (id, op, name)))",
    "ChangelogNormalize": "SELECT id, name FROM FROM_CHANGELOG(input => (SELECT * FROM (VALUES (1, 'c', 'A'), (2, 'u', 'B'),"
    " (1, 'u', 'C'), (3, 'c', 'D'), (2, 'd', 'X'), (3, 'c', 'D'), (4, 'd', 'E')) AS t (id, op, name)) PARTITION BY id,"
    " op_mapping => MAP['c', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE'])",
    "ToChangelog": "SELECT op, k, v FROM TO_CHANGELOG((SELECT k, v FROM events WHERE v > 2))",
    "GroupAggregate": "SELECT k, COUNT(*) AS n, SUM(v) AS t, COUNT(DISTINCT s) AS d FROM events GROUP BY k",
    "everything": "SELECT COUNT(*) AS n, MAX(v) AS m FROM events",
    "distinct": "SELECT DISTINCT k, v FROM events",
    "updating twice": "SELECT n, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM events GROUP BY k) GROUP BY n",
    "WindowAggregate": "SELECT k, window_start, COUNT(*) AS n FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECOND,"
    " INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end",
    "session": "SELECT k, window_end, SUM(v) AS n FROM TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts),"
    " INTERVAL '3' SECOND)) GROUP BY k, window_start, window_end",
    "AssignTime": "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT v, window_time AS t FROM TABLE(TUMBLE(TABLE events,"
    " DESCRIPTOR(ts), INTERVAL '5' SECOND))), DESCRIPTOR(t), INTERVAL '10' SECOND)) GROUP BY window_start, window_end",
    "WindowTableFunction": "SELECT k, v, window_end FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
    "WindowRank": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v DESC, s, d, ts) AS n"
    " FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE n <= 2",
    "OverAggregate": "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND"
    " CURRENT ROW) AS t FROM events",
    "Rank": "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, s, d, ts) AS n FROM events) WHERE n <= 2",
    "first": "SELECT k, v, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM events) WHERE n = 1",
    "last": "SELECT k, v, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM events) WHERE n = 1",
    "TemporalSort": "SELECT k, v FROM events ORDER BY ts",
    "Join": "SELECT e.k, e.v, o.w FROM events AS e FULL JOIN others AS o ON e.k = o.k AND e.v > o.w",
    "WindowJoin": "SELECT e.k, e.v, o.w FROM (SELECT * FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS e"
    " LEFT JOIN (SELECT * FROM TABLE(TUMBLE(TABLE others, DESCRIPTOR(ts), INTERVAL '10' SECOND))) AS o"
    " ON e.k = o.k AND e.window_start = o.window_start AND e.window_end = o.window_end",
    "IntervalJoin": "SELECT e.k, e.v, o.w FROM events AS e LEFT JOIN others AS o ON e.k = o.k"
    " AND o.ts BETWEEN e.ts - INTERVAL '2' SECOND AND e.ts + INTERVAL '4' SECOND",
    "ResolveConflicts": "INSERT INTO kept SELECT COALESCE(k, '-'), COUNT(*) AS n FROM events GROUP BY k ON CONFLICT DO ERROR",
    "TemporalJoin": "SELECT e.k, e.v, r.r FROM events AS e LEFT JOIN rates FOR SYSTEM_TIME AS OF e.ts AS r ON e.k = r.k",
    "MatchRecognize": "SELECT * FROM others MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.w AS a, B.w AS b"
    " ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.w > A.w)",
}  # fmt: skip

PROCESS = """
name: buckets
settings: {functions: [tests]}
sources:
  events:
    connector: memory
    table: events
    schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  doubled:
    from: events
    map: {function: tests.spark.hosted_functions:doubled, schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}}
  counted:
    from: doubled
    key_by: [k]
    null_keys: drop
    process:
      function: tests.spark.hosted_functions:Buckets
      with: {size_ms: 4000}
      schema: {k: STRING, until: BIGINT, n: BIGINT}
      side_outputs: {great: {k: STRING, until: BIGINT, n: BIGINT}}
sinks:
  out: {from: counted, connector: blackhole}
  great: {from: great, connector: blackhole}
"""


ASKED = """
name: asked
settings: {functions: [tests]}
sources:
  events:
    connector: memory
    table: events
    schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  asked:
    from: events
    async:
      function: tests.spark.hosted_functions:Asked
      timeout: 60s
      retry: {attempts: 3, delay: 10ms}
      side_outputs: {great: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}}
sinks:
  out: {from: asked, connector: blackhole}
  great: {from: great, connector: blackhole}
"""


@pytest.fixture
def all_hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but scans is native."""
    kinds = {kind: "a test" for kind in translation.NATIVE if kind is not Scan}
    monkeypatch.setattr(translation, "HOSTED", {**kinds, **translation.HOSTED})


@pytest.fixture
def quick(spark: SparkSession) -> SparkSession:
    """A session that makes less of each of many small queries."""
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    return open_session(SparkOptions(conf=conf))


def differences(spark: SparkSession, plan: Plan) -> dict[str, object]:
    """Sink → what is missing on Spark and what is only there. Spark runs several at the same time."""
    nodes = translate_shuffled(spark, plan)
    with ThreadPoolExecutor(3) as pool:
        given = list(pool.map(lambda sink: collected(nodes[id(sink)].main), plan.sinks))
    found: dict[str, object] = {}
    for sink, wanted, got in zip(plan.sinks, stream_results(plan), given, strict=True):
        assert wanted.rows, f"the stream gives nothing: {sink.hints.name}"
        missing, extra = wanted.rows - got, got - wanted.rows
        if (missing, extra) != (Counter(), Counter()):
            found[f"{sink.hints.name} {type(sink.input).__name__}"] = (missing, extra)
    return found


def plan_of(names: Iterable[str], folder: Path) -> Plan:
    known = [{"k": "a", "name": "A"}, {"k": "a", "name": "AA"}, {"k": "b", "name": "B"}]
    (folder / "names.json").write_text("".join(json.dumps(row) + "\n" for row in known))
    tables = NAMES.format(path=folder / "names.json")
    return sql_plan([EVENTS, OTHERS, RATES, CLOCKED], tables + ";\n".join(QUERIES[name] for name in names))


@pytest.mark.everyday
def test_every_kind_of_node_is_in_a_query(tmp_path: Path) -> None:
    kinds = {type(node) for node in walk_plan(plan_of(QUERIES, tmp_path))} - {Scan, Sink}
    assert kinds >= {*translation.NATIVE, *translation.HOSTED} - {
        Scan,
        Split,
        PythonMap,
        AsyncMap,
        Process,
        CoProcess,
    }, "those have tests below"


ALWAYS_HOSTED = {"TableFunctionCall", "ResolveConflicts", "MatchRecognize"}
SOME = [name for place, name in enumerate(QUERIES) if place % 4 == 0 or name in ALWAYS_HOSTED]


@pytest.mark.parametrize("names", [pytest.param(SOME, id="some"), pytest.param([*QUERIES], id="all")])
@pytest.mark.usefixtures("all_hosted")
def test_every_kind_of_node_gives_what_the_stream_gives(names: list[str], quick: SparkSession, tmp_path: Path) -> None:
    assert not differences(quick, plan_of(names, tmp_path))


@pytest.mark.usefixtures("all_hosted")
def test_rows_that_an_order_does_not_tell_apart_come_as_they_arrived(quick: SparkSession) -> None:
    queries = [
        "SELECT k, FIRST_VALUE(v) AS f, LAST_VALUE(s) AS l FROM events GROUP BY k",
        "SELECT k, v, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM events WHERE v > 0) WHERE n <= 2",
        "SELECT k, v, COUNT(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM events",
    ]
    assert not differences(quick, sql_plan([EVENTS], ";\n".join(queries)))


BRANCHES = """
name: branches
settings: {functions: [tests]}
sources:
  events:
    connector: memory
    table: events
    schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  doubled:
    from: events
    map: {function: tests.spark.hosted_functions:doubled, schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}}
  again:
    from: doubled
    map: {function: tests.spark.hosted_functions:doubled, schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}}
  sizes: {from: again, split: {big: v > 8, named: k IS NOT NULL}}
sinks:
  all: {from: again, connector: blackhole}
  rest: {from: sizes, connector: blackhole}
  big: {from: big, connector: blackhole}
  named: {from: named, connector: blackhole}
"""


CHAIN = """
name: chain
settings: {functions: [tests]}
sources:
  events:
    connector: memory
    table: chained
    schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  doubled:
    from: events
    map: {function: tests.spark.hosted_functions:doubled, schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}}
  checked:
    from: doubled
    map: {function: tests.spark.hosted_functions:positive, schema: {k: STRING, v: INT, d: DOUBLE, s: STRING, ts: TIMESTAMP(3)}}
sinks:
  out: {from: checked, connector: blackhole}
"""


@pytest.mark.usefixtures("all_hosted")
def test_branches_of_what_functions_give(spark: SparkSession) -> None:
    plan = yaml_plan(BRANCHES, {"events": EVENTS.rows})
    assert {type(node) for node in walk_plan(plan)} >= {PythonMap, Split}
    assert not differences(spark, plan)


def test_asynchronous_functions_are_waited_for(spark: SparkSession) -> None:
    assert not differences(spark, yaml_plan(ASKED, {"events": EVENTS.rows}))


def test_functions_and_a_writer_run_in_one_call(spark: SparkSession) -> None:
    plan = yaml_plan(CHAIN, {"chained": EVENTS.rows})
    (sink,) = plan.sinks
    frame = translate_shuffled(spark, plan)[id(sink)].main
    assert frame.event_time
    assert frame.pipe is not None
    assert "MapInArrow" not in frame.pipe.source._jdf.queryExecution().toString()
    assert stage(sink, frame, OutputJob("chain", "all", "1")).rows == len(EVENTS.rows)
    assert not differences(spark, plan)


def test_what_several_read_is_made_once(spark: SparkSession) -> None:
    plan = yaml_plan(BRANCHES, {"events": EVENTS.rows})
    again = plan.sinks[0].input
    nodes = translate(plan, Context(spark, plan.settings, NOW_MS)).results
    assert nodes[id(again.inputs[0])].main.pipe is not None
    assert nodes[id(again)].main.pipe is None


def test_in_a_chain_of_functions_the_one_that_raises_is_named(spark: SparkSession) -> None:
    rows = [("a", 1, None, None, "2024-01-01 00:00:31"), ("b", -1, None, None, "2024-01-01 00:00:32")]
    plan = yaml_plan(CHAIN, {"chained": rows})
    (sink,) = plan.sinks
    with pytest.raises(Exception, match="operator 'checked'") as caught:
        stage(sink, translate_shuffled(spark, plan)[id(sink)].main, OutputJob("chain", "all", "1"))
    error = job_failure(caught.value, "sink 'out'")
    assert error.message.startswith(
        "sink 'out': operator 'checked' failed: function 'tests.spark.hosted_functions:positive'"
    )
    assert "-2 is negative" in error.message


def test_python_functions_with_state_timers_and_side_outputs(spark: SparkSession) -> None:
    plan = yaml_plan(PROCESS, {"events": EVENTS.rows})
    assert not differences(spark, plan)


def test_a_function_that_raises_is_named_with_what_it_said(spark: SparkSession) -> None:
    plan = yaml_plan(
        PROCESS, {"events": [("a", 1, None, None, "2024-01-01 00:00:31"), ("b", -1, None, None, "2024-01-01 00:00:32")]}
    )
    with pytest.raises(Exception, match="operator 'counted'") as caught:
        spark_results(spark, plan)
    error = job_failure(caught.value, "sink 'out'")
    assert isinstance(error, JobFailedError)
    assert "operator 'counted'" in error.message
    assert "-2 is negative" in error.message
