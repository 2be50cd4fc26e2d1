"""The schema registry of these tests."""

from tests.servers.schema_registry import schema_registry  # noqa: F401
