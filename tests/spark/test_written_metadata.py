"""Metadata that queries write: on Spark it goes to the connector's own writers, as in the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.connectors import memory
from flowrun.spark.execution import execute
from flowrun.spark.output.job import ALL, OutputJob
from tests.spark.files import sql_plan
from tests.sql.test_written_metadata import EACH, TABLES, expected, joined, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _no_tables() -> Iterator[None]:
    yield
    memory.clear()


def test_each_row_comes_with_its_own_metadata(spark: SparkSession, tmp_path: Path) -> None:
    put(20)
    execute(sql_plan(TABLES + EACH, tmp_path), spark, OutputJob("p", ALL, "r"), 0)
    assert joined(memory.take_with_metadata("o")) == [expected(i) for i in range(20)]


def test_a_column_of_files_may_be_called_like_metadata(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"file.name": "b"}\n')
    statement = f"""
    CREATE TABLE t (`file.name` STRING, n STRING METADATA FROM 'file.name' VIRTUAL)
    WITH ('connector' = 'filesystem', 'path' = '{tmp_path / "in"}', 'format' = 'json');
    CREATE TABLE o WITH ('connector' = 'memory', 'table' = 'o') AS SELECT * FROM t;
    """
    execute(sql_plan(statement, tmp_path), spark, OutputJob("p", ALL, "r"), 0)
    assert [b.columns.to_pylist() for b in memory.take("o")] == [[{"file.name": "b", "n": "a.json"}]]
