"""The PostgreSQL server that these tests use. Tests that use it are exhaustive."""

from tests.servers.postgres import postgres, postgres_server  # noqa: F401
