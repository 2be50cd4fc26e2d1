"""The `filesystem` connector: files and folders as sources and sinks."""

from flowrun.connectors.filesystem.connector import CONNECTOR

__all__ = ["CONNECTOR"]
