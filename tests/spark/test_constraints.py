"""Constraints of sinks on both engines: the same rows are dropped, cut and refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.errors import FlowrunError
from tests.spark.files import sql_plan
from tests.spark.test_outputs import lines, run_batch, run_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITED = "id INT NOT NULL, t CHAR(3), r ROW<a VARCHAR(2), b INT NOT NULL>, l ARRAY<CHAR(2) NOT NULL>, m MAP<VARCHAR(1), INT NOT NULL>"
ROWS = [
    (1, "a", ("abc", 1), ["x", "xyz"], [("k1", 1)]),
    (2, None, None, None, None),
    (None, "abcd", ("a", 1), [], []),
    (3, "abcd", ("a", None), [], []),
    (4, "abcd", ("a", 1), ["a", None], []),
    (5, "abcd", (None, 5), ["äöü"], [("k", None)]),
    (6, "äöüß", (None, 6), [], []),
]
SET = "SET 'table.exec.sink.{}' = '{}';\n"


def script(folder: Path, settings: dict[str, str]) -> str:
    given = "".join(SET.format(k, v) for k, v in settings.items())
    unlimited = LIMITED.replace(" NOT NULL", "")
    return (
        f"{given}CREATE TABLE t ({unlimited}) WITH ('connector' = 'memory', 'table' = 'limited');\n"
        f"CREATE TABLE r ({LIMITED}) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}');\n"
        "INSERT INTO r SELECT * FROM t;"
    )


@pytest.fixture(autouse=True)
def limited() -> None:
    types = (
        pa.int32(),
        pa.string(),
        pa.struct([("a", pa.string()), ("b", pa.int32())]),
        pa.list_(pa.string()),
        pa.map_(pa.string(), pa.int32()),
    )
    rows = [(i, t, r and {"a": r[0], "b": r[1]}, a, m) for i, t, r, a, m in ROWS]
    columns = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
    memory.put("limited", [pa.RecordBatch.from_arrays(columns, ["id", "t", "r", "l", "m"])])


def test_rows_with_null_are_dropped_and_values_cut_and_filled_up(spark: SparkSession, tmp_path: Path) -> None:
    settings = {
        "not-null-enforcer": "DROP",
        "nested-constraint-enforcer": "ROWS_AND_COLLECTIONS",
        "type-length-enforcer": "TRIM_PAD",
    }
    run_stream(sql_plan(script(tmp_path / "stream", settings), tmp_path))
    run_batch(spark, sql_plan(script(tmp_path / "spark", settings), tmp_path), "r1")
    assert lines(tmp_path / "spark") == lines(tmp_path / "stream")
    assert sorted(line for _, line in lines(tmp_path / "stream")) == [
        '{"id":1,"t":"a  ","r":{"a":"ab","b":1},"l":["x ","xy"],"m":{"k":1}}',
        '{"id":2,"t":null,"r":null,"l":null,"m":null}',
        '{"id":6,"t":"äöü","r":{"a":null,"b":6},"l":[],"m":{}}',
    ]


def test_values_of_another_length_are_errors(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"not-null-enforcer": "DROP", "type-length-enforcer": "ERROR"}
    for run in (run_stream, lambda plan: run_batch(spark, plan, "r1")):
        plan = sql_plan(script(tmp_path / "out", settings), tmp_path)
        with pytest.raises(FlowrunError, match=r"column 't' is CHAR\(3\), but .* has a value of another length"):
            run(plan)
    assert not lines(tmp_path / "out")
