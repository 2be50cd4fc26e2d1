"""The server of these tests."""

from tests.servers.redis import redis_client, redis_server  # noqa: F401
