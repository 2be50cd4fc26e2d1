"""Constant rows as a source: what VALUES gives."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowrun.api.operator import InputStatus
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceOutput,
    SourceReader,
    Split,
    SplitEnumerator,
)
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema


@record
class ValuesSource:
    """Gives `rows` once, in one subtask, and ends."""

    schema: Schema
    rows: pa.RecordBatch

    @property
    def boundedness(self) -> Boundedness:
        """The rows are all there is."""
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """The rows are in the plan."""
        return Delivery.EXACTLY_ONCE

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """One split, which is not handed out again if it was before the snapshot."""
        return ListedSplitEnumerator([Split("values", {})], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader for one subtask; only one of them gets rows."""
        return _ValuesReader(self.rows, context)


class _ValuesReader:
    def __init__(self, rows: pa.RecordBatch, context: ReaderContext) -> None:
        self._rows = rows
        self._context = context
        self._splits: list[Split] = []
        self._no_more = False

    def start(self) -> None:
        """Ask for the rows unless they were restored."""
        if not self._splits:
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Emit all rows at once."""
        if self._splits:
            split = self._splits.pop()
            output.emit(RecordBatch(self._rows), split.split_id)
            self._context.request_split()
            return InputStatus.MORE_AVAILABLE
        return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Split]) -> None:
        """The rows are this subtask's to give."""
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        """Another subtask gives the rows, or this one has."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """The split, until its rows were given."""
        return tuple(self._splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing outside to tell."""

    def close(self) -> None:
        """Nothing to release."""
