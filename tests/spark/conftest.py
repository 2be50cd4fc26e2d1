"""One Spark session for the whole test run (of a worker)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowrun.spark.session import SparkOptions, open_session
from tests.end_to_end.conftest import flowrun, own_registry
from tests.spark.grid_fixture import grid, grid_frames, interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["flowrun", "grid", "grid_frames", "interpreted", "own_registry", "spark"]

CONF = {
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "3",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # much code that runs once: halves the time
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The tests of this folder are `exhaustive`, but for those that are marked `everyday`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("everyday") is None:
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkOptions(master="local[2]", conf=CONF), "flowrun tests")
    yield session
    session.stop()
