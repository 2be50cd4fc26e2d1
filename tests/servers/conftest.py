"""The fixtures of all servers, for their own tests."""

from tests.servers.kafka import kafka  # noqa: F401
from tests.servers.postgres import postgres, postgres_server  # noqa: F401
