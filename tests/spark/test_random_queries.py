"""Random queries over random data on Spark, with shuffled sources: the answer is what DuckDB answers over the finished tables.

The queries are those that the stream answers in `tests/sql/test_random_queries.py`. All run in one session.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.shuffled import run_on_spark, shuffled  # noqa: F401 - a fixture
from tests.sql import correlated_queries, test_ordered_aggregates
from tests.sql.random_queries import Shape
from tests.sql.test_random_queries import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = (0, 1, 2, 3, 4, 6, 8, 9, 10, 12, 21, 27, 35, 37, 103)
"""Every shape of query is among them."""
MORE_SHAPES = (
    correlated_queries.scalar, correlated_queries.membership, correlated_queries.quantified, correlated_queries.derived,
    correlated_queries.in_on, correlated_queries.lateral, test_ordered_aggregates.ordered, test_ordered_aggregates.distinct,
)  # fmt: skip
SOAK_SEEDS = 4000


@pytest.mark.usefixtures("shuffled")
@pytest.mark.parametrize("seed", SEEDS)
def test_spark_answers_what_a_database_answers(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    check(seed, spark, tmp_path)


@pytest.mark.usefixtures("shuffled")
@pytest.mark.parametrize("shape", MORE_SHAPES, ids=lambda s: s.__name__)
def test_spark_answers_what_a_database_answers_to_newer_forms(
    shape: Shape, spark: SparkSession, tmp_path: Path
) -> None:
    check(7, spark, tmp_path, shape)


@pytest.mark.soak
@pytest.mark.usefixtures("shuffled")
@pytest.mark.parametrize("seed", range(SOAK_SEEDS))
def test_more_of_them(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    check(seed, spark, tmp_path)


def check(seed: int, spark: SparkSession, folder: Path, shape: Shape | None = None) -> None:
    """One seed: make tables and a query, of a shape if one is given, run both, compare."""
    asked = ask(seed, folder, shape)
    run_on_spark(spark, asked.pipeline, {})
    asked.check_answer("on Spark")
