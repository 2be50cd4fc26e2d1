"""Joins on Spark end with the rows that the stream's joins end with."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowrun.errors import UnsupportedPlanError
from flowrun.plan.nodes import walk_plan
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.verify import verify
from flowrun.spark.session import SparkOptions
from tests.end_to_end.running import json_rows
from tests.spark.plans import Table, assert_same, spark_results, sql_plan, translate_shuffled
from tests.spark.shuffled import BATCH, run_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = dt.datetime(2024, 1, 1)
DISORDER_S = 8
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def _rows(count: int, seed: int, keys: str = "aabbcd") -> list[tuple[Any, ...]]:
    """Rows with NULLs, repeated keys and times, and disorder within the watermark; each has an `id` of its own."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(0, 60_000, 500) for _ in range(count))
    at = [START + dt.timedelta(milliseconds=t) for t in times]
    rows = [
        (i, chance.choice([*keys, None]), chance.choice([None, *range(5)]), chance.choice("xyz"), t)
        for i, t in enumerate(at)
    ]
    return sorted(rows, key=lambda r: r[4] + dt.timedelta(seconds=chance.random() * DISORDER_S))


COLUMNS = f"id INT, k STRING, v INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '{DISORDER_S}' SECOND"
LEFT = Table("l", COLUMNS, _rows(40, 1), batch=7)
RIGHT = Table("r", COLUMNS, _rows(40, 2, "aabbce"), batch=5)
NONE = Table("nothing", COLUMNS, [])


def each_kind(text: str, kinds: tuple[str, ...] = KINDS) -> str:
    return ";\n".join(text.format(kind) for kind in kinds)


# ---- regular joins


def test_regular_joins_of_all_kinds(spark: SparkSession) -> None:
    results = assert_same(
        spark,
        [LEFT, RIGHT, NONE],
        each_kind("SELECT l.id, l.k, r.id, r.s, r.ts FROM l {} r ON l.k = r.k AND l.v = r.v")
        + ";"
        + each_kind("SELECT l.id, r.id FROM l {} r ON l.k = r.k AND l.v < r.v AND l.s <> 'x'")
        + ";"
        + each_kind("SELECT l.id, n.id FROM l {} nothing AS n ON l.k = n.k", KINDS[:2]),
    )
    assert all(results[:8])


def test_keys_that_are_null_match_only_where_null_equals_null(spark: SparkSession) -> None:
    plain, safe, mixed = assert_same(
        spark,
        [LEFT, RIGHT],
        """
        SELECT l.id, r.id FROM l JOIN r ON l.k = r.k;
        SELECT l.id, r.id FROM l JOIN r ON l.k IS NOT DISTINCT FROM r.k;
        SELECT l.id, r.id FROM l LEFT JOIN r ON l.k IS NOT DISTINCT FROM r.k AND l.v = r.v
        """,
    )
    assert len(safe) > len(plain)
    assert mixed


def test_joins_without_keys(spark: SparkSession) -> None:
    assert_same(
        spark,
        [LEFT, RIGHT],
        """
        SELECT l.id, r.id FROM l CROSS JOIN (SELECT id FROM r WHERE v = 4) AS r;
        SELECT l.id, r.id FROM l LEFT JOIN r ON l.id > r.id + 30;
        SELECT l.id, r.id FROM l FULL JOIN r ON l.ts = r.ts AND l.id < 20 AND r.id < 20
        """,
    )


def test_membership(spark: SparkSession) -> None:
    assert_same(
        spark,
        [LEFT, RIGHT, NONE],
        """
        SELECT id FROM l WHERE k IN (SELECT k FROM r WHERE v > 2);
        SELECT id FROM l WHERE k NOT IN (SELECT k FROM r WHERE v > 2);
        SELECT id FROM l WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL AND v > 3);
        SELECT id FROM l WHERE k NOT IN (SELECT k FROM nothing);
        SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.v > l.v);
        SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.v > l.v);
        SELECT id FROM l WHERE (k, v) IN (SELECT k, v FROM r)
        """,
    )


def test_joins_of_tables_that_change(spark: SparkSession) -> None:
    assert_same(
        spark,
        [LEFT, RIGHT],
        """
        SELECT l.id, n.c FROM l LEFT JOIN (SELECT k, COUNT(*) AS c FROM r GROUP BY k) AS n ON l.k = n.k;
        SELECT a.k, a.c, b.c FROM (SELECT k, COUNT(*) AS c FROM l GROUP BY k) AS a
          FULL JOIN (SELECT k, SUM(v) AS c FROM r GROUP BY k) AS b ON a.k = b.k;
        SELECT l.id, o.id, r.id FROM l JOIN l AS o ON l.k = o.k AND l.id < o.id LEFT JOIN r ON o.v = r.v AND r.s = 'x'
        """,
    )


