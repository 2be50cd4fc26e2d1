"""One Spark session for the whole test run (of a worker). `tests/conftest.py` gives it to all tests: a second fixture of the same kind
would find Spark running, which does not take the settings of a start any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from flowrun.spark.session import SparkOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "3",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # much code that runs once: halves the time
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkOptions(master="local[2]", conf=CONF), "flowrun tests")
    yield session
    session.stop()
