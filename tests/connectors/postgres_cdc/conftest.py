"""The server of these tests."""

from tests.servers.postgres import postgres, postgres_server  # noqa: F401