# ---- window joins

WINDOWS = (
    "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '7' SECOND)",
    "HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
)


@pytest.mark.parametrize("window", WINDOWS)
def test_window_joins_of_all_kinds(window: str, spark: SparkSession) -> None:
    sides = [f"(SELECT * FROM {window.format(side)})" for side in "lr"]
    on = "l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
    results = assert_same(
        spark,
        [LEFT, RIGHT],
        each_kind(f"SELECT l.id, r.id, l.window_start, r.window_end FROM {sides[0]} AS l {{}} {sides[1]} AS r ON {on}")
        + f"""; SELECT l.id, r.id, l.window_time FROM {sides[0]} AS l LEFT JOIN {sides[1]} AS r ON {on} AND l.v < r.v;
        SELECT l.id FROM {sides[0]} AS l WHERE EXISTS (SELECT 1 FROM {sides[1]} AS r WHERE {on});
        SELECT l.id FROM {sides[0]} AS l WHERE NOT EXISTS (SELECT 1 FROM {sides[1]} AS r WHERE {on})
        """,
    )
    assert all(results)


def test_windows_of_aggregates_are_joined(spark: SparkSession) -> None:
    counted = """(SELECT window_start, window_end, k, COUNT(*) AS c FROM TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND)
        GROUP BY window_start, window_end, k)"""
    assert_same(
        spark,
        [LEFT, RIGHT],
        f"""SELECT l.k, l.c, r.c, l.window_end FROM {counted.format("l")} AS l FULL JOIN {counted.format("r")} AS r
        ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end""",
    )


# ---- interval joins

INTERVALS = ((0, 5_000), (-3_000, 3_000), (-8_000, -2_000), (500, 500), (0, 0), (2_000, 9_000))


@pytest.mark.parametrize("kind", KINDS)
def test_interval_joins(kind: str, spark: SparkSession) -> None:
    queries = [
        f"SELECT l.id, r.id, l.ts, r.ts FROM l {kind} r ON l.k = r.k AND r.ts >= l.ts + INTERVAL '{low / 1000:.3f}' SECOND(3) "
        f"AND r.ts <= l.ts + INTERVAL '{high / 1000:.3f}' SECOND(3)"
        for low, high in INTERVALS
    ]
    queries += [
        f"SELECT l.id, r.id FROM l {kind} r ON l.k = r.k AND r.ts > l.ts AND r.ts < l.ts + INTERVAL '3' SECOND AND l.v <> r.v",
        f"SELECT l.id, r.id FROM l {kind} r ON r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' SECOND",
    ]
    assert all(assert_same(spark, [LEFT, RIGHT], ";".join(queries)))


def test_what_follows_an_interval_join_has_its_times(spark: SparkSession) -> None:
    view = """CREATE TEMPORARY VIEW both_sides AS SELECT l.id AS id, l.k AS k, l.ts AS lt, r.ts AS rt FROM l JOIN r
        ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '2' SECOND AND l.ts + INTERVAL '2' SECOND;"""
    windows = """SELECT window_end, COUNT(*) FROM TUMBLE(TABLE both_sides, DESCRIPTOR({}), INTERVAL '5' SECOND)
        GROUP BY window_start, window_end"""
    assert_same(spark, [LEFT, RIGHT], f"{view} {windows.format('lt')}; {windows.format('rt')}")


# ---- temporal joins

VERSIONS = Table(
    "rates",
    COLUMNS.replace("WATERMARK", "PRIMARY KEY (k) NOT ENFORCED, WATERMARK"),
    [r for r in _rows(30, 3) if r[1] is not None],
)
LATEST = """CREATE TEMPORARY VIEW latest AS SELECT id, k, v, s, ts FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM r WHERE k IS NOT NULL) WHERE n = 1;"""


def test_versions_of_a_view_that_keeps_the_last_row(spark: SparkSession) -> None:
    results = assert_same(
        spark,
        [LEFT, RIGHT],
        LATEST
        + """
        SELECT l.id, l.ts, latest.id, latest.v FROM l JOIN latest FOR SYSTEM_TIME AS OF l.ts ON l.k = latest.k;
        SELECT l.id, l.ts, latest.id, latest.v FROM l LEFT JOIN latest FOR SYSTEM_TIME AS OF l.ts ON l.k = latest.k;
        SELECT l.id, latest.id FROM l LEFT JOIN latest FOR SYSTEM_TIME AS OF l.ts ON l.k = latest.k AND l.v < latest.v
        """,
    )
    assert all(results)


