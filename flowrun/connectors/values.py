"""The source of the constant rows that VALUES lists."""

from __future__ import annotations

import pyarrow as pa

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
from flowrun.connectors.held_rows import HeldRowsReader, held_rows_position
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape


@record
class ValuesSource:
    """Gives `rows` once, in one subtask, and ends then."""

    schema: Schema
    rows: pa.RecordBatch

    @property
    def boundedness(self) -> Boundedness:
        """Bounded: the source ends after its rows."""
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: the rows are part of the plan."""
        return Delivery.EXACTLY_ONCE

    @property
    def position_shape(self) -> Shape:
        """How many of the rows were given."""
        return held_rows_position({})

    @property
    def enumerator_shape(self) -> Shape:
        """The one split, or nothing if it was handed out."""
        return split_list(self.position_shape)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator with one split, which is not handed out again if the restored state says that it was."""
        return ListedSplitEnumerator([Split("values", {})], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader for one subtask; only one subtask gets rows."""
        return HeldRowsReader(self.schema, self._batches, context)

    def _batches(self, split: Split) -> tuple[RecordBatch]:
        return (RecordBatch(self.rows),)
