"""The Kafka source: a picklable description of the partitions to read and of the rows in their messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import PushedFilter, TableDefinition
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    SplitEnumerator,
    split_list,
)
from flowrun.connectors.formats.record_hints import bad_record_hint
from flowrun.connectors.formats.registry import error_mode
from flowrun.connectors.kafka.client_check import check_client
from flowrun.connectors.kafka.cluster import cluster_of
from flowrun.connectors.kafka.decoding import MessageDecoder
from flowrun.connectors.kafka.enumerator import PartitionEnumerator, PartitionScan
from flowrun.connectors.kafka.fetcher import PartitionFetcher, consumer_settings
from flowrun.connectors.kafka.layout import MessageLayout, layout_of
from flowrun.connectors.kafka.offsets import ScanMode, ScanPlace, end_of, startup_of
from flowrun.connectors.kafka.reader import KafkaSourceReader
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.row_errors import OnError
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, listed, members, optional, text
from flowrun.errors import OptionError

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_POSITION = members({"topic": text, "partition": integer(), "offset": integer(), "stop": optional(integer())})
_KNOWN = members({"topic": text, "partition": integer()})


@record(slots=False)
class KafkaSource:
    """Reads the messages of topics; each partition is one split.

    Attributes:
        name: of the table, for messages.
        schema: the columns of the rows.
        metadata: those of them that are metadata, each with its key.
        layout: where the others are in a message.
        scan: the partitions.
        on_error: what becomes of messages that are no rows.
        upsert: messages are upserts by key.
        filters: hints for reading less.
    """

    name: str
    schema: Schema
    metadata: Mapping[str, str]
    layout: MessageLayout
    scan: PartitionScan
    on_error: OnError
    upsert: bool = False
    filters: tuple[PushedFilter, ...] = field(default=())

    @property
    def boundedness(self) -> Boundedness:
        """Bounded if the scan has an end."""
        return Boundedness.UNBOUNDED if self.scan.end is None else Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: partitions are read again from exact offsets."""
        return Delivery.EXACTLY_ONCE

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Upserts, or what the format of the value makes of messages."""
        if self.upsert:
            return ChangelogMode.UPSERT
        return self.layout.value.format.changelog_mode(self.layout.value.options)

    @property
    def position_shape(self) -> Shape:
        """A partition with the offset to read next, and the one to end at."""
        return _POSITION

    @property
    def enumerator_shape(self) -> Shape:
        """The partitions that were not handed out, and all that were found."""
        return members({"pending": split_list(_POSITION), "known": listed(_KNOWN)})

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator of the partitions."""
        return PartitionEnumerator(self.scan, parallelism, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader of some partitions, with a thread of its own."""
        cluster = self.scan.cluster
        decoder = MessageDecoder(self.schema, self.metadata, self.layout, self.filters, upsert=self.upsert)
        names, format_name = self.layout.value.columns.names, self.layout.value.format_name
        return KafkaSourceReader(
            lambda notify, committed: PartitionFetcher(
                cluster, decoder, notify, committed, bounded=self.scan.end is not None
            ),
            self.on_error,
            lambda raw, reason: bad_record_hint(raw, reason, names, format_name),
            context,
            commits=cluster.group is not None,
        )


def create_source(table: TableDefinition, *, upsert: bool = False) -> KafkaSource:
    """The source of a table definition.

    Raises:
        OptionError: an option is wrong, or a format cannot read a column.
    """
    options = table.options
    declared = table.declared or table.schema
    physical = declared.select(n for n in declared.names if n not in table.metadata)
    layout = layout_of(table, physical, upsert=upsert)
    topics, pattern = topics_of(table)
    end = end_of(options)
    interval = options.integer("scan.topic-partition-discovery.interval") if end is None else 0
    startup = ScanPlace(ScanMode.EARLIEST) if upsert else startup_of(options)
    cluster = cluster_of(options)
    check_client(options, cluster, "Consumer", consumer_settings(cluster, bounded=end is not None))
    return KafkaSource(
        name=table.name,
        schema=table.schema,
        metadata=dict(table.metadata),
        layout=layout,
        scan=PartitionScan(cluster, topics, pattern, startup, end, interval or None),
        on_error=error_mode(layout.value.options, layout.value.format_name),
        upsert=upsert,
        filters=table.filters,
    )


def topics_of(table: TableDefinition) -> tuple[tuple[str, ...], str | None]:
    """(names of topics, a pattern for names), one of which is given.

    Raises:
        OptionError: none or both are, or a name or the pattern is none.
    """
    names = tuple(n.strip() for n in str(table.options.get("topic") or "").split(";") if n.strip())
    pattern = table.options.get("topic-pattern")
    if names and pattern is not None:
        raise OptionError("topic-pattern", "'topic' and 'topic-pattern' cannot both be given")
    if not names and pattern is None:
        raise OptionError(
            "topic", "'topic' or 'topic-pattern' is needed", hint="'topic' = 'orders'; several are separated by ';'"
        )
    wrong = [name for name in names if not _TOPIC_NAME.fullmatch(name) or name in (".", "..")]
    if wrong:
        raise OptionError(
            "topic",
            f"'{wrong[0]}' is no name of a topic",
            hint="names have up to 249 letters of ASCII, digits, '.', '_' and '-'; several are separated by ';'",
        )
    try:
        re.compile(str(pattern or ""))
    except re.error as error:
        raise OptionError(
            "topic-pattern", f"'topic-pattern' is no regular expression: {error}, got '{pattern}'"
        ) from None
    return names, None if pattern is None else str(pattern)