def test_a_filter_above_such_a_view_ends_versions(spark: SparkSession) -> None:
    seconds = [(1, 5), (4, 7), (6, 1), (8, 9)]
    versions = Table(
        "r", COLUMNS, [(i, "a", v, "x", START + dt.timedelta(seconds=s)) for i, (s, v) in enumerate(seconds)]
    )
    asking = Table("l", COLUMNS, [(i, "a", 0, "x", START + dt.timedelta(seconds=i)) for i in range(10)])
    plan = sql_plan(
        [asking, versions],
        LATEST
        + """CREATE TEMPORARY VIEW dear AS SELECT k, v * 10 AS v, ts FROM latest WHERE v > 3;
        SELECT l.id, dear.v FROM l LEFT JOIN dear FOR SYSTEM_TIME AS OF l.ts ON l.k = dear.k""",
    )
    (found,) = spark_results(spark, plan, times=False)
    assert dict(found.rows) == dict.fromkeys(enumerate([None, 50, 50, 50, 70, 70, None, None, 90, 90]), 1)


def test_versions_of_results_of_windows(spark: SparkSession) -> None:
    assert_same(
        spark,
        [LEFT, RIGHT],
        """CREATE TEMPORARY VIEW counts AS SELECT k, c, ts FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM (
            SELECT k, window_time AS ts, COUNT(*) AS c FROM TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '5' SECOND)
            GROUP BY k, window_start, window_end, window_time)) WHERE n = 1;
        SELECT l.id, counts.c, counts.ts FROM l LEFT JOIN counts FOR SYSTEM_TIME AS OF l.ts ON l.k = counts.k""",
    )


def test_versions_of_a_table_with_a_primary_key(spark: SparkSession) -> None:
    assert_same(
        spark,
        [LEFT, VERSIONS],
        """
        SELECT l.id, rates.id, rates.ts FROM l JOIN rates FOR SYSTEM_TIME AS OF l.ts ON l.k = rates.k;
        SELECT l.id, rates.id FROM l LEFT JOIN rates FOR SYSTEM_TIME AS OF l.ts ON l.k = rates.k
        """,
    )


def test_of_versions_of_the_same_time_the_last_counts(spark: SparkSession) -> None:
    at = [START + dt.timedelta(seconds=s) for s in (1, 1, 1, 5, 5, 9)]
    versions = Table("rates", VERSIONS.columns, [(i, "a", i, "x", t) for i, t in enumerate(at)], batch=1)
    asking = Table("l", COLUMNS, [(i, "a", 0, "x", START + dt.timedelta(seconds=i)) for i in range(12)])
    assert_same(
        spark,
        [asking, versions],
        "SELECT l.id, rates.id FROM l LEFT JOIN rates FOR SYSTEM_TIME AS OF l.ts ON l.k = rates.k",
    )


def test_a_temporal_join_by_a_time_that_is_not_that_of_the_rows(spark: SparkSession) -> None:
    view = """CREATE TEMPORARY VIEW pairs AS SELECT l.id AS id, r.id AS other, l.k AS k, l.ts AS lt FROM l JOIN r
        ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '4' SECOND;"""
    assert_same(
        spark,
        [LEFT, RIGHT, VERSIONS],
        view
        + "SELECT p.id, p.other, rates.id FROM pairs AS p LEFT JOIN rates FOR SYSTEM_TIME AS OF p.lt ON p.k = rates.k",
    )


# ---- tables of changes and lookups, which live in files


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    return path


def table(name: str, columns: str, path: Path, form: str = "json") -> str:
    return f"CREATE TABLE {name} ({columns}) WITH ('connector'='filesystem', 'path'='{path}', 'format'='{form}');"


def as_json(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "k", "v", "s", "ts"), row, strict=True)) for row in rows]


def assert_verified(script: str, folder: Path) -> dict[str, int]:
    """Both engines give the same rows; gives how many, by sink."""
    path = folder / "script.sql"
    path.write_text(script)
    result = verify(compile_pipeline(path, {}, {}), SparkOptions())
    assert result.equal, result.sinks
    return {s.name: s.stream_rows for s in result.sinks}


@pytest.mark.usefixtures("spark")
def test_versions_of_a_table_of_changes(tmp_path: Path) -> None:
    def version(k: str, v: int, second: int) -> dict[str, Any]:
        return {"k": k, "v": v, "ts": START + dt.timedelta(seconds=second)}

    changes = [
        {"op": "c", "before": None, "after": version("a", 1, 2)},
        {"op": "c", "before": None, "after": version("b", 2, 3)},
        {"op": "u", "before": version("a", 1, 2), "after": version("a", 3, 10)},
        {"op": "u", "before": version("a", 3, 10), "after": version("a", 4, 10)},
        {"op": "u", "before": version("b", 2, 3), "after": version("b", 5, 20)},
        {"op": "d", "before": version("b", 5, 20), "after": None},
        {"op": "c", "before": None, "after": version("b", 6, 30)},
        {"op": "u", "before": version("a", 4, 10), "after": version("a", -1, 40)},
        {"op": "d", "before": version("a", -1, 40), "after": None},
    ]
    script = (
        table("l", COLUMNS, write_lines(tmp_path / "l.json", as_json(LEFT.rows)))
        + table(
            "rates",
            "k STRING, v INT, ts TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR ts AS ts",
            write_lines(tmp_path / "rates.json", changes),
            "debezium-json",
        )
        + """
        SELECT l.id, l.ts, rates.v, rates.ts FROM l JOIN rates FOR SYSTEM_TIME AS OF l.ts ON l.k = rates.k;
        SELECT l.id, rates.v FROM l LEFT JOIN rates FOR SYSTEM_TIME AS OF l.ts ON l.k = rates.k AND rates.v > 0;
        SELECT * FROM rates;
        SELECT l.id, rates.v FROM l LEFT JOIN rates ON l.k = rates.k
        """
    )
    assert_verified(script, tmp_path)


