"""OVER on Spark: frames of rows and of time, over rows that only come and over rows that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.plans import EVENTS, NONE, ONE, Table, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGGREGATES = (
    "COUNT(*) OVER w, COUNT(v) OVER w, SUM(v) OVER w, MIN(v) OVER w, FIRST_VALUE(s) OVER w, LAST_VALUE(s) OVER w"
)
FINE = Table(
    "fine",
    "k STRING, v INT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    [
        ("a", 1, "2024-01-01T00:00:01.000700"),
        ("a", 2, "2024-01-01T00:00:01.000200"),
        ("a", 3, "2024-01-01T00:00:01.001000"),
    ],
)
"""Two rows of one millisecond."""
FINEST = Table("finest", FINE.columns.replace("(6)", "(9)"), [(k, v, f"{ts}123") for k, v, ts in FINE.rows])
"""The same in nanoseconds, which Spark has no type for."""


@pytest.mark.parametrize("partition", ["PARTITION BY k", ""])
def test_frames(partition: str, spark: SparkSession) -> None:
    windows = [
        "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    ]
    text = "".join(f"SELECT k, v, {AGGREGATES} FROM events WINDOW w AS ({partition} ORDER BY ts {w});" for w in windows)
    for rows in assert_same(spark, [EVENTS], text):
        assert rows.total() == len(EVENTS.rows)


def test_places_of_rows(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS, ONE, NONE],
        """
        SELECT k, s, ts, LAG(s) OVER w, LAG(v, 2, -1) OVER w, ROW_NUMBER() OVER w, RANK() OVER w, DENSE_RANK() OVER w
        FROM events WINDOW w AS (PARTITION BY k ORDER BY ts);
        SELECT k, LAG(s) OVER w, COUNT(*) OVER w FROM one WINDOW w AS (ORDER BY ts)
        UNION ALL SELECT k, LAG(s) OVER w, COUNT(*) OVER w FROM nothing WINDOW w AS (ORDER BY ts);
        """,
    )


def test_rows_of_one_millisecond_are_equal_in_time(spark: SparkSession) -> None:
    assert_same(
        spark,
        [FINE, FINEST],
        """
        SELECT v, SUM(v) OVER (ORDER BY ts), RANK() OVER (ORDER BY ts) FROM fine;
        SELECT v, SUM(v) OVER (ORDER BY ts), RANK() OVER (ORDER BY ts) FROM finest;
        SELECT v, window_time FROM TUMBLE(TABLE finest, DESCRIPTOR(ts), INTERVAL '5' SECOND);
        SELECT v, SUM(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM fine;
        """,
    )


def test_what_reads_the_rows_of_over_gets_them_in_its_order(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS],
        """
        CREATE VIEW counted AS SELECT k, v, s, ts, COUNT(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM events;
        SELECT s, SUM(n) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM counted;
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS r FROM counted) WHERE r <= 3;
        """,
    )


def test_by_processing_time_rows_are_in_order_of_arrival(spark: SparkSession) -> None:
    clock = Table("clock", f"{EVENTS.columns}, at AS PROCTIME()", EVENTS.rows)
    assert_same(
        spark,
        [clock],
        """
        SELECT k, s, SUM(v) OVER w, LAG(s) OVER (PARTITION BY k ORDER BY at) FROM clock
        WINDOW w AS (PARTITION BY k ORDER BY at ROWS BETWEEN 2 PRECEDING AND CURRENT ROW);
        SELECT k, s, SUM(v) OVER (PARTITION BY k ORDER BY at) FROM clock;
        """,
        times=False,
    )


def test_rows_that_change_are_in_any_order(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS],
        """
        CREATE VIEW totals AS SELECT k, v, COUNT(*) AS n, MAX(ts) AS last FROM events GROUP BY k, v;
        SELECT k, v, n, SUM(n) OVER w, LEAD(n, 1, 0) OVER w, NTILE(2) OVER w, PERCENT_RANK() OVER w, CUME_DIST() OVER w
        FROM totals WINDOW w AS (PARTITION BY k ORDER BY v DESC);
        SELECT k, v, n, SUM(n) OVER (ORDER BY k NULLS LAST, v NULLS LAST ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM totals;
        SELECT k, v, FIRST_VALUE(n) OVER (PARTITION BY k ORDER BY v DESC, n), SUM(n) OVER (PARTITION BY k ORDER BY v DESC, n) FROM totals;
        SELECT k, v, SUM(n) OVER (ORDER BY last RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) FROM totals;
        SELECT k, v, SUM(n) OVER (PARTITION BY k), COUNT(*) OVER (), n * 100.0 / SUM(n) OVER (PARTITION BY k),
          SUM(n) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN 1.5 PRECEDING AND 2 FOLLOWING),
          SUM(n) OVER (ORDER BY CAST(v AS DOUBLE) DESC RANGE BETWEEN 2.5 FOLLOWING AND UNBOUNDED FOLLOWING),
          COUNT(*) OVER (ORDER BY CAST(v AS DECIMAL(9, 2)) RANGE BETWEEN 3.25 PRECEDING AND 0.5 PRECEDING),
          MAX(n) OVER (ORDER BY k, v DESC ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING),
          SUM(n) OVER (ORDER BY last RANGE BETWEEN INTERVAL '1' SECOND FOLLOWING AND INTERVAL '9' SECOND FOLLOWING) FROM totals;
        """,
    )
