"""Columns may have any names: those of flowrun's own columns on Spark, odd characters, and names told apart by case."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from tests.spark.plans import Table, assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = Table(
    "odd",
    "`$time` INT, `$arrival` INT, `$window` INT, `$rank` INT, `a b` STRING, `A B` STRING, `b``k` INT, `é.€` INT, bucket INT, "
    "`value` ARRAY<INT>, ts TIMESTAMP(3), `TS` INT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    [
        (i, i % 5, i % 4, i % 3, "xy"[i % 2], "z", i % 3, 2 * i, i, [i, 1], dt.datetime(2024, 1, 1, 0, 0, i), i)
        for i in range(12)
    ],
)
LIKE_HIDDEN = """
CREATE VIEW hidden AS
SELECT `$time` AS `$at`, `$rank` AS `$each`, `$rank` AS `$end`, `$rank` AS `$before`, `$window`, `$time` AS `$element`,
  `$time` AS `$place`, `$rank` AS pos, `$rank` AS col, `value`, ts
FROM odd;
"""


def test_rows_and_groups(spark: SparkSession) -> None:
    assert_same(
        spark,
        [ODD],
        """
        SELECT * FROM odd;
        SELECT `$time`, `é.€` + 1 AS `$kind` FROM odd WHERE `b``k` > 0;
        SELECT `a b`, `A B`, COUNT(*) AS `$rows`, SUM(`é.€`) AS `c``d` FROM odd GROUP BY `a b`, `A B`;
        SELECT COUNT(*) AS `$rows` FROM odd;
        SELECT `$rank`, `$window`, COUNT(*) AS `$set` FROM odd GROUP BY GROUPING SETS ((`$rank`), (`$window`));
        SELECT `$time`, `$rank` FROM odd UNION ALL SELECT `TS`, `$rank` FROM odd;
        """,
    )


def test_rows_in_order(spark: SparkSession) -> None:
    assert_same(
        spark,
        [ODD],
        """
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `a b` ORDER BY `$rank`) AS rn FROM odd) WHERE rn <= 2;
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `$rank` ORDER BY ts) AS rn FROM odd) WHERE rn = 1;
        SELECT *, SUM(`é.€`) OVER (PARTITION BY `a b` ORDER BY ts ROWS 1 PRECEDING) AS `$order` FROM odd;
        SELECT * FROM odd ORDER BY `$rank` DESC LIMIT 4;
        """,
    )


def test_windows_and_elements(spark: SparkSession) -> None:
    assert_same(
        spark,
        [ODD],
        LIKE_HIDDEN
        + """
        SELECT * FROM TABLE(HOP(TABLE hidden, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '8' SECOND));
        SELECT * FROM TABLE(SESSION(TABLE hidden PARTITION BY `$window`, DESCRIPTOR(ts), INTERVAL '4' SECOND));
        SELECT `$at`, `$end`, COUNT(*), MAX(`$each`) FROM TABLE(CUMULATE(TABLE hidden, DESCRIPTOR(ts), INTERVAL '2' SECOND,
          INTERVAL '4' SECOND)) GROUP BY `$at`, `$end`, window_start, window_end;
        SELECT * FROM hidden CROSS JOIN UNNEST(`value`) WITH ORDINALITY AS t(`$key`, `$value`);
        """,
    )


def test_joins(spark: SparkSession) -> None:
    assert_same(
        spark,
        [ODD],
        """
        SELECT l.`$time`, r.`a b`, r.`TS`, r.ts FROM odd AS l JOIN odd AS r ON l.`$time` = r.`é.€`;
        SELECT l.`$time`, r.`$time`, l.bucket, r.bucket FROM odd AS l JOIN odd AS r
          ON l.`$rank` = r.`$rank` AND l.ts BETWEEN r.ts AND r.ts + INTERVAL '3' SECOND;
        CREATE VIEW versions AS SELECT * FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY `$rank` ORDER BY ts DESC) AS rn FROM odd) WHERE rn = 1;
        SELECT l.`$time`, r.`$arrival`, r.ts FROM odd AS l LEFT JOIN versions FOR SYSTEM_TIME AS OF l.ts AS r ON l.`$rank` = r.`$rank`;
        """,
    )
