"""The `iceberg` connector: Apache Iceberg tables as sources and sinks."""

from flowrun.connectors.iceberg.connector import CONNECTOR

__all__ = ["CONNECTOR"]
