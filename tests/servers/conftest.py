"""The fixtures of all servers, for their own tests."""

from tests.servers.postgres import postgres, postgres_server  # noqa: F401
