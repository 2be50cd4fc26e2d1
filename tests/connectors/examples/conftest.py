"""The servers of these tests."""

from tests.servers.kafka import kafka  # noqa: F401
from tests.servers.postgres import postgres, postgres_server  # noqa: F401
