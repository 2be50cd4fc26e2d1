"""OVER of whole partitions over bounded input: every row comes once, with its result, when the input has ended."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import flowrun
from flowrun.api.changelog import ChangelogMode
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.nodes import walk_plan
from flowrun.plan.relational import OverAggregate
from flowrun.runners.compile import compile_pipeline
from tests.end_to_end.running import json_rows, run_file
from tests.slices import everyday
from tests.sql.recovery_gates import FUNCTIONS
from tests.sql.recovery_runs import Job

SALES = "id BIGINT, item STRING, class STRING, store STRING, y INT, m INT, price BIGINT"
NAMES = ("id", "item", "class", "store", "y", "m", "price")
TABLE = """
CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{folder}/in.csv'{options});
CREATE TABLE r ({result}) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}/out');
"""
MONTHS = "(SELECT class, store, y, m, SUM(price) AS total FROM sales GROUP BY class, store, y, m)"
SHAPES = {
    "share of the class (TPC-DS 12, 20, 98)": (
        "a STRING, b STRING, c BIGINT, d BIGINT",
        "SELECT item, class, total, CASE WHEN whole = 0 THEN NULL ELSE 100 * total / whole END FROM (SELECT *, "
        "SUM(total) OVER (PARTITION BY class) AS whole "
        "FROM (SELECT item, class, SUM(price) AS total FROM sales GROUP BY item, class) AS i) AS w",
    ),
    "months off the average of the year (47, 57)": (
        "a STRING, b STRING, c INT, d INT, e BIGINT, f BIGINT, g BIGINT",
        "SELECT class, store, y, m, total, SUM(total) OVER (PARTITION BY class, store, y), "
        f"COUNT(*) OVER (PARTITION BY class, store) FROM {MONTHS} AS s",
    ),
    "above the average of its kind (53, 63, 89)": (
        "a STRING, b STRING, c INT, d BIGINT, e BIGINT, f BIGINT",
        "SELECT * FROM (SELECT class, store, m, total, COUNT(*) OVER (PARTITION BY class) AS n, "
        f"SUM(total) OVER (PARTITION BY class) AS s FROM {MONTHS} AS s) AS w WHERE total * n > s",
    ),
    "unions, without a partition": (
        "a STRING, b BIGINT, c BIGINT, d BIGINT",
        "SELECT item, price, COUNT(*) OVER (), MIN(price) OVER () FROM "
        "(SELECT item, price FROM sales WHERE m < 6 UNION ALL SELECT store, price FROM sales WHERE m >= 6) AS u",
    ),
    "with an order": (
        "a BIGINT, b BIGINT, c STRING",
        "SELECT id, SUM(price) OVER (PARTITION BY class ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING), "
        "FIRST_VALUE(item) OVER (PARTITION BY class ORDER BY id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM sales",
    ),
}


def sales(seed: int, count: int = 200) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    return [
        (i, f"i{chance.randrange(9)}", chance.choice(["c0", "c1", "c2", None]), f"s{chance.randrange(3)}",
         chance.choice([1999, 2000]), chance.randrange(1, 13), chance.randrange(-20, 100))
        for i in range(count)
    ]  # fmt: skip


def script(folder: Path, rows: list[tuple[Any, ...]], shape: str, name: str = "sales", more: str = "") -> Path:
    (folder / "in.csv").write_text("".join(",".join("" if v is None else str(v) for v in r) + "\n" for r in rows))
    result, query = SHAPES[shape]
    text = TABLE.format(name=name, columns=SALES, folder=folder, result=result, options=", 'csv.null-literal' = ''")
    path = folder / "script.sql"
    path.write_text(text + more + f"INSERT INTO r {query};")
    return path


def wanted(rows: list[tuple[Any, ...]], shape: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE sales ({SALES})")
        database.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        # `/` of integers truncates, as in Flink
        return Counter(database.sql(SHAPES[shape][1].replace(" / ", " // ")).fetchall())


def found(folder: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in json_rows(folder / "out"))


@pytest.mark.parametrize("shape", everyday(SHAPES, 2))
def test_shapes_of_tpc_ds(shape: str, tmp_path: Path) -> None:
    rows = sales(1)
    for number, (parallelism, batch_rows) in enumerate([(1, 1), (3, 7), (1, 10_000)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = script(folder, rows, shape)
        run_file(path, parallelism=parallelism, batch_rows=batch_rows)
        assert found(folder) == wanted(rows, shape)


def test_a_sum_that_is_0_for_a_while_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1,a,5\n2,a,-5\n3,a,10\n4,b,1\n")
    path = tmp_path / "script.sql"
    path.write_text(
        TABLE.format(name="t", columns="id INT, k STRING, v INT", folder=tmp_path, result="id INT, s INT", options="")
        + "INSERT INTO r SELECT id, 100 * v / SUM(v) OVER (PARTITION BY k) FROM t;"
    )
    run_file(path, batch_rows=1)
    assert found(tmp_path) == Counter([(1, 50), (2, -50), (3, 100), (4, 100)])


def test_rows_keep_their_event_time_and_are_late_for_nothing_behind_it(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1,2024-01-01 00:00:01\n2,2024-01-01 00:00:02\n3,2024-01-01 00:01:00\n")
    path = tmp_path / "script.sql"
    path.write_text(
        TABLE.format(
            name="t", columns="v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts", folder=tmp_path,
            result="e TIMESTAMP(3), n BIGINT, s BIGINT", options="",
        )
        + "CREATE VIEW w AS SELECT *, SUM(v) OVER () AS s FROM t;"
        "INSERT INTO r SELECT window_end, COUNT(*), MAX(s) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
        " GROUP BY window_start, window_end;"
    )  # fmt: skip
    run_file(path, batch_rows=1)
    assert found(tmp_path) == Counter([("2024-01-01 00:00:10", 2, 6), ("2024-01-01 00:01:10", 1, 6)])


def test_input_without_end_goes_on_being_corrected(tmp_path: Path) -> None:
    path = script(tmp_path, sales(1), "unions, without a partition")
    assert modes(path) == {(True, ChangelogMode.APPEND)}
    endless = path.read_text().replace("'csv.null-literal'", "'source.monitor-interval' = '1 s', 'csv.null-literal'")
    path.write_text(
        endless.replace("'filesystem', 'format' = 'json'", "'print'").replace(f", 'path' = '{tmp_path}/out'", "")
    )
    assert modes(path) == {(False, ChangelogMode.RETRACT)}


def modes(path: Path) -> set[tuple[bool, ChangelogMode]]:
    plan = compile_pipeline(path, {}, {}).optimised
    found = changelog_modes(plan)
    return {(n.at_end, found[id(n)]) for n in walk_plan(plan) if isinstance(n, OverAggregate)}


@pytest.mark.parametrize("seed", everyday(range(8), 2))
def test_goes_on_from_snapshots_as_if_nothing_had_happened(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    shape = list(SHAPES)[seed % len(SHAPES)]
    rows = sales(seed)
    gated = FUNCTIONS + "CREATE VIEW sales AS SELECT * FROM a_rows WHERE gate_a(id);"
    job = Job(script(tmp_path, rows, shape, "a_rows", gated), tmp_path, {"a": len(rows)})
    for _ in range(3):
        if not job.interrupt(chance):
            break
    job.finish(chance.choice([1, 2, 3]))
    assert found(tmp_path) == wanted(rows, shape), job.log


def test_ntile_is_bigint_as_in_flink() -> None:
    table = pa.table({"k": [1, 2, 2, 3]})
    query = "SELECT k, NTILE(2) OVER (ORDER BY k) AS n FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k)"
    found = flowrun.sql(query, t=table)
    assert found is not None
    assert found.arrow().schema.field("n").type == pa.int64()
    assert sorted(found.rows()) == [(1, 1), (2, 1), (3, 2)]
