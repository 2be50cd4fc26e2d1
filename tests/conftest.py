"""What holds for all tests, and what each of them may ask for: the servers and Spark, of which a process starts one of each at most."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from flowrun.masking import forget_secrets
from tests.servers.chromium import browser, chromium_driver
from tests.servers.http import http_server
from tests.servers.kafka import kafka
from tests.servers.kafka_mock import mock_kafka
from tests.servers.postgres import postgres, postgres_server
from tests.servers.redis import redis_client, redis_server
from tests.servers.s3 import s3
from tests.servers.schema_registry import schema_registry
from tests.spark.session_fixture import LITTLE_JAVA, spark

__all__ = [
    "browser",
    "chromium_driver",
    "http_server",
    "kafka",
    "mock_kafka",
    "postgres",
    "postgres_server",
    "redis_client",
    "redis_server",
    "s3",
    "schema_registry",
    "spark",
]

# Tests start hundreds of processes, each of which would compile what it imports for 0.6 s: byte code is kept, also where it is not usually.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples on every run, so that a red build is a changed program; `make soak` looks for new ones.
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True, scope="session")
def _caches_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither fill this user's caches nor depend on what is in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOWRUN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _spark_that_starts_soon() -> Iterator[None]:
    """Commands that tests start have a Spark whose JVM compiles little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", LITTLE_JAVA)
        yield


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """The secrets that a process knows are masked everywhere in it."""
    yield
    forget_secrets()
