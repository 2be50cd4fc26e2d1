"""The `memory` connector: named tables in this process, as sources and sinks of tests and notebooks.

A test puts batches under a name, runs a pipeline that reads that name, and takes what a sink collected under another. The tables
belong to the process: they do not reach other processes and do not survive it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import cast

import pyarrow as pa

from flowrun.api.changelog import ChangelogMode, ChangesTaken
from flowrun.api.connector import Connector, TableDefinition, TablePlace
from flowrun.api.sink import SinkWriter, WriterContext
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.connectors.held_rows import HeldElement, HeldRowsReader, held_rows_position
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.memory_lookup import MemoryLookupSource
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.options import Option, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer
from flowrun.core.types import BYTES, STRING, DataType, map_of, timestamp_ltz
from flowrun.errors import OptionError, did_you_mean


@record
class WrittenRows:
    """The rows that a sink wrote at once.

    Attributes:
        rows: the physical columns of the table.
        metadata: the metadata of these rows, row by row, in columns that are named by their keys. Keys that the table does not write are
            not there.
    """

    rows: RecordBatch
    metadata: pa.RecordBatch


_lock = threading.Lock()
_inputs: dict[str, tuple[tuple[HeldElement, ...], ...]] = {}
_outputs: dict[str, list[WrittenRows]] = {}

METADATA: tuple[tuple[str, DataType], ...] = (
    ("timestamp", timestamp_ltz(3)),
    ("key", BYTES),
    ("headers", map_of(STRING, BYTES)),
)
"""The metadata that a message of a broker has, so that a pipeline can be tried without one."""

OPTIONS = (Option("table", OptionType.STRING, "Name under which the process keeps the rows.", required=True),)


def put(table: str, *partitions: Sequence[pa.RecordBatch | HeldElement]) -> None:
    """Set the rows that a memory source reads: one or more partitions, each a sequence of batches read in order.

    Between batches there may be a `Watermark` (later rows of the partition with an event time at or below it are late) or `IDLE` (the
    partition does not hold back event time until its next row or watermark). They are sent for tables with `WATERMARK FOR ts AS
    SOURCE_WATERMARK()`, and left out for others.
    """
    with _lock:
        _inputs[table] = tuple(
            tuple(RecordBatch(e) if isinstance(e, pa.RecordBatch) else e for e in elements) for elements in partitions
        )


def take(table: str) -> list[RecordBatch]:
    """Give the batches that sinks wrote under this name, in the order in which they came and without metadata, and forget them."""
    return [written.rows for written in take_with_metadata(table)]


def take_with_metadata(table: str) -> list[WrittenRows]:
    """Give the rows that sinks wrote under this name, in the order in which they came and with their metadata, and forget them."""
    with _lock:
        return _outputs.pop(table, [])


def remove(table: str) -> None:
    """Forget the rows that were put under this name."""
    with _lock:
        _inputs.pop(table, None)


def clear() -> None:
    """Forget all tables."""
    with _lock:
        _inputs.clear()
        _outputs.clear()


@record
class MemorySource:
    """Reads the partitions that were put under the name `table`; each partition is one split.

    Attributes:
        watermarks: whether it sends the watermarks that were put between the batches.
    """

    table: str
    schema: Schema
    watermarks: bool = False

    @property
    def boundedness(self) -> Boundedness:
        """Bounded: the source ends after the batches that are there."""
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once, as long as the process lives."""
        return Delivery.EXACTLY_ONCE

    def estimated_rows(self) -> int | None:
        """The rows of all batches."""
        return sum(b.num_rows for b in _batches(self.table))

    @property
    def in_process(self) -> bool:
        """The tables are this process's own."""
        return True

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Append if no batch has row kinds; upsert if there are rows after updates but none before them; else retract."""
        given = [b.row_kinds for b in _batches(self.table) if b.row_kinds is not None]
        kinds = set(pa.chunked_array(given).unique().to_pylist()) if given else set()
        if RowKind.UPDATE_AFTER in kinds and RowKind.UPDATE_BEFORE not in kinds:
            return ChangelogMode.UPSERT
        return ChangelogMode.RETRACT if given else ChangelogMode.APPEND

    @property
    def position_shape(self) -> Shape:
        """The number of a partition, and how far it was read."""
        return held_rows_position({"partition": integer(0, len(_inputs.get(self.table, ())) - 1)})

    @property
    def enumerator_shape(self) -> Shape:
        """The partitions that were not handed out."""
        return split_list(self.position_shape)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator that hands out the partitions."""
        splits = [Split(f"{self.table}-{i}", {"partition": i}) for i in range(len(_inputs[self.table]))]
        return ListedSplitEnumerator(splits, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader that gives the batches as they were put; batches that are larger than a reader may give are cut."""
        return HeldRowsReader(self.schema, self._elements, context, watermarks=self.watermarks)

    def _elements(self, split: Split) -> tuple[HeldElement, ...]:
        return _inputs[self.table][cast(int, split.position["partition"])]


def _batches(table: str) -> list[RecordBatch]:
    return [e for elements in _inputs.get(table, ()) for e in elements if isinstance(e, RecordBatch)]


@record
class MemorySink:
    """Collects rows under the name `table`.

    Attributes:
        metadata: columns of `schema` that are kept as metadata, each with its key.
    """

    table: str
    schema: Schema
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def delivery(self) -> Delivery:
        """At least once: rows that were collected before a failure are collected again after it."""
        return Delivery.AT_LEAST_ONCE

    @property
    def in_process(self) -> bool:
        """The tables are this process's own."""
        return True

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes, as they come."""
        return ChangesTaken.ALL

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        return _MemoryWriter(self)

    def create_committer(self) -> None:
        """Nothing to commit."""


class _MemoryWriter(ImmediateWriter):
    def __init__(self, sink: MemorySink) -> None:
        self._table = sink.table
        self._metadata = sink.metadata
        self._physical = [n for n in sink.schema.names if n not in sink.metadata]

    def write(self, batch: RecordBatch) -> None:
        """Keep the rows."""
        metadata = batch.columns.select(list(self._metadata)).rename_columns(list(self._metadata.values()))
        if self._metadata:
            batch = batch.with_columns(batch.columns.select(self._physical))
        with _lock:
            _outputs.setdefault(self._table, []).append(WrittenRows(batch, metadata))


def _create_source(table: TableDefinition) -> MemorySource:
    name = table.options.text("table")
    if name not in _inputs:
        raise OptionError(
            "table",
            f"memory: nothing was put under '{name}' in this process",
            hint=did_you_mean(name, _inputs) or "call flowrun.connectors.memory.put(name, batches) first",
        )
    return MemorySource(name, table.schema, table.source_watermarks)


def _create_lookup(table: TableDefinition, keys: tuple[str, ...]) -> MemoryLookupSource:
    name, declared = table.options.text("table"), table.declared or table.schema
    key_schema = Schema(tuple(declared.fields[declared.index(k)] for k in keys))
    return MemoryLookupSource(partial(_batches, name), table.schema, key_schema)


def _places(_: str, options: Mapping[str, object]) -> tuple[TablePlace, ...]:
    return (TablePlace("memory", str(options["table"])),)


CONNECTOR = Connector(
    name="memory",
    summary="Named tables in this process, for tests and notebooks.",
    source_options=OPTIONS,
    sink_options=OPTIONS,
    lookup_options=OPTIONS,
    create_lookup=_create_lookup,
    create_source=_create_source,
    create_sink=lambda table: MemorySink(table.options.text("table"), table.schema, table.metadata),
    writable_metadata=METADATA,
    places=_places,
    source_delivery=Delivery.EXACTLY_ONCE,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    source_watermarks=True,
)
