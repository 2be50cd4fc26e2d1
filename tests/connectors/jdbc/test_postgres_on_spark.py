"""Batches on Spark with tables of a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connectors.jdbc.test_postgres_pipelines import script, table
from tests.servers.postgres import PostgresDatabase
from tests.spark.files import sql_plan
from tests.spark.test_outputs import run_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.exhaustive


def test_tables_are_read_joined_and_written(spark: SparkSession, postgres: PostgresDatabase, tmp_path: Path) -> None:
    postgres.execute(
        "CREATE TABLE orders AS SELECT i::bigint AS id, i % 3 AS customer, (i * 0.25)::numeric(12,2) AS amount, "
        "timestamptz '2024-01-01 00:00:00.123456+00' AS seen FROM generate_series(1, 5000) i;"
        "CREATE TABLE customers (id int PRIMARY KEY, name text); INSERT INTO customers VALUES (0, 'Ann'), (1, 'Bob');"
        "CREATE TABLE copied (id bigint, amount numeric(12,2), seen timestamptz);"
        "CREATE TABLE totals (name text PRIMARY KEY, n bigint, amount numeric(38,2));"
        "INSERT INTO totals VALUES ('Bob', 0, 0), ('Zoe', 1, 1)"
    )
    text = (
        table("orders", "id BIGINT, customer INT, amount DECIMAL(12, 2), seen TIMESTAMP_LTZ(6)")
        + table("customers", "id INT, name STRING")
        + table(
            "copied",
            "id BIGINT, amount DECIMAL(12, 2), seen TIMESTAMP_LTZ(6)",
            ", 'sink.delivery-guarantee' = 'exactly-once'",
        )
        + table("totals", "name STRING, n BIGINT, amount DECIMAL(38, 2), PRIMARY KEY (name) NOT ENFORCED")
        + "INSERT INTO copied SELECT id, amount, seen FROM orders WHERE id > 100;"
        + "INSERT INTO totals SELECT c.name, COUNT(*), SUM(o.amount) FROM orders AS o JOIN customers AS c "
        "ON o.customer = c.id GROUP BY c.name;"
    )
    run_batch(spark, sql_plan(script(tmp_path, postgres, text, postgres.password).read_text(), tmp_path), "r1")
    assert postgres.execute(
        "SELECT count(*), count(DISTINCT id), min(id), sum(amount) FROM copied"
    ) == postgres.execute("SELECT 4900::bigint, 4900::bigint, 101::bigint, sum(amount) FROM orders WHERE id > 100")
    assert postgres.execute("SELECT DISTINCT seen::text FROM copied") == [("2024-01-01 00:00:00.123456+00",)]
    expected = postgres.execute(
        "SELECT c.name, count(*), sum(o.amount) FROM orders o JOIN customers c ON o.customer = c.id GROUP BY 1 "
        "UNION ALL SELECT 'Zoe', 1, 1 ORDER BY 1"
    )
    assert postgres.execute("SELECT * FROM totals ORDER BY 1") == expected
