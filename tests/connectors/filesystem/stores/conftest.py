"""The server of these tests."""

from tests.servers.s3 import s3  # noqa: F401
