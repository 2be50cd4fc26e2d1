"""One Spark session for the whole test run (of a worker). `tests/conftest.py` gives it to all tests: a second fixture of the same kind
would find Spark running, which does not take the settings of a start any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from flowrun.spark.session import SparkOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LITTLE_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM in which much code runs once: they halve the time."""
QUICK_JAVA = {f"spark.{process}.extraJavaOptions": LITTLE_JAVA for process in ("driver", "executor")}
"""Settings of Spark for such JVMs."""
CONF = {
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "3",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.driver.memory": "1g",
    **QUICK_JAVA,
}


def conf_options(conf: Mapping[str, str]) -> tuple[str, ...]:
    """Settings of Spark as options of the command line."""
    return tuple(word for key, value in conf.items() for word in ("--conf", f"{key}={value}"))


QUICK_RUN = conf_options({**QUICK_JAVA, "spark.sql.shuffle.partitions": "2"})
"""Options for a command that runs Spark in a process of its own, over few rows."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkOptions(master="local[2]", conf=CONF), "flowrun tests")
    yield session
    session.stop()
