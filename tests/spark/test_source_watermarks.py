"""Watermarks that sources send: on Spark time passes at the end, and no row is late."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.connectors import memory
from flowrun.spark.execution import execute
from flowrun.spark.output.job import ALL, OutputJob
from tests.end_to_end.running import run_file
from tests.spark.files import sql_plan
from tests.sql.test_source_watermarks import LATE, WINDOWS, bag, nexmark, one_by_one, put, took

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _no_tables() -> Iterator[None]:
    yield
    memory.clear()


def test_time_passes_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    put(LATE)
    execute(sql_plan(WINDOWS, tmp_path), spark, OutputJob("p", ALL, "r"), 0)
    assert took() == one_by_one(LATE, late=False)


def test_generated_rows(spark: SparkSession, tmp_path: Path) -> None:
    script = nexmark(tmp_path, "SOURCE_WATERMARK()", 500)
    run_file(script)
    by_stream = bag(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    execute(sql_plan(script.read_text(), tmp_path), spark, OutputJob("p", ALL, "r"), 0)
    assert bag(tmp_path / "out") == by_stream
