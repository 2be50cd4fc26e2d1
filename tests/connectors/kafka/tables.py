"""Tables of Kafka as the front ends make them."""

from __future__ import annotations

from typing import Any

from flowrun.api.sink import Sink
from flowrun.connectors.kafka.source import KafkaSource
from flowrun.core.schema import Schema
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_sink, create_source


def reference(
    options: dict[str, Any], *, connector: str = "kafka", format: str | None = "json", **more: Any
) -> TableReference:
    given = {"properties.bootstrap.servers": "127.0.0.1:1", "topic": "t", **options}
    name = options.get("value.format", format)
    return TableReference("t", connector, {k: v for k, v in given.items() if v is not None}, name, **more)


def source(schema: Schema, options: dict[str, Any], *, declared: Schema | None = None, **more: Any) -> KafkaSource:
    made = create_source(reference(options, **more), schema, declared)
    assert isinstance(made, KafkaSource)
    return made


def sink(schema: Schema, options: dict[str, Any], *, updating: bool = False, **more: Any) -> Sink:
    return create_sink(reference(options, **more), schema, unbounded=True, updating=updating)
