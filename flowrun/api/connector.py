"""How a connector or format presents itself: its options and how it makes sources and sinks from a table definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum

from flowrun.api.client_library import ClientLibrary
from flowrun.api.functions import ValueFunction
from flowrun.api.lookup import LookupSource
from flowrun.api.sink import Sink
from flowrun.api.source import Delivery, Source
from flowrun.core.options import Option, Options, OptionValue
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType

PushedValue = bool | int | float | str | bytes | None


class Comparison(Enum):
    """Operators that may be pushed into a source."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


@record
class PushedFilter:
    """A conjunct `column op value` that a source may use to read less. It is evaluated again afterwards, so it is only a hint.

    `value` is a plain Python value in the column's Arrow domain: timestamps are ms since the epoch, decimals are strings.
    """

    column: str
    comparison: Comparison
    value: PushedValue = None


@record
class Distribution:
    """DISTRIBUTED BY: rows are dealt into buckets by the hash of some columns.

    Attributes:
        columns: empty: the connector chooses.
        buckets: None: the connector chooses.
    """

    columns: tuple[str, ...] = ()
    buckets: int | None = None


@record
class EventTime:
    """How the event time of a table's rows follows from its physical columns.

    Attributes:
        columns: names of the physical columns that it is computed from, in the order in which `value` gets them.
        column: the one that holds it as it is; None: it is computed.
        value: rows of `columns` → TIMESTAMP or TIMESTAMP_LTZ.
    """

    columns: tuple[str, ...]
    column: str | None
    value: ValueFunction


@record(slots=False)
class TableDefinition:
    """A table as the user declared it: what a connector needs to build a source or sink.

    Attributes:
        name: the user's name of the source or sink, for messages.
        schema: the columns; for a source those that are read (already pruned), physical ones in the declared order, then metadata. For a
            sink the physical columns, then those whose values the connector takes as metadata.
        options: parsed options of the connector and, with prefix removed from nothing, of the format.
        format: name of the format, or None for connectors without formats.
        partition_keys: PARTITIONED BY columns.
        primary_key: PRIMARY KEY columns.
        filters: hints for reading less (sources only).
        unbounded: for a sink: whether the job has an unbounded source.
        declared: for a source: all physical columns, pruned ones too; None: `schema` is all.
        metadata: columns of `schema` (and `declared`) that are no part of the stored rows, each with its metadata key. For a source the
            connector or format fills them (`Connector.metadata`). For a sink the connector takes them (`Connector.writable_metadata`):
            they have the types of their keys, and a format gets the rows of `physical` alone.
        updating: for a sink: whether the rows that it gets hold updates or deletes.
        distribution: DISTRIBUTED BY; None: nothing was said.
        source_watermarks: for a source: whether it is to send watermarks of its own (SOURCE_WATERMARK()); only asked of connectors that
            say that they do (`Connector.source_watermarks`).
        event_time: for a source: the event time of the table's watermark, if it has one; only told to connectors that ask for it
            (`Connector.uses_event_time`).
    """

    name: str
    schema: Schema
    options: Options
    format: str | None = None
    partition_keys: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    filters: tuple[PushedFilter, ...] = ()
    unbounded: bool = False
    declared: Schema | None = None
    updating: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    distribution: Distribution | None = None
    source_watermarks: bool = False
    event_time: EventTime | None = None

    @property
    def physical(self) -> Schema:
        """The columns of `schema` that are part of the stored rows."""
        return self.schema.select(n for n in self.schema.names if n not in self.metadata)


class PlaceMatching(Enum):
    """How the name under which a table is read finds what others write."""

    EXACT = "exact"
    """They are equal."""
    PATH = "path"
    """They are paths: a glob finds what it matches, and a folder what is in it, at any depth."""
    PATTERN = "pattern"
    """It is a regular expression that the whole name matches."""


@record
class TablePlace:
    """What a table is outside of flowrun: two pipelines that read or write the same place meet there.

    Attributes:
        system: the server and database, or the kind of store; without credentials.
        name: of the table, topic or folder there.
        matching: how a reader finds what others write; for a writer the name is always exact.
    """

    system: str
    name: str
    matching: PlaceMatching = PlaceMatching.EXACT

    def __str__(self) -> str:
        return f"{self.system} {self.name}"


