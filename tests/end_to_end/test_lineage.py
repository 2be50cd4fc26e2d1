"""`flowrun lineage`: each column of a sink comes from what it says, and from nothing else."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

import flowrun as fr
from flowrun.frontend.pipeline import load_pipeline
from flowrun.plan.lineage import plan_lineage
from tests.end_to_end.conftest import Command

TABLES = """
CREATE TABLE a (k INT, x INT, t STRING) WITH ('connector' = 'datagen');
CREATE TABLE b (k INT, y INT, z STRING) WITH ('connector' = 'datagen');
"""
QUERIES = {
    "join": "SELECT a.k, SUM(a.x + b.y) AS s, COUNT(*) AS n FROM a JOIN b ON a.k = b.k WHERE b.z <> 'p' GROUP BY a.k",
    "outer join": "SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND b.z = 'q'",
    "union": "SELECT x AS v, k FROM a UNION ALL SELECT y, k FROM b WHERE z = 'q'",
    "case": "SELECT CASE WHEN t = 'p' THEN x ELSE k END AS v, 1 AS one FROM a",
    "rank": "SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM a) WHERE r <= 2",
    "exists": "SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.y > 3)",
    "scalar": "SELECT x, (SELECT MAX(y) FROM b) AS m FROM a",
    "distinct": "SELECT DISTINCT t, k FROM a",
    "having": "SELECT k, MIN(x) AS m FROM a GROUP BY k HAVING COUNT(DISTINCT t) > 1",
    "intersect": "SELECT k FROM a INTERSECT SELECT k FROM b WHERE y > 2",
    "unnest": "SELECT k, e FROM a CROSS JOIN UNNEST(ARRAY[x, k]) AS u(e)",
}


def lineage_of(folder: Path, query: str) -> dict[str, tuple[set[str], set[str]]]:
    """Column → (made of, depends on)."""
    path = folder / "q.sql"
    path.write_text(f"{TABLES}{query};")
    columns = plan_lineage(load_pipeline(path).plan)
    return {c.column: ({str(o) for o in c.made_of}, {str(o) for o in c.depends_on}) for c in columns}


@pytest.mark.parametrize(
    ("name", "column", "made_of", "depends_on"),
    [
        ("join", "s", {"a.x", "b.y"}, {"a.k", "b.k", "b.z"}),
        ("join", "n", set(), {"a.k", "b.k", "b.z"}),
        ("outer join", "y", {"b.y"}, {"a.k", "b.k", "b.z"}),
        ("union", "v", {"a.x", "b.y"}, {"b.z"}),
        ("case", "v", {"a.t", "a.x", "a.k"}, set()),
        ("case", "one", set(), set()),
        ("rank", "k", {"a.k"}, {"a.x"}),
        ("exists", "x", {"a.x"}, {"a.k", "b.k", "b.y"}),
        ("having", "m", {"a.x"}, {"a.k", "a.t"}),
        ("unnest", "e", {"a.k", "a.x"}, set()),
    ],
)
def test_where_columns_come_from(
    tmp_path: Path, name: str, column: str, made_of: set[str], depends_on: set[str]
) -> None:
    assert lineage_of(tmp_path, QUERIES[name])[column] == (made_of, depends_on)


def table(chance: random.Random, number: str, text: str) -> dict[str, list[object]]:
    rows = 12
    return {
        "k": [chance.randrange(4) for _ in range(rows)],
        number: [chance.randrange(6) for _ in range(rows)],
        text: [chance.choice("pq") for _ in range(rows)],
    }


def values_of(query: str, a: dict[str, list[object]], b: dict[str, list[object]]) -> dict[str, list[str]]:
    result = fr.sql(query, a=_as_table(a), b=_as_table(b))
    assert result is not None
    rows = result.arrow()
    return {name: sorted(map(repr, rows.column(name).to_pylist())) for name in rows.schema.names}


def _as_table(columns: dict[str, list[object]]) -> pa.Table:
    kinds = {name: pa.string() if isinstance(values[0], str) else pa.int32() for name, values in columns.items()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


@pytest.mark.parametrize("name", QUERIES)
def test_nothing_else_matters(tmp_path: Path, name: str) -> None:
    """Other values in a column that is not named change nothing."""
    chance = random.Random(name)
    said = lineage_of(tmp_path, QUERIES[name])
    tables = {"a": table(chance, "x", "t"), "b": table(chance, "y", "z")}
    before = values_of(QUERIES[name], **tables)
    for changed in ("a.k", "a.x", "a.t", "b.k", "b.y", "b.z"):
        owner, column = changed.split(".")
        other = table(random.Random(f"{name} {changed}"), "x" if owner == "a" else "y", "t" if owner == "a" else "z")
        after = values_of(QUERIES[name], **{**tables, owner: {**tables[owner], column: other[column]}})
        for output, (made_of, depends_on) in said.items():
            if changed not in made_of | depends_on:
                assert after[output] == before[output], (output, changed)


PIPELINE = """
sources:
  orders:
    connector: datagen
    schema: {id: BIGINT, amount: DOUBLE, ts: TIMESTAMP(3), note: STRING}
    watermark: {column: ts}
steps:
  large: {from: orders, filter: amount > 5}
  totals: {from: large, key_by: [id], window: {type: tumbling, size: 1m}, aggregate: ["SUM(amount) AS total"]}
sinks:
  out: {from: totals, connector: blackhole}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(PIPELINE)
    return path


def test_a_pipeline_as_text(flowrun: Command, pipeline: Path) -> None:
    done = flowrun("lineage", pipeline, "out.total")
    assert done.code == 0, done.err
    assert done.out == (
        "out.total\n  made of     orders.amount\n  depends on  orders.id, orders.ts\n  through     large → totals\n"
    )
    bounds = flowrun("lineage", pipeline, "out.window_start").out
    assert "made of     orders.ts" in bounds


def test_who_uses_a_column(flowrun: Command, pipeline: Path) -> None:
    done = flowrun("lineage", pipeline, "--from", "orders.amount", "--format", "json")
    assert {column["column"] for column in json.loads(done.out)} == {"id", "window_start", "window_end", "total"}
    unused = flowrun("lineage", pipeline, "--from", "orders.note")
    assert unused.code == 2
    assert "nothing comes from 'orders.note'" in unused.err


def test_a_drawing(flowrun: Command, pipeline: Path) -> None:
    lines = flowrun("lineage", pipeline, "out.total", "--format", "mermaid").out.splitlines()
    assert lines[0] == "flowchart LR"
    assert '  orders_2e_amount["orders.amount"] --> out_2e_total["out.total"]' in lines
    assert '  orders_2e_id["orders.id"] -.-> out_2e_total["out.total"]' in lines


def test_a_column_that_is_not_there(flowrun: Command, pipeline: Path) -> None:
    done = flowrun("lineage", pipeline, "out.totl")
    assert (done.code, done.out) == (2, "")
    assert "there is no sink or column 'out.totl'" in done.err
    assert "out.total" in done.err
