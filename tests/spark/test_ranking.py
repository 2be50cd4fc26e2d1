"""Top-N, deduplication, top-N of windows and sorting end with the rows of the stream, ties included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.plans import EVENTS, NONE, ONE, Table, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = ["v DESC", "d, s DESC NULLS FIRST", "v NULLS LAST, ts"]


@pytest.mark.parametrize("function", ["ROW_NUMBER", "RANK", "DENSE_RANK"])
def test_top_rows_of_each_key(function: str, spark: SparkSession) -> None:
    text = "".join(
        f"SELECT * FROM (SELECT *, {function}() OVER (PARTITION BY k ORDER BY {order}) AS n FROM events) WHERE n <= 3;"
        for order in ORDERS
    )
    text += f"SELECT * FROM (SELECT *, {function}() OVER (ORDER BY v) AS n FROM events) WHERE n BETWEEN 2 AND 5;"
    text += f"SELECT k, s FROM (SELECT *, {function}() OVER (PARTITION BY v ORDER BY k) AS n FROM events) WHERE n = 2;"
    assert_same(spark, [EVENTS], text)


def test_limits(spark: SparkSession) -> None:
    first, *_, none, one = assert_same(
        spark,
        [EVENTS, ONE, NONE],
        """
        SELECT * FROM events LIMIT 3;
        SELECT * FROM events ORDER BY v DESC, d LIMIT 4;
        SELECT k, s FROM events ORDER BY s NULLS LAST LIMIT 3 OFFSET 2;
        SELECT k, v FROM events ORDER BY v LIMIT 100 OFFSET 40;
        SELECT * FROM nothing ORDER BY v LIMIT 2;
        SELECT * FROM one ORDER BY v LIMIT 2;
        """,
    )
    assert first.total() == 3
    assert (none.total(), one.total()) == (0, 1)


def test_one_row_of_each_key_by_event_time(spark: SparkSession) -> None:
    kept = "SELECT {0} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {1} ORDER BY ts {2}) AS n FROM {3}) WHERE n = 1;"
    text = "".join(kept.format("*", key, way, "events") for key in ("k", "v, s", "d") for way in ("", "DESC"))
    text += kept.format("s, k", "k", "DESC", "events") + kept.format("k", "k", "", "nothing")
    results = assert_same(spark, [EVENTS, NONE], text)
    assert not results[-1]


def test_one_row_of_each_key_by_arrival(spark: SparkSession) -> None:
    clock = Table("clock", f"{EVENTS.columns}, at AS PROCTIME()", EVENTS.rows)
    text = "".join(
        f"SELECT k, v, s, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at {way}) AS n FROM clock) WHERE n = 1;"
        for way in ("", "DESC")
    )
    assert_same(spark, [clock], text)


def test_top_rows_of_windows(spark: SparkSession) -> None:
    window = "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
    partition = "PARTITION BY window_start, window_end"
    calls = {
        f"ROW_NUMBER() OVER ({partition} ORDER BY v DESC)": "<= 2",
        f"RANK() OVER ({partition}, k ORDER BY s)": "BETWEEN 1 AND 2",
        f"ROW_NUMBER() OVER ({partition}, k ORDER BY ts DESC)": "= 1",
        f"ROW_NUMBER() OVER ({partition}, k ORDER BY ts)": "= 1",
    }
    text = "".join(f"SELECT * FROM (SELECT *, {c} AS n FROM {window}) WHERE n {bounds};" for c, bounds in calls.items())
    assert_same(spark, [EVENTS], text)


def test_rows_in_order_of_time(spark: SparkSession) -> None:
    (rows,) = assert_same(spark, [EVENTS], "SELECT k, v, ts FROM events ORDER BY ts, v DESC")
    assert rows.total() == len(EVENTS.rows)
