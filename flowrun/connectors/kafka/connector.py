"""The options of `kafka` and `upsert-kafka`, with the names of Apache Flink's, and the records that the registry finds."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from flowrun.api.connector import Connector, PlaceMatching, TablePlace
from flowrun.api.source import Delivery
from flowrun.connectors.formats.registry import ERROR_OPTIONS, RECORD_FORMATS
from flowrun.connectors.kafka.cluster import CLIENT
from flowrun.connectors.kafka.encoding import WRITABLE
from flowrun.connectors.kafka.messages import METADATA
from flowrun.connectors.kafka.sink import create_sink
from flowrun.connectors.kafka.source import create_source
from flowrun.core.options import Option, OptionType

_OF_CHANGES = ("canal", "debezium", "maxwell", "ogg")
FORMATS = RECORD_FORMATS

_SECRETS = (
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
)
_PROPERTIES = (
    Option(
        "properties.bootstrap.servers",
        OptionType.STRING,
        "Addresses of brokers, `host:port`, separated by commas.",
        required=True,
    ),
    Option(
        "properties.group.id",
        OptionType.STRING,
        "Consumer group: offsets are committed to it after each checkpoint, for monitoring, and `group-offsets` begins there.",
    ),
    *(
        Option(f"properties.{name}", OptionType.STRING, "A secret property of the client.", secret=True)
        for name in _SECRETS
    ),
    Option(
        "properties.#",
        OptionType.STRING,
        "Any property of Kafka's clients, e.g. `properties.security.protocol`; those that are of Java alone have no effect.",
    ),
)
_LAYOUT = (
    Option(
        "key.format",
        OptionType.STRING,
        "Format of the keys of messages; its options begin with `key.`: `key.json.ignore-parse-errors`.",
    ),
    Option(
        "value.format",
        OptionType.STRING,
        "Format of the values of messages, instead of `format`; its options then begin with `value.`.",
    ),
    Option(
        "key.fields-prefix",
        OptionType.STRING,
        "What the names of the columns in the key begin with in the table, so that they differ from the value's.",
    ),
    Option(
        "value.fields-include",
        OptionType.ENUM,
        "Whether the columns of the key are in the value, too.",
        default="all",
        choices=("all", "except_key"),
    ),
)
_KEY_FIELDS = Option("key.fields", OptionType.STRING, "Columns in the key, separated by `;`.")
_TOPIC = Option("topic", OptionType.STRING, "Topic, or several separated by `;`.")
_TOPIC_PATTERN = Option(
    "topic-pattern", OptionType.STRING, "Regular expression: all topics whose whole name matches are read."
)
_BOUNDED = (
    Option(
        "scan.bounded.mode",
        OptionType.ENUM,
        "Where to end: never, at what is there when the job begins, or at offsets.",
        default="unbounded",
        choices=("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
    ),
    Option(
        "scan.bounded.timestamp-millis",
        OptionType.INT,
        "With `timestamp`: end before the first message of this time (ms since 1970) or a later one.",
        minimum=0,
    ),
    Option(
        "scan.bounded.specific-offsets",
        OptionType.STRING,
        "With `specific-offsets`: `partition:0,offset:42;partition:1,offset:300`; these are not read any more; every partition needs one.",
    ),
)
_DISCOVERY = Option(
    "scan.topic-partition-discovery.interval",
    OptionType.DURATION,
    "How often to look for new topics and partitions, which are read from their beginning; 0: never.",
    default=300_000,
    minimum=0,
)
_STARTUP = (
    Option(
        "scan.startup.mode",
        OptionType.ENUM,
        "Where to begin without a checkpoint.",
        default="group-offsets",
        choices=("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
    ),
    Option(
        "scan.startup.timestamp-millis",
        OptionType.INT,
        "With `timestamp`: begin at the first message of this time (ms since 1970) or a later one.",
        minimum=0,
    ),
    Option(
        "scan.startup.specific-offsets",
        OptionType.STRING,
        "With `specific-offsets`: `partition:0,offset:42;partition:1,offset:300`; other partitions as with `group-offsets`.",
    ),
)

_DELIVERY = (
    Option(
        "sink.delivery-guarantee",
        OptionType.ENUM,
        "What holds after a failure, with checkpoints. `exactly-once`: rows wait beside the checkpoint, and are written in a "
        "transaction when it is complete; `at-least-once`: as they come.",
        default="at-least-once",
        choices=("none", "at-least-once", "exactly-once"),
    ),
    Option(
        "sink.transactional-id-prefix",
        OptionType.STRING,
        "What the names of transactions, and of the groups that record them, begin with; needed for `exactly-once`.",
    ),
)
_NAMING = Option(
    "sink.transaction-naming-strategy",
    OptionType.ENUM,
    "Known to Flink; there is one transaction at a time here, and its name stays the same.",
    default="incrementing",
    choices=("incrementing", "pooling"),
)
_PARTITIONER = Option(
    "sink.partitioner",
    OptionType.ENUM,
    "Which partition a message goes to. `default`: by the hash of its key, as Java's clients do, and any without a key; `fixed`: one for "
    "each subtask; `round-robin`: one after the other.",
    default="default",
    choices=("default", "fixed", "round-robin"),
)
_SINK_TOPIC = Option(
    "topic",
    OptionType.STRING,
    "Topic; or several separated by `;`, of which rows name one in a METADATA column `topic`.",
)
_SINK_PATTERN = Option(
    "topic-pattern",
    OptionType.STRING,
    "Instead of `topic`: regular expression that the whole names of topics match which rows name in a METADATA column `topic`.",
)
_BUFFER = (
    Option(
        "sink.buffer-flush.max-rows",
        OptionType.INT,
        "Gather this many rows, and write only the last one of each key; 0: write as they come.",
        default=0,
        minimum=0,
    ),
    Option(
        "sink.buffer-flush.interval",
        OptionType.DURATION,
        "Write what was gathered this often.",
        default=0,
        minimum=0,
    ),
)


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    servers = sorted(s.strip().lower() for s in str(options["properties.bootstrap.servers"]).split(","))
    system = f"kafka {','.join(servers)}"
    pattern = options.get("topic-pattern")
    if pattern is not None:
        return (TablePlace(system, str(pattern), PlaceMatching.PATTERN),)
    return tuple(TablePlace(system, topic.strip()) for topic in str(options["topic"]).split(";") if topic.strip())


KAFKA = Connector(
    name="kafka",
    summary="Topics of Apache Kafka.",
    source_options=(
        _TOPIC,
        _TOPIC_PATTERN,
        *_PROPERTIES,
        *_LAYOUT,
        _KEY_FIELDS,
        *_STARTUP,
        *_BOUNDED,
        _DISCOVERY,
        *ERROR_OPTIONS,
    ),
    sink_options=(_SINK_TOPIC, _SINK_PATTERN, *_PROPERTIES, *_LAYOUT, _KEY_FIELDS, *_DELIVERY, _NAMING, _PARTITIONER),
    create_source=create_source,
    create_sink=create_sink,
    formats=FORMATS,
    metadata=METADATA,
    writable_metadata=WRITABLE,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    client=CLIENT,
    places=_places,
    message_keys=True,
    begins_at=lambda ms: {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": ms},
    notes="Exactly once as a sink with `sink.delivery-guarantee`. See docs/connectors/kafka.md.",
)

UPSERT_KAFKA = Connector(
    name="upsert-kafka",
    summary="Topics of Apache Kafka whose messages are upserts: the last value of a key counts, and none deletes it.",
    source_options=(_TOPIC, _TOPIC_PATTERN, *_PROPERTIES, *_LAYOUT, *_BOUNDED, _DISCOVERY, *ERROR_OPTIONS),
    sink_options=(_SINK_TOPIC, _SINK_PATTERN, *_PROPERTIES, *_LAYOUT, *_DELIVERY, _NAMING, *_BUFFER),
    create_source=functools.partial(create_source, upsert=True),
    create_sink=functools.partial(create_sink, upsert=True),
    formats=tuple(f for f in FORMATS if not f.startswith(_OF_CHANGES)),
    metadata=METADATA,
    writable_metadata=WRITABLE,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    client=CLIENT,
    places=_places,
    message_keys=True,
    notes="The PRIMARY KEY is the key of the messages. Exactly once as a sink with `sink.delivery-guarantee`.",
)
