"""Batch runs on Spark write and read lake tables: through the same writers, in one version of the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from flowrun.errors import ConnectorError, UnsupportedPlanError
from flowrun.spark.execution import execute
from flowrun.spark.output.job import OutputJob
from tests.spark.files import sql_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("delta", "iceberg")


def table(kind: str, folder: Path, name: str, columns: str, beside: str = "", more: str = "") -> str:
    options = f"'connector' = 'delta', 'table-path' = '{folder}/{name}'"
    if kind == "iceberg":
        options = (
            f"'connector' = 'iceberg', 'catalog-name' = 'c', 'catalog-type' = 'sql', 'uri' = 'sqlite:///{folder}/catalog.db', "
            f"'warehouse' = '{folder}/warehouse'"
        )
    return f"CREATE TABLE {name} ({columns}) {beside} WITH ({options}{more});"


def read(kind: str, folder: Path, name: str) -> tuple[list[tuple[Any, ...]], int]:
    """(the rows, how many versions with rows there are)."""
    if kind == "delta":
        found = DeltaTable(str(folder / name))
        rows, versions = found.to_pyarrow_table(), found.version()
    else:
        catalog = load_catalog(
            "c", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        opened = catalog.load_table(f"default.{name}")
        rows, versions = opened.scan().to_arrow(), len(opened.snapshots())
    return sorted(tuple(r.values()) for r in rows.select(["id", "k"]).to_pylist()), versions


def run(spark: SparkSession, folder: Path, script: str, number: int = 1) -> None:
    execute(sql_plan(script, folder), spark, OutputJob("p", "all", f"r{number}"), 0)


ROWS = "CREATE TABLE g (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '100', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '99');"  # noqa: E501


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_appends_one_version_and_another_one_reads_it(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    first = table(kind, tmp_path, "first", "id BIGINT, k BIGINT", "PARTITIONED BY (k)")
    second = table(kind, tmp_path, "second", "id BIGINT, k BIGINT")
    run(spark, tmp_path, f"{ROWS}{first} INSERT INTO first SELECT id, id % 3 FROM g;")
    assert read(kind, tmp_path, "first") == ([(i, i % 3) for i in range(100)], 1)
    run(spark, tmp_path, f"{first}{second} INSERT INTO second SELECT id, k FROM first WHERE k = 1 AND id >= 50;")
    assert read(kind, tmp_path, "second") == ([(i, 1) for i in range(50, 100) if i % 3 == 1], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_merges_by_key(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    keyed = table(kind, tmp_path, "keyed", "id BIGINT, k BIGINT, PRIMARY KEY (id) NOT ENFORCED")
    for number in (1, 2):
        run(
            spark,
            tmp_path,
            f"{ROWS}{keyed} INSERT INTO keyed SELECT id % 7, COUNT(*) * {number} FROM g GROUP BY id % 7;",
            number,
        )
    assert read(kind, tmp_path, "keyed") == ([(i, 2 * len(range(i, 100, 7))) for i in range(7)], 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    made = table(kind, tmp_path, "t", "id BIGINT, k BIGINT")
    with pytest.raises(Exception, match="zero"):
        run(spark, tmp_path, f"{ROWS}{made} INSERT INTO t SELECT id, 5 / (id - 70) FROM g;")
    assert not [p for p in tmp_path.rglob("*.parquet") if "_delta_log" not in p.parts]


@pytest.mark.parametrize(
    ("kind", "follow"), [("delta", ", 'mode' = 'streaming'"), ("iceberg", ", 'streaming' = 'true'")]
)
def test_a_table_that_is_followed_is_no_batch(spark: SparkSession, tmp_path: Path, kind: str, follow: str) -> None:
    first = table(kind, tmp_path, "first", "id BIGINT, k BIGINT", more=follow)
    second = table(kind, tmp_path, "second", "id BIGINT, k BIGINT")
    with pytest.raises((UnsupportedPlanError, ConnectorError)) as error:
        run(spark, tmp_path, f"{first}{second} INSERT INTO second SELECT * FROM first;")
    assert "ends" in str(error.value)
