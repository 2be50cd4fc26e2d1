"""The `hybrid` connector: sources that are read one after the other, as one table."""

from flowrun.connectors.hybrid.connector import CONNECTOR

__all__ = ["CONNECTOR"]
