"""ON CONFLICT in a batch: the rows, or the failure, of the stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.errors import FlowrunError
from tests.spark.plans import Table, assert_same
from tests.spark.plans import sql_plan as plan_of
from tests.spark.test_outputs import lines, run_batch, run_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = Table(
    "orders", "item STRING, who STRING", [("a", "ann"), ("b", "bob"), ("a", "ann"), ("c", "ann"), ("b", None), ("c", "ann"), ("c", "cid")]
)  # fmt: skip
SINK = "CREATE TABLE kept (n BIGINT, item STRING, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector'='blackhole');\n"


def test_rows_without_conflict_are_those_of_the_stream(spark: SparkSession) -> None:
    query = "SELECT COUNT(*) + CHAR_LENGTH(item), MAX(item) FROM orders WHERE item <> 'a' GROUP BY item"
    counted = f"INSERT INTO kept {query} ON CONFLICT DO ERROR"
    (rows,) = assert_same(spark, [ORDERS], SINK + counted, hosted=["ResolveConflicts"], times=False)
    assert rows == {(3, "b"): 1, (4, "c"): 1}


def test_rows_that_are_equal_are_one(spark: SparkSession) -> None:
    both = "INSERT INTO kept SELECT CHAR_LENGTH(who), who FROM orders WHERE who = 'ann' ON CONFLICT DO ERROR"
    (rows,) = assert_same(spark, [ORDERS], SINK + both, hosted=["ResolveConflicts"], times=False)
    assert rows == {(3, "ann"): 1}


def test_the_first_row_that_came_stays(spark: SparkSession) -> None:
    first = "INSERT INTO kept SELECT CHAR_LENGTH(item), who FROM orders ON CONFLICT DO NOTHING"
    (rows,) = assert_same(spark, [ORDERS], SINK + first, times=False)
    assert rows == {(1, "ann"): 1}


def test_a_conflict_fails_both(spark: SparkSession, tmp_path: Path) -> None:
    sink = SINK.replace("'blackhole'", f"'filesystem', 'format'='debezium-json', 'path'='{tmp_path / 'out'}'")
    text = sink + "INSERT INTO kept SELECT COUNT(*), item FROM orders GROUP BY item ON CONFLICT DO ERROR"
    said = r"sink 'kept': the query has 2 different rows for the primary key \{n: 2\}"
    for run in (run_stream, lambda plan: run_batch(spark, plan, "r1")):
        with pytest.raises(FlowrunError, match=said):
            run(plan_of([ORDERS], text))
    assert not lines(tmp_path)
