"""The hand-over: what a backfill counted and what the stream resumed from its savepoint adds is what one stream over everything gives."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.errors import UnsupportedPlanError
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import JobStateOptions, run_embedded
from flowrun.spark.arrow import from_spark
from flowrun.spark.failures import job_failure
from flowrun.spark.savepoint import SavepointWritten, _least, leave_savepoint
from tests.sql.test_cases import folded, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parents[1] / "sql" / "data"
# three orders from before it come after the first one that is not
MIDDLE = datetime(2024, 5, 6, 12, 2, 54, tzinfo=UTC)
UNTIL_MS = int(MIDDLE.timestamp() * 1000)
NOW_MS = 1_800_000_000_000

TABLES = """
CREATE TABLE orders (order_id BIGINT, user_id STRING, product STRING, amount DOUBLE, quantity INT, currency STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem', 'path'='${DATA}/orders.json', 'format'='json');
CREATE TABLE shipments (shipment_id BIGINT, order_id BIGINT, carrier STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem', 'path'='${DATA}/shipments.json', 'format'='json');
CREATE TABLE clicks (click_id BIGINT, user_id STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector'='filesystem', 'path'='${DATA}/clicks.json', 'format'='json');
CREATE TEMPORARY VIEW last_click AS SELECT click_id, user_id, ts FROM
  (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts DESC) AS n FROM clicks) WHERE n = 1;
"""

STATEMENTS = {
    "tumbling": (
        "u STRING, w STRING, n BIGINT, a DOUBLE",
        "SELECT user_id, CAST(window_end AS STRING), COUNT(*), SUM(amount) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts),"
        " INTERVAL '2' MINUTE)) GROUP BY user_id, window_start, window_end",
    ),
    "sliding": (
        "u STRING, w STRING, n BIGINT",
        "SELECT user_id, CAST(window_end AS STRING), COUNT(*) FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '30' SECOND,"
        " INTERVAL '2' MINUTE)) GROUP BY user_id, window_start, window_end",
    ),
    "session": (
        "u STRING, w STRING, n BIGINT",
        "SELECT user_id, CAST(window_end AS STRING), COUNT(*) FROM TABLE(SESSION(TABLE clicks PARTITION BY user_id, DESCRIPTOR(ts),"
        " INTERVAL '20' SECOND)) GROUP BY user_id, window_start, window_end",
    ),
    "updating": ("u STRING, n BIGINT, a DOUBLE", "SELECT user_id, COUNT(*), MAX(amount) FROM orders GROUP BY user_id"),
    "everything": ("n BIGINT, q BIGINT", "SELECT COUNT(*), SUM(quantity) FROM orders"),
    "joined": (
        "o BIGINT, s BIGINT, c STRING",
        "SELECT o.order_id, s.shipment_id, s.carrier FROM orders AS o LEFT JOIN shipments AS s ON o.order_id = s.order_id",
    ),
    "near": (
        "o BIGINT, s BIGINT",
        "SELECT o.order_id, s.shipment_id FROM orders AS o JOIN shipments AS s ON o.order_id = s.order_id"
        " AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '3' MINUTE",
    ),
    "first_of": (
        "u STRING, o BIGINT",
        "SELECT user_id, order_id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id, product ORDER BY ts) AS n FROM orders)"
        " WHERE n = 1",
    ),
    "last_of": (
        "u STRING, o BIGINT",
        "SELECT user_id, order_id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts DESC) AS n FROM orders)"
        " WHERE n = 1",
    ),
    "best": (
        "c STRING, o BIGINT, a DOUBLE",
        "SELECT currency, order_id, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY amount DESC, order_id)"
        " AS n FROM orders) WHERE n <= 3",
    ),
    "cumulating": (
        "w STRING, n BIGINT, p BIGINT",
        "SELECT CAST(window_end AS STRING), COUNT(*), COUNT(DISTINCT product) FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(ts),"
        " INTERVAL '20' SECOND, INTERVAL '2' MINUTE)) GROUP BY window_start, window_end",
    ),
    "cascade": (
        "w STRING, n BIGINT",
        "SELECT CAST(TUMBLE_END(wt, INTERVAL '1' MINUTE) AS STRING), SUM(n) FROM (SELECT window_time AS wt, COUNT(*) AS n FROM"
        " TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY user_id, window_start, window_end, window_time)"
        " GROUP BY TUMBLE(wt, INTERVAL '1' MINUTE)",
    ),
    "window_best": (
        "w STRING, o BIGINT, r BIGINT",
        "SELECT CAST(window_end AS STRING), order_id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end"
        " ORDER BY amount DESC, order_id) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) WHERE n <= 2",
    ),
    "window_joined": (
        "o BIGINT, s BIGINT",
        "SELECT o.order_id, s.shipment_id FROM (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) AS o"
        " FULL JOIN (SELECT * FROM TABLE(TUMBLE(TABLE shipments, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) AS s ON o.order_id = s.order_id"
        " AND o.window_start = s.window_start AND o.window_end = s.window_end",
    ),
    "nearby": (
        "o BIGINT, s BIGINT",
        "SELECT o.order_id, s.shipment_id FROM orders AS o FULL JOIN shipments AS s ON o.order_id = s.order_id"
        " AND s.ts BETWEEN o.ts - INTERVAL '10' SECOND AND o.ts + INTERVAL '1' MINUTE",
    ),
    "as_of": (
        "o BIGINT, c BIGINT",
        "SELECT o.order_id, c.click_id FROM orders AS o LEFT JOIN last_click FOR SYSTEM_TIME AS OF o.ts AS c ON o.user_id = c.user_id",
    ),
    "shipped": ("o BIGINT", "SELECT order_id FROM orders WHERE order_id IN (SELECT order_id FROM shipments)"),
    "waiting": (
        "o BIGINT",
        "SELECT order_id FROM orders AS o WHERE NOT EXISTS (SELECT 1 FROM shipments AS s WHERE s.order_id = o.order_id)",
    ),
    "by_count": (
        "n BIGINT, users BIGINT",
        "SELECT n, COUNT(DISTINCT u) FROM (SELECT user_id AS u, COUNT(*) AS n FROM orders GROUP BY user_id) GROUP BY n",
    ),
    "unshipped": ("o BIGINT", "SELECT order_id FROM orders EXCEPT SELECT order_id FROM shipments"),
    "lately": (
        "o BIGINT, a DOUBLE, before BIGINT",
        "SELECT order_id, MAX(amount) OVER (PARTITION BY user_id ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW),"
        " LAG(order_id) OVER (PARTITION BY user_id ORDER BY ts) FROM orders",
    ),
    "matched": (
        "u STRING, f BIGINT, l BIGINT, n BIGINT",
        "SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY user_id ORDER BY ts MEASURES FIRST(A.order_id) AS f, B.order_id AS l,"
        " COUNT(A.amount) AS n ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS A.amount < 20,"
        " B AS B.amount >= 20)",
    ),
    "kept": (
        "u STRING, n BIGINT",
        "SELECT COALESCE(user_id, '-'), COUNT(*) FROM orders GROUP BY user_id ON CONFLICT DO ERROR",
    ),
    "first": (
        "u STRING, n BIGINT",
        "SELECT COALESCE(user_id, '-'), COUNT(*) FROM orders GROUP BY user_id ON CONFLICT DO NOTHING",
    ),
    "running": (
        "o BIGINT, a DOUBLE",
        "SELECT order_id, SUM(amount) OVER (PARTITION BY user_id ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM orders",
    ),
}  # fmt: skip
"""Sink → its columns, and the query that fills it."""
KEY = ", PRIMARY KEY (u) NOT ENFORCED"


def script(path: Path, names: list[str]) -> Path:
    sinks = "".join(
        f"CREATE TABLE {name} ({STATEMENTS[name][0]}{KEY if 'ON CONFLICT' in STATEMENTS[name][1] else ''}) WITH"
        f" ('connector'='filesystem', 'path'='${{OUT}}/{name}', 'format'='debezium-json');\n"
        for name in names
    )
    inserts = "".join(f"INSERT INTO {name} {STATEMENTS[name][1]};\n" for name in names)
    path.write_text(f"{TABLES}{sinks}EXECUTE STATEMENT SET BEGIN\n{inserts}END;\n")
    return path


def compiled(path: Path, out: Path, parallelism: int, batch_rows: int = 40) -> CompiledPipeline:
    overrides = {
        "settings.parallelism": str(parallelism),
        "settings.batch_rows": str(batch_rows),
        "settings.max_parallelism": "12",
    }
    return compile_pipeline(path, {"DATA": str(DATA), "OUT": str(out)}, overrides)


def backfilled(
    pipeline: CompiledPipeline, spark: SparkSession, until_ms: int, folder: Path
) -> tuple[dict[str, Counter[str]], SavepointWritten]:
    """Rows by sink, and the savepoint."""
    hand_over = leave_savepoint(pipeline, spark, until_ms, str(folder), now_ms=NOW_MS)
    rows = {}
    for sink, frame in hand_over.outputs:
        table = from_spark(frame.data.select(*frame.columns), frame.schema)
        rows[sink.table.name] = Counter(json.dumps(plain(list(row.values()))) for row in table.to_pylist())
    return rows, hand_over.finish()


def columns_of(name: str) -> list[str]:
    return [c.split()[0] for c in STATEMENTS[name][0].split(", ")]


def changes(folder: Path, columns: list[str]) -> Counter[str]:
    """What the changes in the files of a sink add up to; negative where they take back what somebody else wrote."""
    rows: Counter[str] = Counter()
    for file in folder.rglob("*"):
        if file.is_file() and file.name[0] not in "._":
            for line in file.read_text().splitlines():
                change = json.loads(line)
                is_change = {"op", "before", "after"} <= change.keys()
                for row, weight in ((change["before"], -1), (change["after"], 1)) if is_change else ((change, 1),):
                    if row is not None:
                        rows[json.dumps(plain([row.get(c) for c in columns]))] += weight
    return rows


def together(counted: Counter[str], added: Counter[str]) -> Counter[str]:
    both = Counter(counted)
    for row, weight in added.items():
        both[row] += weight
    return Counter({row: n for row, n in both.items() if n})


def test_backfill_and_resumed_stream_are_one_stream(spark: SparkSession, tmp_path: Path) -> None:
    names = list(STATEMENTS)
    path = script(tmp_path / "job.sql", names)
    run_embedded(compiled(path, tmp_path / "whole", 1).job_graph)
    counted, savepoint = backfilled(compiled(path, tmp_path / "none", 2), spark, UNTIL_MS, tmp_path / "savepoints")
    assert savepoint.bytes > 0
    run_embedded(
        compiled(path, tmp_path / "rest", 3).job_graph,
        state=JobStateOptions(str(tmp_path / "state"), restore_from=savepoint.path),
    )
    differing = {}
    for name in names:
        expected = folded(tmp_path / "whole" / name, columns_of(name))
        added = changes(tmp_path / "rest" / name, columns_of(name))
        assert counted[name], f"the backfill counted nothing for {name}"
        assert added, f"the stream added nothing to {name}"
        got = together(counted[name], added)
        if got != expected:
            differing[name] = {"missing": expected - got, "too many": got - expected}
    assert not differing


PROCESS = """
name: buckets
settings: {max_parallelism: 12, batch_rows: 20, functions: [tests]}
sources:
  orders:
    connector: filesystem
    path: ${DATA}/orders.json
    format: json
    schema: {user_id: STRING, quantity: INT, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  named: {from: orders, select: [user_id AS k, quantity AS v, ts]}
  doubled:
    from: named
    map: {function: tests.spark.hosted_functions:doubled, schema: {k: STRING, v: INT, ts: TIMESTAMP(3)}}
  counted:
    from: doubled
    key_by: [k]
    null_keys: drop
    process:
      function: tests.spark.hosted_functions:Buckets
      with: {size_ms: 60000}
      schema: {k: STRING, until: BIGINT, n: BIGINT}
      side_outputs: {great: {k: STRING, until: BIGINT, n: BIGINT}}
  visits:
    from: doubled
    key_by: [k]
    null_keys: drop
    process:
      function: tests.spark.hosted_functions:Visits
      with: {size_ms: 30000}
      schema: {k: STRING, until: BIGINT, n: BIGINT}
sinks:
  counts: {from: counted, connector: filesystem, path: "${OUT}/counts", format: json}
  visits: {from: visits, connector: filesystem, path: "${OUT}/visits", format: json}
  great: {from: great, connector: filesystem, path: "${OUT}/great", format: json}
"""


HOUR_MS = 3_600_000


@pytest.mark.parametrize("until_ms", [UNTIL_MS, UNTIL_MS + 6_000, UNTIL_MS - HOUR_MS, UNTIL_MS + HOUR_MS])
def test_process_functions_keep_their_state_and_timers(until_ms: int, spark: SparkSession, tmp_path: Path) -> None:
    """Up to the middle of a bucket, to the end of one, before the first row, and behind the last one."""
    path = tmp_path / "job.yaml"
    path.write_text(PROCESS)

    def pipeline(parallelism: int, out: str) -> CompiledPipeline:
        return compile_pipeline(
            path, {"DATA": str(DATA), "OUT": str(tmp_path / out)}, {"settings.parallelism": str(parallelism)}
        )

    run_embedded(pipeline(1, "whole").job_graph)
    counted, savepoint = backfilled(pipeline(2, "none"), spark, until_ms, tmp_path / "savepoints")
    state = JobStateOptions(str(tmp_path / "state"), restore_from=savepoint.path)
    run_embedded(pipeline(3, "rest").job_graph, state=state)
    columns = ["k", "until", "n"]
    for name in ("counts", "great", "visits"):
        added = changes(tmp_path / "rest" / name, columns)
        assert bool(counted[name]) is (until_ms >= UNTIL_MS)
        assert bool(added) is (until_ms < UNTIL_MS + HOUR_MS)
        assert together(counted[name], added) == folded(tmp_path / "whole" / name, columns)


def test_rows_that_a_sink_keeps_by_key_are_part_of_the_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        f"{TABLES}CREATE TABLE counts (u STRING, n BIGINT, PRIMARY KEY (u) NOT ENFORCED) WITH"
        " ('connector'='filesystem', 'path'='${OUT}/counts', 'format'='json');\n"
        "INSERT INTO counts SELECT user_id, COUNT(*) FROM orders WHERE user_id IS NOT NULL GROUP BY user_id;"
    )
    run_embedded(compiled(path, tmp_path / "whole", 1).job_graph)
    counted, savepoint = backfilled(compiled(path, tmp_path / "none", 2), spark, UNTIL_MS, tmp_path / "savepoints")
    state = JobStateOptions(str(tmp_path / "state"), restore_from=savepoint.path)
    run_embedded(compiled(path, tmp_path / "rest", 1).job_graph, state=state)
    whole = folded(tmp_path / "whole" / "counts", ["u", "n"])
    assert len(counted["counts"]) == len(whole)
    assert folded(tmp_path / "rest" / "counts", ["u", "n"]) == whole


def test_files_of_the_backfill_are_not_read_again_and_those_that_came_since_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = (DATA / "orders.json").read_text().splitlines(keepends=True)
    for number in range(3):
        (folder / f"{number}.json").write_text("".join(lines[number * 30 : number * 30 + 30]))
    path = tmp_path / "job.sql"
    path.write_text(
        f"{TABLES.replace('${DATA}/orders.json', str(folder))}CREATE TABLE copied (o BIGINT) WITH"
        " ('connector'='filesystem', 'path'='${OUT}', 'format'='json');\nINSERT INTO copied SELECT order_id FROM orders;"
    )
    counted, savepoint = backfilled(compiled(path, tmp_path / "none", 2), spark, UNTIL_MS, tmp_path / "savepoints")
    (folder / "0 new.json").write_text("".join(lines[90:]))
    state = JobStateOptions(str(tmp_path / "state"), restore_from=savepoint.path)
    run_embedded(compiled(path, tmp_path / "rest", 3).job_graph, state=state)
    added = changes(tmp_path / "rest", ["o"])
    assert counted["copied"]
    assert sum(added.values()) > len(lines) - 90, "rows from the middle of the time on, and the new file"
    assert counted["copied"] + added == Counter(json.dumps(plain([json.loads(line)["order_id"]])) for line in lines)


@pytest.mark.parametrize(
    ("reached", "behind_all"), [([7, 5], 5), ([7, None], None), ([None, 7], None), ([None], None), ([], None)]
)
def test_event_time_does_not_pass_a_producer_that_said_nothing(
    reached: list[int | None], behind_all: int | None
) -> None:
    assert _least(reached) == behind_all


def test_a_job_that_fails_leaves_no_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        f"{TABLES}CREATE TABLE numbers (p INT) WITH ('connector'='blackhole');\n"
        "INSERT INTO numbers SELECT CAST(product AS INT) FROM orders;"
    )
    with pytest.raises(Exception, match="operator '") as caught:
        leave_savepoint(compiled(path, tmp_path, 2), spark, UNTIL_MS, str(tmp_path / "savepoints"), now_ms=NOW_MS)
    error = job_failure(caught.value, "backfill")
    assert "operator '" in error.message
    assert "subtask" in error.message
    assert not list((tmp_path / "savepoints").iterdir())


def test_a_source_without_end_and_event_time_cannot_be_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector'='datagen');\n"
        "CREATE TABLE out (n BIGINT) WITH ('connector'='blackhole');\nINSERT INTO out SELECT n FROM numbers;"
    )
    with pytest.raises(UnsupportedPlanError, match="no end and no event time"):
        leave_savepoint(compiled(path, tmp_path, 1), None, UNTIL_MS, str(tmp_path), now_ms=NOW_MS)  # type: ignore[arg-type]
