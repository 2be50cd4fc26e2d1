"""The connector `http`: rows as requests to an HTTP server, one or many a request, and lookups by key."""

from flowrun.connectors.http.connector import CONNECTOR

__all__ = ["CONNECTOR"]
