"""The Kafka sink: a picklable description of the messages to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import TableDefinition
from flowrun.api.sink import Committer, RowCheck, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.formats.records import message_check
from flowrun.connectors.kafka.client_check import check_client
from flowrun.connectors.kafka.cluster import KafkaCluster, cluster_of
from flowrun.connectors.kafka.encoding import MESSAGES, MessageEncoder
from flowrun.connectors.kafka.layout import MessageLayout, layout_of
from flowrun.connectors.kafka.partitioner import DEFAULT, ROUND_ROBIN, PartitionChooser
from flowrun.connectors.kafka.producing import MessageProducer, excludes_idempotence, producer_settings
from flowrun.connectors.kafka.source import topics_of
from flowrun.connectors.kafka.transactions import TRANSACTION_TIMEOUT_MS, KafkaTransactions, begin
from flowrun.connectors.kafka.writer import KafkaWriter
from flowrun.connectors.staged.commit import STAGED_SHAPE, StagedCommitter
from flowrun.connectors.staged.writer import StagedWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.errors import OptionError

_DELIVERY = {
    "none": Delivery.AT_MOST_ONCE,
    "at-least-once": Delivery.AT_LEAST_ONCE,
    "exactly-once": Delivery.EXACTLY_ONCE,
}
_NEEDED = {
    "acks": "= 'all'",
    "request.required.acks": "= 'all'",
    "enable.idempotence": "= 'true'",
    "retries": "above 0",
    "message.send.max.retries": "above 0",
    "max.in.flight": "from 1 to 5",
    "max.in.flight.requests.per.connection": "from 1 to 5",
}
"""Of properties, for transactions."""


@record(slots=False)
class KafkaSink:
    """Writes each row as a message.

    Attributes:
        schema: the columns of the rows.
        metadata: those of them that say something of the message, each with its key.
        layout: where the others go.
        cluster: where the topics are.
        topics: the topics; with more than one, or none, rows name theirs.
        delivery: what it promises with checkpoints.
        prefix: what names of transactions begin with; for EXACTLY_ONCE only.
        partitioner: how partitions are chosen.
        topic_pattern: without topics: what matches the whole names of those that rows may name.
        upsert: rows are upserts by the message's key.
        most_rows: how many upserts are gathered; 0: none.
        interval_ms: how long they are gathered.
    """

    schema: Schema
    metadata: Mapping[str, str]
    layout: MessageLayout
    cluster: KafkaCluster
    topics: tuple[str, ...]
    delivery: Delivery
    prefix: str
    partitioner: str
    topic_pattern: str | None = None
    upsert: bool = False
    most_rows: int = 0
    interval_ms: int = 0

    @property
    def changes_taken(self) -> ChangesTaken:
        """Upserts by key; else all changes if the format carries them, or inserts only."""
        if self.upsert:
            return ChangesTaken.UPSERT
        return ChangesTaken.ALL if self.layout.value.format.changelog else ChangesTaken.APPEND

    @property
    def committable_shape(self) -> Shape:
        """Rows that wait for their commit."""
        return STAGED_SHAPE

    @property
    def topic(self) -> str:
        """The topic of messages that name none."""
        return self.topics[0] if self.topics else ""

    def encoder(self) -> MessageEncoder:
        """What makes messages of rows."""
        return MessageEncoder(
            self.schema, self.metadata, self.layout, self.topics, self.topic_pattern, upsert=self.upsert
        )

    def create_check(self) -> RowCheck | None:
        """A check for values that the format cannot write; None: it can write all values."""
        value = self.layout.value
        return message_check(value.format.create_encoder(value.columns, value.options), value.columns.names)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        chooser = PartitionChooser(self.partitioner, self.topics, context.subtask)
        if self.delivery is Delivery.EXACTLY_ONCE and context.staging:
            return KafkaStagedWriter(self, chooser, context)
        settings = {} if self.delivery is Delivery.EXACTLY_ONCE else _client_settings(self.delivery, self.prefix)
        return KafkaWriter(
            MessageProducer(self.cluster, self.topic, settings),
            self.encoder(),
            chooser,
            context,
            waits_for_acknowledgement=self.delivery is not Delivery.AT_MOST_ONCE,
            most_rows=self.most_rows,
            interval_ms=self.interval_ms,
        )

    def create_committer(self) -> Committer | None:
        """A committer of staged rows, if the sink is exactly once."""
        if self.delivery is not Delivery.EXACTLY_ONCE:
            return None
        return StagedCommitter(lambda: KafkaTransactions(self.cluster, self.topic, self.prefix))


class KafkaStagedWriter(StagedWriter):
    """Encodes rows, and lets them wait beside the checkpoint."""

    def __init__(self, sink: KafkaSink, chooser: PartitionChooser, context: WriterContext) -> None:
        encoder = sink.encoder()

        def encode(batch: RecordBatch) -> pa.RecordBatch:
            return chooser.chosen(encoder.encode(batch))

        super().__init__(context, MESSAGES, encode)
        self._sink = sink
        self._chooser = chooser
        self._is_first = context.subtask == 0

    def open(self) -> None:
        """Check that the topics are there and that the cluster allows such transactions: else nobody would know before the first commit.

        It blocks on I/O. Raises ConnectorError and OptionError.
        """
        sink = self._sink
        settings = _client_settings(sink.delivery, f"{sink.prefix}-check")
        if not self._is_first:
            del settings["transactional.id"]
        producer = MessageProducer(sink.cluster, sink.topic, settings)
        try:
            self._chooser.open(producer)
            if self._is_first:
                begin(producer, sink.cluster)
        finally:
            producer.close()


def create_sink(table: TableDefinition, *, upsert: bool = False) -> KafkaSink:
    """The sink of a table definition.

    Raises:
        OptionError: an option is wrong, or a format cannot write a column.
    """
    options = table.options
    layout = layout_of(table, table.physical, upsert=upsert)
    for part in (layout.value, *([] if layout.key is None else [layout.key])):
        part.format.create_encoder(part.stored(part.columns), part.options)  # so that wrong options are refused now
    topics, pattern = topics_of(table)
    if len(topics) != 1 and "topic" not in table.metadata.values():
        raise OptionError(
            "topic",
            f"sink '{table.name}' has several topics, but no column says which one a row goes to",
            hint="name one topic, or add a column: topic STRING METADATA",
        )
    delivery = _DELIVERY[options.text("sink.delivery-guarantee")]
    prefix = str(options.get("sink.transactional-id-prefix") or "")
    if delivery is Delivery.EXACTLY_ONCE:
        if not prefix:
            raise OptionError(
                "sink.transactional-id-prefix",
                "'sink.delivery-guarantee' = 'exactly-once' needs 'sink.transactional-id-prefix'",
                hint="a name that no other application of the cluster uses",
            )
        if not topics:
            raise OptionError("topic", "'exactly-once' needs 'topic': a pattern is not enough")
        _check_transactional(table)
    if table.options.get("properties.transactional.id") is not None:
        raise OptionError(
            "properties.transactional.id",
            f"sink '{table.name}': transactions are named by the sink",
            hint="leave it out; 'sink.delivery-guarantee' = 'exactly-once' and 'sink.transactional-id-prefix' write in transactions",
        )
    partitioner = DEFAULT if upsert else options.text("sink.partitioner")
    if partitioner == ROUND_ROBIN and layout.key is not None:
        raise OptionError("sink.partitioner", "'round-robin' would deal messages with one key to several partitions")
    rows, interval = _buffer(table, upsert)
    cluster = cluster_of(options)
    check_client(options, cluster, "Producer", producer_settings(cluster, _client_settings(delivery, prefix)))
    return KafkaSink(
        schema=table.schema,
        metadata=dict(table.metadata),
        layout=layout,
        cluster=cluster,
        topics=topics,
        delivery=delivery,
        prefix=prefix,
        partitioner=partitioner,
        topic_pattern=pattern,
        upsert=upsert,
        most_rows=rows,
        interval_ms=interval,
    )


def _client_settings(delivery: Delivery, transactional_id: str) -> dict[str, Any]:
    """What a client needs for a delivery guarantee."""
    match delivery:
        case Delivery.AT_MOST_ONCE:
            return {"acks": "1", "enable.idempotence": False}
        case Delivery.EXACTLY_ONCE:
            return {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "transactional.id": transactional_id}
        case _:
            return {}


def _check_transactional(table: TableDefinition) -> None:
    """Raise OptionError if the user's properties exclude transactions."""
    given = {name: str(value) for name, value in table.options.under("properties").items() if value is not None}
    name = excludes_idempotence(given)
    if name is None and given.get("enable.idempotence", "true").strip().lower() != "true":
        name = "enable.idempotence"
    if name is not None:
        raise OptionError(
            f"properties.{name}",
            f"'sink.delivery-guarantee' = 'exactly-once' needs 'properties.{name}' {_NEEDED[name]}, got '{given[name]}'",
            hint="leave it out",
        )


def _buffer(table: TableDefinition, upsert: bool) -> tuple[int, int]:
    if not upsert:
        return 0, 0
    names: Sequence[str] = ("sink.buffer-flush.max-rows", "sink.buffer-flush.interval")
    rows, interval = (table.options.integer(n) for n in names)
    if bool(rows) != bool(interval):
        raise OptionError(names[0], f"'{names[0]}' and '{names[1]}' must both be 0, or both more")
    return rows, interval
