"""What connectors say of themselves in lists is what their sources and sinks promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.connectors.memory import put
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_sink, create_source

_TOPIC = {"topic": "t", "properties.bootstrap.servers": "localhost:9092", "properties.group.id": "g"}
OPTIONS: dict[str, dict[str, object]] = {
    "kafka": {**_TOPIC, "scan.startup.mode": "earliest-offset"},
    "memory": {"table": "t"},
    "socket": {"hostname": "localhost", "port": 1},
    "upsert-kafka": {**_TOPIC, "key.format": "json"},
    "jdbc": {"url": "jdbc:postgresql://localhost/db", "table-name": "t"},
    "postgres-cdc": {
        "hostname": "localhost",
        "database-name": "d",
        "table-name": "t",
        "username": "u",
        "slot.name": "s",
    },
    "http": {"url": "http://localhost:8000/rows"},
    "redis": {"url": "redis://localhost:6379/0", "type": "list", "key": "k"},
}
KEYS = {"postgres-cdc": ("id",), "upsert-kafka": ("id",)}
FORMATS = {
    "filesystem": "json",
    "http": "json",
    "kafka": "json",
    "redis": "json",
    "socket": "raw",
    "upsert-kafka": "json",
}


@pytest.mark.parametrize("name", connector_names())
def test_lists_say_what_is_promised(name: str, tmp_path: Path) -> None:
    put("t", [])
    part = {"connector": "filesystem", "path": str(tmp_path), "format": "json"}
    hybrid = {f"{n}.{key}": value for n in "ab" for key, value in part.items()}
    options = {**OPTIONS, "filesystem": {"path": str(tmp_path)}, "delta": {"table-path": str(tmp_path)}}
    options["hybrid"] = {"source-identifiers": "a,b", **hybrid}
    options["iceberg"] = {"catalog-name": "c", "catalog-type": "in-memory", "warehouse": str(tmp_path)}
    connector = connector_named(name)
    table = TableReference("t", name, options.get(name, {}), FORMATS.get(name), primary_key=KEYS.get(name, ()))
    schema = connector.default_schema or Schema.of(id=STRING if FORMATS.get(name) == "raw" else BIGINT)
    if connector.create_source is not None:
        assert connector.source_delivery is create_source(table, schema).delivery
    if connector.create_sink is not None:
        assert connector.sink_delivery is create_sink(table, schema, unbounded=False).delivery
