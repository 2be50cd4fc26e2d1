"""The options of the connector `redis`, and the record that the registry finds."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from flowrun.api.connector import Connector, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.formats.registry import BUILT_IN
from flowrun.connectors.redis.layout import LAYOUT_OPTIONS
from flowrun.connectors.redis.lookup import create_lookup
from flowrun.connectors.redis.server import CLIENT, DEFAULT_PORT, SERVER_OPTIONS
from flowrun.connectors.redis.sink import create_sink
from flowrun.core.options import Option, OptionType

FORMATS = tuple(sorted({"avro", "avro-confluent", "csv", "json", "protobuf", "raw"} & set(BUILT_IN)))
"""Those of single rows: a value is a row, and no change of one."""

_SINK = (
    Option(
        "sink.delivery-guarantee",
        OptionType.ENUM,
        "What holds after a failure, with checkpoints. `exactly-once`: rows wait beside the checkpoint, and are written between MULTI and "
        "EXEC when it is complete; `at-least-once`: as they come, which comes to the same where each key has a value.",
        default="at-least-once",
        choices=("at-least-once", "exactly-once"),
    ),
    Option(
        "sink.ttl",
        OptionType.DURATION,
        "With `string` and `hash`: how long a value stays after it was last written.",
        minimum=1,
    ),
)
_LOOKUP = (
    Option(
        "format.on-error",
        OptionType.ENUM,
        "What to do with a value that is no row of the table: stop the job, or take it for not there and count it.",
        default="fail",
        choices=("fail", "skip"),
    ),
)


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    parts = urlsplit(str(options["url"]))
    server = f"redis://{parts.hostname}:{parts.port or DEFAULT_PORT}/{parts.path.strip('/') or '0'}"
    return (TablePlace(server, str(options.get("key") or f"{options.get('key.prefix', '')}*")),)


CONNECTOR = Connector(
    name="redis",
    summary="Values of a Redis server: written by key or added to a list, set or stream, and looked up by key.",
    sink_options=(*SERVER_OPTIONS, *LAYOUT_OPTIONS, *_SINK),
    create_sink=create_sink,
    formats=FORMATS,
    needs_format=False,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    lookup_options=(*SERVER_OPTIONS, *LAYOUT_OPTIONS, *_LOOKUP),
    create_lookup=create_lookup,
    client=CLIENT,
    places=_places,
    notes="Exactly once as a sink with `sink.delivery-guarantee`. See docs/connectors/redis.md.",
)