@pytest.mark.usefixtures("spark")
def test_lookups_in_files(tmp_path: Path) -> None:
    names = [{"k": k, "v": v, "name": f"{k}{v}", "more": {"x": v}} for k in "abce" for v in (0, 1, 1, 4)]
    names += [{"k": None, "v": 1, "name": "nobody", "more": None}, {"k": "a", "v": None, "name": None, "more": None}]
    script = (
        table("l", COLUMNS + ", now AS PROCTIME()", write_lines(tmp_path / "l.json", as_json(LEFT.rows)))
        + table("names", "k STRING, v INT, name STRING, more ROW<x INT>", write_lines(tmp_path / "names.json", names))
        + """
        SELECT l.id, n.name FROM l JOIN names FOR SYSTEM_TIME AS OF l.now AS n ON l.k = n.k;
        SELECT l.id, n.name, n.more FROM l LEFT JOIN names FOR SYSTEM_TIME AS OF l.now AS n ON l.k = n.k AND l.v = n.v;
        SELECT l.id, n.name FROM l LEFT JOIN names FOR SYSTEM_TIME AS OF l.now AS n ON n.k = 'a' AND l.v = n.v AND n.name <> l.s;
        SELECT l.id, UPPER(n.name) AS name FROM l JOIN names FOR SYSTEM_TIME AS OF l.now AS n
          ON UPPER(l.s) = 'X' AND l.k = n.k AND n.v > l.v
        """
    )
    counts = assert_verified(script, tmp_path)
    assert all(counts.values())


def test_joins_by_the_clock_are_refused(spark: SparkSession) -> None:
    clocked = [Table(t.name, t.columns + ", now AS PROCTIME()", t.rows) for t in (LEFT, RIGHT)]
    plan = sql_plan(
        clocked, "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k AND r.now BETWEEN l.now AND l.now + INTERVAL '5' SECOND"
    )
    with pytest.raises(UnsupportedPlanError, match=r"joins by processing time.*\n.*event-time column"):
        translate_shuffled(spark, plan)


def test_joins_in_the_order_of_sizes_give_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """The big table comes first and the smallest last, over aggregates, which give their last rows only in a batch."""
    given = {
        "sales": [{"id": i, "shop": i % 40, "part": i % 600} for i in range(3_000)],
        "shops": [{"shop": s, "city": f"c{s % 7}"} for s in range(40)],
        "parts": [{"part": p, "brand": p % 9} for p in range(600)],
    }
    tables = [
        table("sales", "id BIGINT, shop BIGINT, part BIGINT", write_lines(tmp_path / "sales.json", given["sales"])),
        table("shops", "shop BIGINT, city STRING", write_lines(tmp_path / "shops.json", given["shops"])),
        table("parts", "part BIGINT, brand BIGINT", write_lines(tmp_path / "parts.json", given["parts"])),
    ]
    query = (
        "SELECT s.id, h.city, p.n FROM sales AS s JOIN shops AS h ON s.shop = h.shop "
        "JOIN (SELECT part, COUNT(*) AS n FROM parts WHERE brand = 4 GROUP BY part) AS p ON s.part = p.part"
    )
    plans, results = [], []
    for reorder in ("true", "false"):
        out = tmp_path / reorder
        sink = table("o", "id BIGINT, city STRING, n BIGINT", out)
        path = tmp_path / f"{reorder}.sql"
        setting = f"SET 'table.optimizer.join-reorder-enabled' = '{reorder}';"
        path.write_text("\n".join([setting, *tables, sink, f"INSERT INTO o {query};"]))
        plans.append([n.schema.names for n in walk_plan(compile_pipeline(path, {}, BATCH).optimised)])
        run_on_spark(spark, path, {})
        results.append(sorted(tuple(row.values()) for row in json_rows(out)))
    assert plans[0] != plans[1]
    assert results[0] == results[1] == [(i, f"c{i % 40 % 7}", 1) for i in range(3_000) if i % 600 % 9 == 4]