@record
class Connector:
    """One connector: name, options and factories. `create_*` raise `OptionError` for combinations that cannot work.

    `create_source` / `create_sink` must be cheap and do no I/O beyond what validation needs: they run in `flowrun validate`.
    """

    name: str
    summary: str
    source_options: tuple[Option, ...] = ()
    """Of any table. Where others decide about them, these are for lists alone: see `source_options_for`."""
    sink_options: tuple[Option, ...] = ()
    create_source: Callable[[TableDefinition], Source] | None = None
    create_sink: Callable[[TableDefinition], Sink] | None = None
    formats: tuple[str, ...] = ()
    """Names of the formats it can use; empty if it has a row layout of its own."""
    needs_format: bool = True
    """Whether a table of one that can use formats must name one; False: options decide."""
    default_schema: Schema | None = None
    """Columns of a source that needs no declared schema (nexmark)."""
    notes: str = ""
    partitions: bool = False
    """Whether its sinks can keep rows apart by partition columns."""
    buckets: bool = False
    """Whether its sinks can deal rows into buckets."""
    reads_fields: bool = False
    """Whether its sources can read a ROW column with some of its fields only: their schema then has fewer than the declared one."""
    source_delivery: Delivery | None = None
    """What its sources promise after a restart, for lists; `Source.delivery` is what counts."""
    sink_delivery: Delivery | None = None
    """What its sinks promise when checkpoints are on, for lists; `Sink.delivery` is what counts."""
    metadata: tuple[tuple[str, DataType], ...] = ()
    """Keys of METADATA columns that its sources can fill, with their types: Flink's `SupportsReadingMetadata`."""
    writable_metadata: tuple[tuple[str, DataType], ...] = ()
    """Keys of METADATA columns, not VIRTUAL, that its sinks can take beside the row, with their types: Flink's `SupportsWritingMetadata`.
    A key need not be readable, too; if it is, it may have another type there."""
    source_watermarks: bool = False
    """Whether its sources send watermarks of their own where `TableDefinition.source_watermarks` asks for them: see `SourceOutput`."""
    lookup_options: tuple[Option, ...] = ()
    create_lookup: Callable[[TableDefinition, tuple[str, ...]], LookupSource] | None = None
    """(table, names of the columns to ask by) → its lookup; `schema` of the table are the columns wanted, `declared` all of them."""
    client: ClientLibrary | None = None
    """What must be installed to run it; its options and checks do without."""
    client_of: Callable[[Mapping[str, object]], ClientLibrary | None] | None = None
    """(checked options of a table) → what must be installed for it, where they decide; `client` then is what most tables need."""
    source_options_for: Callable[[Mapping[str, object]], tuple[Option, ...]] | None = None
    """(options as given, unchecked) → all options that such a source may be given; None: always `source_options`. It raises nothing."""
    parts_of: Callable[[Mapping[str, object]], Sequence[Mapping[str, object]]] | None = None
    """(checked options of a table) → for each table of another connector that it is made of its options, `connector` and `format` among
    them; None: it is made of none."""
    begins_at: Callable[[int], Mapping[str, OptionValue]] | None = None
    """(ms since the epoch) → options with which a source begins at this time: by the records' own time, that of their messages. It reads
    whatever comes behind the first record of this time or a later one. None: its sources know no such time."""
    uses_event_time: bool = False
    """Whether its sources are told the event time of their rows: `TableDefinition.event_time`."""
    reading_leaves: str | None = None
    """What its sources leave in the system that they read, such as a replication slot: such a table is not previewed. None: nothing."""
    places: Callable[[str, Mapping[str, object]], Sequence[TablePlace]] | None = None
    """(name of a table, its options as given and checked) → what it is outside. None: nothing that another pipeline could read or write."""
    message_keys: bool = False
    """Whether its records are messages with a key, which has a format of its own: `key.format`, with options under `key.`. The format may
    then be given as `value.format`, with options under `value.`."""


@record
class FormatOptions:
    """The options of one format, as declared: names without the format's prefix, e.g. `ignore-parse-errors`."""

    name: str
    summary: str
    options: tuple[Option, ...] = field(default=())
