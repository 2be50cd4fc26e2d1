"""Tables of relational databases, by Flink's `jdbc` connector: read, looked up in, and written."""

from flowrun.connectors.jdbc.connector import CONNECTOR

__all__ = ["CONNECTOR"]
