"""The grids in Spark, once for the whole test run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowrun.spark.arrow import to_spark
from tests.spark.grids import SCHEMA, SIDE, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""A thousand expressions over some hundred rows take longest to compile: they are interpreted."""


@dataclass(frozen=True)
class Grid:
    """The same rows on both sides; column `place` numbers them.

    Attributes:
        frame, batch: all pairs of values.
        values, first: every value of the `a` columns once.
    """

    frame: DataFrame
    batch: pa.RecordBatch
    values: DataFrame
    first: pa.RecordBatch


@pytest.fixture(scope="session")
def grid_frames(spark: SparkSession) -> Grid:
    whole = table()
    some = whole.take(pa.array(range(0, whole.num_rows, SIDE)))
    some = some.set_column(0, "place", pa.array(range(some.num_rows), pa.int32()))
    frames = [to_spark(t, SCHEMA, spark).coalesce(1).cache() for t in (whole, some)]
    batches = [t.combine_chunks().to_batches()[0] for t in (whole, some)]
    return Grid(frames[0], batches[0], frames[1], batches[1])


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in INTERPRETED}
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    yield
    for key, earlier in before.items():
        if earlier is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, earlier)


@pytest.fixture
def grid(grid_frames: Grid, interpreted: None) -> Grid:
    return grid_frames
