"""The state of checkpoints and savepoints, read by Spark: the rows that DuckDB finds, and the lines that the documentation shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from flowrun.cli.state.group import state
from flowrun.core.elements import CheckpointKind
from flowrun.errors import PipelineError, StateError
from flowrun.runners.inspection.query import query_state
from flowrun.runners.spark_state import query_on_spark, read_state
from flowrun.state.storage.locate import locate
from tests.state_folders import Names, ShopFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = {f"user-{i}": i for i in range(40)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ShopFolder]:
    with ShopFolder(tmp_path / "state") as shop_folder:
        yield shop_folder


def checkpoint(folder: ShopFolder, **options: Any) -> Path:
    """The third checkpoint of names that come, change and go: most of its rows are in files of the first two."""
    names = Names()
    names.add({user: f"{user} the first" for user in COUNTS})
    folder.take(COUNTS, names)
    names.add({"user-1": "renamed", "user-2": None, "user-39": None})
    folder.take(COUNTS, names)
    names.add({"user-2": "back again", "new": "late"})
    return folder.take(COUNTS, names, **options)


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


QUERIES = (
    'SELECT * FROM "per_user.names"',
    "SELECT user_id, n, total FROM per_user_totals WHERE n > 3",
    'SELECT count(*) AS n, sum(t.total) AS total FROM "per_user.totals" t JOIN per_user_names n ON t.user_id = n.user_id',
    'SELECT split_id, "position", watermark FROM "orders.splits"',
)


def test_every_table_has_the_rows_that_duckdb_finds(spark: SparkSession, folder: ShopFolder, tmp_path: Path) -> None:
    checkpoints = checkpoint(folder)
    savepoint = checkpoint(folder, kind=CheckpointKind.SAVEPOINT, directory=tmp_path / "savepoints")
    for path in (checkpoints, savepoint):
        snapshot = locate(str(path))
        for sql in QUERIES:
            found = query_on_spark(spark.newSession(), snapshot, sql).toArrow()
            assert rows(found) == rows(query_state(snapshot, sql)), sql
    names = {r["user_id"]: r["name"] for r in read_state(spark, str(checkpoints), "per_user.names").collect()}
    assert (names["user-1"], names["user-2"], names["new"], "user-39" in names) == (
        "renamed",
        "back again",
        "late",
        False,
    )


def test_what_spark_cannot_answer_says_why(spark: SparkSession, folder: ShopFolder) -> None:
    snapshot = locate(str(folder.take(COUNTS)))
    session = spark.newSession()
    with pytest.raises(PipelineError, match=r"there is no table 'per_usr'\n.*did you mean 'per_user"):
        query_on_spark(session, snapshot, "SELECT * FROM per_usr")
    with pytest.raises(PipelineError, match="nope"):
        query_on_spark(session, snapshot, "SELECT nope FROM per_user_totals")
    with pytest.raises(PipelineError, match="write one SELECT"):
        query_on_spark(session, snapshot, "DROP VIEW per_user_totals")
    with pytest.raises(StateError, match=r"has no state table 'totls'\n.*totals"):
        read_state(session, snapshot.folder, "totls")


def test_a_damaged_file_is_named(spark: SparkSession, folder: ShopFolder) -> None:
    path = folder.take(COUNTS)
    file = next(path.glob("*totals*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(StateError, match=re.escape(str(file))):
        read_state(spark, str(path), "per_user.totals")


@pytest.mark.usefixtures("spark")
def test_the_command_asks_spark(folder: ShopFolder) -> None:
    path = folder.take({"ann": 1, "bob": 12})
    sql = "SELECT user_id, n, total, array(n, n) AS ns FROM per_user ORDER BY n"
    ran = CliRunner().invoke(
        state, ["query", str(path), sql, "--engine", "spark", "--format", "csv"], obj={"traceback": False}
    )
    assert ran.stdout == '"user_id","n","total","ns"\n"ann",1,0.50,"[1, 1]"\n"bob",12,6.00,"[12, 12]"\n'
    refused = CliRunner().invoke(state, ["query", str(path), sql, "--spark-master", "local[2]"])
    assert refused.exit_code == 2
    assert "go with --engine spark" in refused.stderr


DOCUMENTED = Path(__file__).parents[2] / "docs" / "state-format.md"


def test_the_documented_lines_read_state(spark: SparkSession, folder: ShopFolder, tmp_path: Path) -> None:
    """The Python blocks of the section "Reading with Spark", with other paths and names."""
    section = DOCUMENTED.read_text().split("## Reading with Spark")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    checkpoint(folder)
    checkpoint(folder, kind=CheckpointKind.SAVEPOINT, directory=tmp_path)
    savepoint = next(tmp_path.glob("savepoint-*"))
    names = {
        ".flowrun/state/orders-per-minute": str(folder.directory / "shop"),
        "savepoints/savepoint-orders-per-minute-9": str(savepoint),
        "per_minute.partials": "per_user.totals",
        "per_minute-*-partials-*": "per_user-*-totals-*",
        '"p0"': '"n"',
    }
    for block in blocks:
        variables: dict[str, Any] = {"spark": spark}
        exec(reduce(lambda text, name: text.replace(*name), names.items(), block), variables)
        assert sum(row[1] for row in variables["totals"].collect()) == sum(COUNTS.values())
