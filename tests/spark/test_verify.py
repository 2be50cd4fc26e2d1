"""`flowrun verify`: both engines over the same input, and what is said where they differ. Ranges are cut exactly."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.verify import Verification, verify
from flowrun.spark.context import ALL_TIME, TimeRange
from flowrun.spark.session import SparkOptions
from tests.end_to_end.conftest import Command

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MINUTE = 60_000
BEGIN = int(START.timestamp() * 1000)


def moment(second: float) -> str:
    return (START + dt.timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of orders and payments, in disorder, and a list of users without time."""
    folder = tmp_path_factory.mktemp("shop")
    chance = random.Random(5)
    for name, count in (("orders", 160), ("payments", 120)):
        times = sorted(chance.randrange(0, 600_000, 500) / 1000 for _ in range(count))
        rows = [
            {"id": i, "user": chance.choice("abcde"), "amount": chance.choice([None, 1, 2, 5.5]), "ts": moment(t)}
            for i, t in enumerate(times)
        ]
        late = [t + 15 * chance.random() for t in times]
        rows = [row for _, row in sorted(zip(late, rows, strict=True), key=lambda pair: pair[0])]
        folder.joinpath(f"{name}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    users = [{"user": u, "country": c} for u, c in zip("abcd", "XYXY", strict=True)]
    folder.joinpath("users.json").write_text("".join(json.dumps(u) + "\n" for u in users))
    return folder


TABLES = """
CREATE TABLE orders (id BIGINT, `user` STRING, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
  WITH ('connector'='filesystem', 'path'='${SHOP}/orders.json', 'format'='json');
CREATE TABLE payments (id BIGINT, `user` STRING, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
  WITH ('connector'='filesystem', 'path'='${SHOP}/payments.json', 'format'='json');
CREATE TABLE users (`user` STRING, country STRING) WITH ('connector'='filesystem', 'path'='${SHOP}/users.json', 'format'='json');
"""
QUERIES = {
    "passing": "SELECT id, amount * 2 AS a, ts FROM orders WHERE `user` <> 'a'",
    "tumbling": "SELECT `user`, window_end, SUM(amount) AS s, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), "
    "INTERVAL '40' SECOND) GROUP BY `user`, window_start, window_end",
    "sliding": "SELECT window_start, window_end, AVG(amount) AS m FROM HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND, "
    "INTERVAL '90' SECOND, INTERVAL '5' SECOND) GROUP BY window_start, window_end",
    "cumulating": "SELECT window_start, window_end, COUNT(*) AS n FROM CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '20' SECOND, "
    "INTERVAL '120' SECOND) GROUP BY window_start, window_end",
    "sessions": "SELECT `user`, window_start, window_end, COUNT(*) AS n FROM SESSION(TABLE orders PARTITION BY `user`, DESCRIPTOR(ts), "
    "INTERVAL '15' SECOND) GROUP BY `user`, window_start, window_end",
    "session_rows": "SELECT id, window_end FROM SESSION(TABLE orders PARTITION BY `user`, DESCRIPTOR(ts), INTERVAL '15' SECOND)",
    "cascade": "SELECT TUMBLE_END(wt, INTERVAL '40' SECOND) AS e, SUM(n) AS n FROM "
    "(SELECT window_time AS wt, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), "
    "INTERVAL '10' SECOND) GROUP BY window_start, window_end, window_time) AS w "
    "GROUP BY TUMBLE(wt, INTERVAL '40' SECOND)",
    "window_top": "SELECT id, window_end FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY id) AS r "
    "FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '45' SECOND)) WHERE r <= 2",
    "over_range": "SELECT id, SUM(amount) OVER (PARTITION BY `user` ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND "
    "CURRENT ROW) AS s FROM orders",
    "over_rows": "SELECT id, COUNT(*) OVER (PARTITION BY `user` ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n FROM orders",
    "window_join": "SELECT o.id, p.id AS pid, o.window_end FROM (SELECT * FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '25' SECOND)) "
    "AS o LEFT JOIN (SELECT * FROM TUMBLE(TABLE payments, DESCRIPTOR(ts), INTERVAL '25' SECOND)) AS p "
    "ON o.`user` = p.`user` AND o.window_start = p.window_start AND o.window_end = p.window_end",
    "pairs": "SELECT o.id, p.id AS pid FROM orders AS o JOIN payments AS p ON o.`user` = p.`user` AND p.ts BETWEEN "
    "o.ts - INTERVAL '5' SECOND AND o.ts + INTERVAL '20' SECOND",
    "unpaid": "SELECT o.id, p.id AS pid FROM orders AS o FULL JOIN payments AS p ON o.`user` = p.`user` AND p.ts BETWEEN "
    "o.ts AND o.ts + INTERVAL '10' SECOND",
    "counted_pairs": "SELECT window_end, COUNT(*) AS n FROM TUMBLE(DATA => (SELECT o.ts AS ts FROM orders AS o JOIN payments AS p "
    "ON o.`user` = p.`user` AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '20' SECOND), TIMECOL => DESCRIPTOR(ts), "
    "SIZE => INTERVAL '40' SECOND) GROUP BY window_start, window_end",
    "first": "SELECT id, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `user`, amount ORDER BY ts) AS r FROM orders) WHERE r = 1",
    "last": "SELECT id, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY ts DESC) AS r FROM orders) WHERE r = 1",
    "groups": "SELECT `user`, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY `user`",
    "top": "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 5",
    "joined": "SELECT o.id, u.country FROM orders AS o LEFT JOIN users AS u ON o.`user` = u.`user`",
    "as_of": "SELECT o.id, p.id AS pid FROM orders AS o LEFT JOIN latest FOR SYSTEM_TIME AS OF o.ts AS p ON o.`user` = p.`user`",
}
VIEW = """CREATE TEMPORARY VIEW latest AS SELECT id, `user`, ts FROM
  (SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY ts DESC) AS r FROM payments) WHERE r = 1;"""


def script(folder: Path, queries: dict[str, str]) -> Path:
    """A script that shows the rows of each query."""
    path = folder / "script.sql"
    path.write_text(TABLES + VIEW + ";\n".join(queries.values()))
    return path


def verified(shop: Path, tmp_path: Path, queries: dict[str, str], period: TimeRange = ALL_TIME) -> Verification:
    compiled = compile_pipeline(script(tmp_path, queries), {"SHOP": str(shop)}, {})
    return verify(compiled, SparkOptions(), period=period)


def different(result: Verification, queries: dict[str, str]) -> dict[str, Any]:
    return {name: sink for name, sink in zip(queries, result.sinks, strict=True) if not sink.equal}


RANGES = [TimeRange(BEGIN + 2 * MINUTE, BEGIN + 6 * MINUTE), TimeRange(None, BEGIN + 5 * MINUTE + 7_250)]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("period", RANGES, ids=str)
def test_a_range_has_the_rows_of_the_stream(period: TimeRange, shop: Path, tmp_path: Path) -> None:
    result = verified(shop, tmp_path, QUERIES, period)
    assert (different(result, QUERIES), result.late) == ({}, {})
    assert all(sink.stream_rows for sink in result.sinks)


OPEN = "TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '40' SECOND)"
COUNTED_AFTERWARDS = {
    "groups": f"SELECT `user`, SUM(n) AS n FROM (SELECT `user`, COUNT(*) AS n FROM {OPEN} GROUP BY `user`, window_start, window_end) "
    "GROUP BY `user`",
    "cascade": f"SELECT COUNT(*) AS n FROM ({QUERIES['cascade']})",
    "cumulating": f"SELECT n, COUNT(*) AS times FROM ({QUERIES['cumulating']}) GROUP BY n",
    "sessions": f"SELECT MAX(n) AS n, COUNT(*) AS times FROM ({QUERIES['sessions']})",
    "joined": f"SELECT w.e, u.country FROM (SELECT `user`, window_end AS e FROM {OPEN} GROUP BY `user`, window_start, window_end) AS w "
    "LEFT JOIN users AS u ON w.`user` = u.`user`",
    "top": f"SELECT * FROM ({QUERIES['tumbling']}) ORDER BY n DESC, window_end DESC, `user` LIMIT 3",
    "unpaid": f"SELECT COUNT(*) AS n, COUNT(pid) AS paid FROM ({QUERIES['unpaid']})",
    "window_join": f"SELECT pid, COUNT(*) AS n FROM ({QUERIES['window_join']}) GROUP BY pid",
    "with_timeless": f"SELECT `user` FROM ({QUERIES['tumbling']}) UNION ALL SELECT `user` FROM users",
}


@pytest.mark.usefixtures("spark")
def test_windows_that_are_open_at_the_end_of_a_range_are_not_counted_yet(shop: Path, tmp_path: Path) -> None:
    result = verified(shop, tmp_path, COUNTED_AFTERWARDS, TimeRange(BEGIN, BEGIN + 5 * MINUTE + 7_250))
    assert (different(result, COUNTED_AFTERWARDS), result.late) == ({}, {})


@pytest.mark.usefixtures("spark")
def test_a_range_of_a_table_of_changes_is_what_they_come_to_at_its_end(shop: Path, tmp_path: Path) -> None:
    def version(user: str, limit: int, second: float) -> dict[str, Any]:
        return {"user": user, "limit": limit, "ts": moment(second)}

    current = {user: version(user, 1, 5) for user in "abc"}
    changes: list[dict[str, Any]] = [{"op": "c", "before": None, "after": row} for row in current.values()]
    for i, user in enumerate("ababc"):
        changed = version(user, current[user]["limit"] + 1, 100 * (i + 1))
        changes.append({"op": "u", "before": current[user], "after": changed})
        current[user] = changed
    # its time is the newest one: a deletion behind the watermark would meet the orders in any order
    changes.append({"op": "d", "before": current["c"], "after": None})
    shop.joinpath("limits.json").write_text("".join(json.dumps(c) + "\n" for c in changes))
    table = """CREATE TABLE limits (`user` STRING, `limit` INT, ts TIMESTAMP(3), PRIMARY KEY (`user`) NOT ENFORCED, WATERMARK FOR ts AS ts)
      WITH ('connector'='filesystem', 'path'='${SHOP}/limits.json', 'format'='debezium-json');"""
    queries = {
        "table": f"{table} SELECT * FROM limits",
        "as_of": "SELECT o.id, l.`limit` FROM orders AS o LEFT JOIN limits FOR SYSTEM_TIME AS OF o.ts AS l ON o.`user` = l.`user`",
    }
    for period in (TimeRange(BEGIN + 150_000, BEGIN + 250_000), TimeRange(BEGIN, BEGIN + 450_000)):
        assert different(verified(shop, tmp_path, queries, period), queries) == {}


# ---- the command

COUNTS = """
name: counts
settings: {checkpoint: {interval: 1s, dir: "${OUT}/state"}}
sources:
  orders:
    connector: filesystem
    path: ${SHOP}/${FILE:-orders.json}
    format: json
    schema: {id: BIGINT, user: STRING, amount: DOUBLE, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 20s}
steps:
  counts: {from: orders, key_by: [user], window: {type: tumbling, size: 1m}, aggregate: ["COUNT(*) AS n"]}
sinks:
  out: {from: counts, connector: filesystem, path: "${OUT}/counts", format: json}
  rows: {from: orders, connector: print}
"""


@pytest.fixture
def counts(tmp_path: Path, shop: Path) -> list[str]:
    """Arguments that name a pipeline, and where it would write."""
    file = tmp_path / "counts.yaml"
    file.write_text(COUNTS)
    return [str(file), "--var", f"SHOP={shop}", "--var", f"OUT={tmp_path / 'out'}"]


@pytest.mark.everyday
@pytest.mark.usefixtures("spark")
def test_equal_rows_end_with_zero_and_nothing_is_written(
    flowrun: Command,
    counts: list[str],
    tmp_path: Path,
) -> None:
    ran = flowrun("verify", *counts)
    assert ran.code == 0, ran.err
    assert [line.split() for line in ran.out.splitlines()] == [
        ["sink", "stream", "Spark", "only", "stream", "only", "Spark"],
        ["out", "47", "47", "0", "0", "equal"],
        ["rows", "160", "160", "0", "0", "equal"],
    ]
    assert "the stream ran for" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("spark")
def test_a_late_row_is_a_difference_with_its_cause(
    flowrun: Command,
    counts: list[str],
    shop: Path,
) -> None:
    late = json.dumps({"id": 999, "user": "late", "amount": 1, "ts": moment(3)})
    shop.joinpath("late.json").write_text(shop.joinpath("orders.json").read_text() + late + "\n")
    ran = flowrun("verify", *counts, "--var", "FILE=late.json", "-q", "--set", "settings.batch_rows=10")
    assert ran.code == 1
    assert "counts: the stream took 1 row for late; on Spark nothing is late" in ran.err
    assert "DIFFERENT" in ran.out
    assert [line.split() for line in ran.out.splitlines()[-2:]] == [
        ["only", "user", "window_start", "window_end", "n"],
        ["Spark", "late", "2024-01-01", "00:00:00.000", "2024-01-01", "00:01:00.000", "1"],
    ]
    said = json.loads(
        flowrun("verify", *counts, "--var", "FILE=late.json", "-q", "--format", "json", "--sample", 0).out
    )
    assert (said["equal"], said["sinks"][0]["only_spark"], said["sinks"][0]["sample"]) == (False, 1, [])
    assert said["sinks"][1]["equal"]
    whole_minutes = ["--from", "2024-01-01T00:01", "--to", "2024-01-01T00:05Z"]
    assert flowrun("verify", *counts, "--var", "FILE=late.json", "-q", *whole_minutes).code == 0


def test_what_never_ends_cannot_be_verified(flowrun: Command, tmp_path: Path) -> None:
    file = tmp_path / "endless.sql"
    file.write_text("CREATE TABLE t (a INT) WITH ('connector'='datagen'); SELECT * FROM t")
    ran = flowrun("verify", file)
    assert ran.code == 2
    assert "source 't' has no end" in ran.err
