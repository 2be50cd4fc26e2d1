"""The broker of the tests of this folder."""

from tests.servers.kafka import kafka  # noqa: F401
