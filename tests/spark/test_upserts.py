"""Sources of upserts, and of changes that come twice, in a batch: what the stream comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.errors import UnsupportedPlanError
from flowrun.runners.compile import compile_pipeline
from flowrun.spark.arrival import arrival_needs
from flowrun.spark.context import Context, TimeRange
from flowrun.spark.ranges import reading_for
from flowrun.spark.savepoint import leave_savepoint
from flowrun.spark.translation import translate
from tests.spark.plans import NOW_MS, assert_same_plan, collected, sql_plan, stream_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = [
    ("d", {"id": 9}, None),
    ("c", None, {"id": 1, "k": "a", "v": 1, "ts": "2024-01-01 00:00:01"}),
    ("c", None, {"id": 2, "k": "a", "v": 2, "ts": "2024-01-01 00:00:02"}),
    ("u", None, {"id": 1, "k": "b", "v": 3, "ts": "2024-01-01 00:00:03"}),
    ("d", {"id": 2}, None),
    ("u", None, {"id": 3, "k": "b", "v": None, "ts": "2024-01-01 00:00:01"}),
    ("u", None, {"id": 4, "k": "a", "v": 5, "ts": "2024-01-01 00:00:05"}),
    ("u", None, {"id": 4, "k": "a", "v": 5, "ts": "2024-01-01 00:00:05"}),
]
TABLE = """
CREATE TABLE {name} (id BIGINT, k STRING NOT NULL, v INT, ts TIMESTAMP(3), twice AS v * 2, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED) WITH ('connector'='filesystem', 'path'='{path}', 'format'='debezium-json'{more});
"""
UPSERT = ", 'debezium-json.changelog-mode'='upsert'"
QUERIES = """
SELECT id, k, v, twice, ts FROM given WHERE v > 1 AND id < 4;
SELECT k, COUNT(*) AS n, SUM(v) AS s FROM given GROUP BY k;
SELECT id, k FROM careless;
SELECT a.id, b.v FROM given AS a JOIN careless AS b ON a.k = b.k;
"""


def write(folder: Path, *more: str) -> Path:
    file = folder / "changes.json"
    file.write_text(
        "".join(json.dumps({"op": o, "before": b, "after": a}) + "\n" for o, b, a in CHANGES) + "".join(more)
    )
    return file


def test_upserts_come_to_what_the_stream_comes_to(spark: SparkSession, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
    write(good)
    write(bad, "this is no JSON\n", '{"op": "u", "before": null, "after": {"id": 5}}\n')
    tables = TABLE.format(name="given", path=good, more=UPSERT)
    tables += TABLE.format(name="careless", path=bad, more=UPSERT + ", 'format.on-error'='skip', 'on-error'='skip'")
    plan = sql_plan([], tables + QUERIES)
    translated = translate(plan, Context(spark, plan.settings, NOW_MS, arrival_needs(plan)))
    assert {n.hosted for n in translated.results.values()} == {None, "rows that cannot be read are left out"}
    for (_, frame), wanted in zip(translated.outputs, stream_results(plan, times=False), strict=True):
        assert wanted.rows
        assert collected(frame, times=False) == wanted.rows


def test_changes_that_come_twice_count_once(spark: SparkSession, tmp_path: Path) -> None:
    row, other = {"id": 1, "k": "a", "v": 1}, {"id": 1, "k": "a", "v": 2}
    changes = [("c", None, row), ("u", row, other), ("c", None, row), ("u", row, other), ("d", {**row, "id": 7}, None)]
    (tmp_path / "twice.json").write_text(
        "".join(json.dumps({"op": o, "before": b, "after": a}) + "\n" for o, b, a in changes)
    )
    setting = "SET 'table.exec.source.cdc-events-duplicate' = 'true';"
    table = (
        "CREATE TABLE given (id BIGINT, k STRING, v INT, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector'='filesystem', 'path'='{tmp_path}', 'format'='debezium-json');"
    )
    (rows,) = assert_same_plan(
        spark, sql_plan([], setting + table + "SELECT k, SUM(v) AS s, COUNT(*) AS n FROM given GROUP BY k;")
    )
    assert sum(rows.values()) == 1


def test_a_range_of_time_and_a_hand_over_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = TABLE.format(name="given", path=write(tmp_path), more=UPSERT)
    plan = sql_plan([], table + "SELECT id, v FROM given;")
    with pytest.raises(
        UnsupportedPlanError, match="source 'given' gives upserts, whose deletions may have no event time"
    ):
        reading_for(plan, TimeRange(0, 5))
    script = tmp_path / "script.sql"
    script.write_text(
        table + "CREATE TABLE out (id BIGINT) WITH ('connector'='print'); INSERT INTO out SELECT id FROM given;"
    )
    with pytest.raises(UnsupportedPlanError, match="changes whose order of arrival counts"):
        leave_savepoint(compile_pipeline(script, {}), spark, 5, str(tmp_path), now_ms=NOW_MS)
