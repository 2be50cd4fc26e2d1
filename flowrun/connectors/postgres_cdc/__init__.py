"""The connector `postgres-cdc`: a table of PostgreSQL as it is, and then every change of it, from the server's write-ahead log."""

from flowrun.connectors.postgres_cdc.connector import CONNECTOR

__all__ = ["CONNECTOR"]
