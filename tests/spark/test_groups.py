"""The final table of an updating aggregation, on Spark and in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.plans import EVENTS, NONE, ONE, Table, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_groups(spark: SparkSession) -> None:
    by_key, by_double, *_ = assert_same(
        spark,
        [EVENTS],
        """
        SELECT k, COUNT(*), COUNT(v), SUM(v), AVG(v), MIN(s), MAX(v) FROM events GROUP BY k;
        SELECT d, COUNT(*) FROM events GROUP BY d;
        SELECT k AS v, v AS k, SUM(v + 1) FROM events GROUP BY k, v;
        SELECT DISTINCT k, s FROM events;
        SELECT SUM(n) FROM (SELECT k, COUNT(*) AS n FROM events GROUP BY k) GROUP BY n;
        """,
    )
    assert None in {row[0] for row in by_key}, "NULL is a key"
    assert tuple(sorted(row[0] for row in by_double if row[0] in ("0", "-0", "NaN"))) == ("0", "NaN")


def test_distinct_values_and_filters(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS],
        """
        SELECT k,
          COUNT(*) FILTER (WHERE v < 3), COUNT(DISTINCT v), COUNT(DISTINCT v) FILTER (WHERE v < 3), COUNT(DISTINCT v) FILTER (WHERE v >= 3),
          COUNT(DISTINCT s), COUNT(DISTINCT s) FILTER (WHERE v < 3), SUM(DISTINCT v), COUNT(DISTINCT d)
        FROM events GROUP BY k;
        """,
    )


def test_the_order_in_which_rows_came_counts(spark: SparkSession) -> None:
    assert_same(
        spark,
        [EVENTS],
        "SELECT k, FIRST_VALUE(v), LAST_VALUE(s), LISTAGG(s, ';'), ARRAY_AGG(v) FROM events GROUP BY k",
    )


def test_without_keys_there_is_one_group_once_there_is_a_row(spark: SparkSession) -> None:
    all_rows, one, filtered, nothing = assert_same(
        spark,
        [EVENTS, ONE, NONE],
        """
        SELECT COUNT(*), SUM(v) FROM events;
        SELECT COUNT(*), COUNT(DISTINCT k) FROM one;
        SELECT COUNT(*), SUM(v) FROM events WHERE v > 100;
        SELECT COUNT(*) FROM nothing;
        """,
    )
    assert all_rows.total() == one.total() == 1
    assert not filtered
    assert not nothing


def test_nan_is_the_greatest_of_a_group_only_if_there_is_nothing_else(spark: SparkSession) -> None:
    nan = float("nan")
    rows = [("a", nan, 1), ("a", 1.5, 2), ("a", -2.0, 3), ("b", nan, 4), ("b", None, 5), ("c", None, 6)]
    plain, filtered, narrow = assert_same(
        spark,
        [Table("numbers", "k STRING, d DOUBLE, v INT", rows)],
        """
        SELECT k, MIN(d), MAX(d) FROM numbers GROUP BY k;
        SELECT MAX(d) FILTER (WHERE v > 3) FROM numbers;
        SELECT MIN(CAST(d AS FLOAT)), MAX(CAST(d AS FLOAT)) FROM numbers;
        """,
    )
    assert set(plain) == {("a", "-2", "1.5"), ("b", "NaN", "NaN"), ("c", None, None)}
    assert (set(filtered), set(narrow)) == ({("NaN",)}, {("-2", "1.5")})
