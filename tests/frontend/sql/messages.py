"""A connector of messages, in memory: some of their metadata can be read, some written, some both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.source import Source
from flowrun.connectors import memory, registry
from flowrun.core.types import BIGINT, BYTES, INT, STRING, map_of, timestamp_ltz

PROMPTED: list[TableDefinition] = []
"""What sinks and sources were made from, newest last."""


def _source(table: TableDefinition) -> Source:
    PROMPTED.append(table)
    return memory.MemorySource(table.options.text("table"), table.schema)


def _sink(table: TableDefinition) -> memory.MemorySink:
    PROMPTED.append(table)
    return memory.MemorySink(table.options.text("table"), table.schema, table.metadata)


CONNECTOR = replace(
    memory.CONNECTOR,
    name="messages",
    create_source=_source,
    create_sink=_sink,
    metadata=(("topic", STRING), ("offset", BIGINT), ("timestamp", timestamp_ltz(3)), ("tag", INT)),
    writable_metadata=(("timestamp", timestamp_ltz(3)), ("headers", map_of(STRING, BYTES)), ("tag", STRING)),
)
assert isinstance(CONNECTOR, Connector)


@contextmanager
def messages() -> Iterator[None]:
    """Within it the connector is known."""
    PROMPTED.clear()
    registry.BUILT_IN["messages"] = f"{__name__}:CONNECTOR"
    registry._targets.cache_clear()
    try:
        yield
    finally:
        del registry.BUILT_IN["messages"]
        registry._targets.cache_clear()
        memory.clear()
