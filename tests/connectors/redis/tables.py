"""Tables of the connector `redis` as users declare them."""

from __future__ import annotations

from typing import Any

from flowrun.api.connector import TableDefinition
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.connectors.redis.connector import CONNECTOR
from flowrun.connectors.redis.lookup import RedisLookupSource
from flowrun.connectors.redis.sink import RedisSink
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema

URL = "redis://localhost:6379/0"


def table(schema: Schema, known: Any, given: dict[str, Any], **more: Any) -> TableDefinition:
    format_name = given.pop("format", None)
    own = (*known, *(prefixed_options(format_name) if format_name else ()))
    return TableDefinition("t", schema, parse_options(own, {"url": URL, **given}, "t")[0], format_name, **more)


def sink(schema: Schema, given: dict[str, Any], *keys: str) -> RedisSink:
    assert CONNECTOR.create_sink is not None
    made = CONNECTOR.create_sink(table(schema, CONNECTOR.sink_options, dict(given), primary_key=keys))
    assert isinstance(made, RedisSink)
    return made


def lookup(schema: Schema, wanted: Schema, given: dict[str, Any], *keys: str) -> RedisLookupSource:
    assert CONNECTOR.create_lookup is not None
    made = CONNECTOR.create_lookup(table(wanted, CONNECTOR.lookup_options, dict(given), declared=schema), keys)
    assert isinstance(made, RedisLookupSource)
    return made
