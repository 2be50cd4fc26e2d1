"""The `delta` connector: Delta Lake tables as sources and sinks."""

from flowrun.connectors.delta.connector import CONNECTOR

__all__ = ["CONNECTOR"]
