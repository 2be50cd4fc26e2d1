"""The connectors `redis`: rows as strings, hashes, lists, sets and streams of Redis, and lookups by key."""

from flowrun.connectors.redis.connector import CONNECTOR

__all__ = ["CONNECTOR"]
