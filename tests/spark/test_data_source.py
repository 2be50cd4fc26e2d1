"""Connectors as a data source of Spark: the rows that their readers give, in order, split by split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowrun.api.source import Split
from flowrun.connectors import memory
from flowrun.core.elements import RecordBatch
from flowrun.errors import UnsupportedPlanError
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL
from flowrun.spark.input.reading import ProcessingTimers, grouped
from flowrun.spark.input.scan import read_scan
from tests.spark.files import by_flowrun, context_of, on_spark, scans, sql_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flowrun.plan.nodes import Scan


def scan_of(text: str, folder: Path, query: str = "SELECT * FROM t") -> Scan:
    return scans(sql_plan(f"{text}; {query};", folder))["t"]


def test_generated_rows_are_those_of_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    node = scan_of(
        "CREATE TABLE t (i BIGINT, t TIMESTAMP(3), WATERMARK FOR t AS t) WITH ('connector' = 'datagen', 'number-of-rows' = '30', "
        "'rows-per-second' = '1000', 'fields.i.kind' = 'sequence', 'fields.i.start' = '1', 'fields.i.end' = '30')",
        tmp_path,
        "SELECT i FROM t",
    )
    frame = read_scan(node, None, context_of(spark, node, arrivals=frozenset({id(node)})))  # type: ignore[arg-type]
    ordered = sorted(frame.data.collect(), key=lambda row: row[ARRIVAL])
    assert [row["i"] for row in ordered] == list(range(1, 31))


def test_nexmark_has_its_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    node = scan_of(
        "CREATE TABLE t (event_type INT, bid ROW<auction BIGINT, price BIGINT>) WITH ('connector' = 'nexmark', 'events.num' = '500')",
        tmp_path,
    )
    assert on_spark(spark, node)[0] == by_flowrun(node)


def test_a_session_that_was_made_from_another_one_reads_too(spark: SparkSession, tmp_path: Path) -> None:
    node = scan_of("CREATE TABLE t (event_type INT) WITH ('connector' = 'nexmark', 'events.num' = '50')", tmp_path)
    assert on_spark(spark, node) == on_spark(spark.newSession(), node)


def test_a_source_without_end_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    node = scan_of("CREATE TABLE t (i BIGINT) WITH ('connector' = 'datagen')", tmp_path)
    with pytest.raises(UnsupportedPlanError, match="source 't' never ends"):
        read_scan(node, None, context_of(spark, node))  # type: ignore[arg-type]


def test_changes_of_this_process_come_to_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.record_batch({"k": ["a", "a", "b", "b"], "v": pa.array([1, 1, 2, 2], pa.int64())})
    memory.put("source-changes", [RecordBatch(rows, row_kinds=pa.array([0, 0, 0, 3], pa.int8()))])
    memory.put("source-none", [])
    for table, expected in (("source-changes", [("a", 1), ("a", 1)]), ("source-none", [])):
        node = scan_of(
            f"CREATE TABLE t (k STRING, v BIGINT) WITH ('connector' = 'memory', 'table' = '{table}')", tmp_path
        )
        frame = read_scan(node, None, Context(spark, sql_plan("SELECT 1;", tmp_path).settings, 0))  # type: ignore[arg-type]
        assert sorted(map(tuple, frame.data.collect())) == expected


def test_splits_are_dealt_out_in_order() -> None:
    splits = [Split(str(i), {}) for i in range(7)]
    parts = grouped(splits, 3)
    assert [s.split_id for part in parts for s in part] == [s.split_id for s in splits]
    assert {len(part) for part in parts} == {2, 3}
    assert grouped(splits, 100) == [(s,) for s in splits]
    assert grouped([], 3) == []


def test_callbacks_run_when_they_are_due() -> None:
    class Clock:
        def now_ms(self) -> int:
            return 1_000

    called: list[int] = []
    timers = ProcessingTimers(Clock())  # type: ignore[arg-type]
    timers.register(900, called.append)
    timers.register(950, called.append).cancel()
    timers.wait_for_next()
    timers.wait_for_next()
    assert called == [900]
