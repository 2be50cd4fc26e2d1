"""What counts as a difference between two pipelines, from their texts; and what becomes of state, without any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.versions.imagined_savepoint import imagined_savepoint
from flowrun.runners.versions.making import plan_document
from flowrun.runners.versions.plan_difference import Difference, Effect, changes_meaning, plan_differences
from flowrun.runtime.checkpoint.compatibility import compare

SQL = """
SET 'pipeline.name' = 'orders';
SET 'parallelism.default' = '1';
CREATE TABLE orders (id BIGINT, price DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE out (id BIGINT, w TIMESTAMP(3), n BIGINT) WITH ('connector' = 'filesystem', 'path' = '/out', 'format' = 'json');
CREATE VIEW dear AS SELECT * FROM orders WHERE price > 10;
INSERT INTO out SELECT id, window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE dear, DESCRIPTOR(ts), INTERVAL '5' SECOND))
  GROUP BY id, window_start, window_end;
"""


def compiled(folder: Path, sql: str, name: str) -> CompiledPipeline:
    file = folder / f"{name}.sql"
    file.write_text(sql)
    return compile_pipeline(file)


def differences(folder: Path, before: str, after: str) -> Sequence[Difference]:
    one, two = compiled(folder, before, "one"), compiled(folder, after, "two")
    return plan_differences(plan_document(one), plan_document(two))


def changed(*pairs: tuple[str, str]) -> str:
    text = SQL
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize(
    "same",
    [
        "-- a comment\n" + SQL.replace("SELECT *", "select\n\n  *"),
        changed(("CREATE TABLE out", "CREATE TABLE other (a INT) WITH ('connector' = 'print');\nCREATE TABLE out")),
        changed(("price > 10", "price > 5 + 5")),
    ],
)
def test_layout_and_order_are_no_differences(tmp_path: Path, same: str) -> None:
    assert not changes_meaning(differences(tmp_path, SQL, same))


@pytest.mark.parametrize(
    ("after", "part", "effect", "text"),
    [
        (changed(("price > 10", "price > 11")), "step", Effect.ROWS, "where: (price > 10.0) -> (price > 11.0)"),
        (changed(("INTERVAL '5' SECOND", "INTERVAL '7' SECOND")), "step", Effect.ROWS, "window: tumbling 5s of event time -> "),
        (changed(("ts - INTERVAL '1' SECOND", "ts - INTERVAL '2' SECOND")), "source", Effect.ROWS, "watermark: ts - 1s -> ts - 2s"),
        (changed(("'path' = '/out'", "'path' = '/elsewhere'")), "sink", Effect.ROWS, "options.path: /out -> /elsewhere"),
        (changed(("default' = '1'", "default' = '2'")), "settings", Effect.RUNNING, "parallelism: 1 -> 2"),
        ("SET 'table.exec.state.ttl' = '1 h';" + SQL, "settings", Effect.ROWS, "state_ttl: None -> 1h"),
        (changed(("out (id BIGINT", "out (id INT"), ("SELECT id,", "SELECT CAST(id AS INT),")), "sink", Effect.ROWS, "id: BIGINT -> INT"),
    ],
)  # fmt: skip
def test_what_differs_is_told_where_it_is(tmp_path: Path, after: str, part: str, effect: Effect, text: str) -> None:
    found = [d for d in differences(tmp_path, SQL, after) if d.part == part and d.effect is effect]
    lines = [f"{f.name}: {f.before} -> {f.after}" for d in found for f in d.fields]
    assert any(text in line for line in lines), lines


def test_parts_come_and_go(tmp_path: Path) -> None:
    more = SQL + (
        "CREATE TABLE other (id BIGINT) WITH ('connector' = 'print');\nINSERT INTO other SELECT id FROM orders WHERE id > 3;\n"
    )
    added = differences(tmp_path, SQL, more)
    assert ("added", "sink", "other") in [(d.kind.value, d.part, d.name) for d in added]
    removed = differences(tmp_path, more, SQL)
    assert ("removed", "sink", "other") in [(d.kind.value, d.part, d.name) for d in removed]


def test_what_becomes_of_state_is_told_without_any(tmp_path: Path) -> None:
    one = compiled(tmp_path, SQL, "one")
    other = compiled(tmp_path, changed(("INTERVAL '5' SECOND", "INTERVAL '7' SECOND")), "two")
    assert compare(imagined_savepoint(one.job_graph, one.job_graph), one.job_graph).all_problems == ()
    problems = compare(imagined_savepoint(one.job_graph, other.job_graph), other.job_graph).all_problems
    assert [p for p in problems if "partials" in p.message], problems
    without = compiled(tmp_path, changed(("FROM orders", "FROM orders2"), ("TABLE orders", "TABLE orders2")), "three")
    lost = compare(imagined_savepoint(one.job_graph, without.job_graph), without.job_graph).all_problems
    assert any("Source: orders" in p.message for p in lost)


def test_secrets_are_in_no_plan(tmp_path: Path) -> None:
    jdbc = "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/x', 'table-name' = 't', 'username' = 'ada'"
    sql = changed(("'connector' = 'filesystem', 'path' = '/out', 'format' = 'json'", f"{jdbc}, 'password' = 'hunter2'"))
    assert "hunter2" not in str(plan_document(compiled(tmp_path, sql, "secret")))
