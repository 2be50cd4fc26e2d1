"""Constant rows as a source: what VALUES gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema

_SPLIT = "values"


@dataclass(frozen=True, slots=True)
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
        return _OneSplit(handed_out=restored is True)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader for one subtask; only one of them gets rows."""
        return _ValuesReader(self.rows, context)


class _OneSplit:
    def __init__(self, handed_out: bool) -> None:
        self._splits = [] if handed_out else [Split(_SPLIT, {})]

    def start(self) -> None:
        """Nothing to look at."""

    def next_split(self, subtask: int) -> Split | None:
        """The split, to the first who asks."""
        return self._splits.pop() if self._splits else None

    @property
    def exhausted(self) -> bool:
        """Whether it was handed out."""
        return not self._splits

    @property
    def discovery_interval_ms(self) -> int | None:
        """There is nothing to discover."""
        return None

    def discover(self) -> None:
        """There is nothing to discover."""

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Hand it out again."""
        self._splits.extend(splits)

    def snapshot(self) -> JsonValue:
        """Whether it was handed out."""
        return not self._splits

    def close(self) -> None:
        """Nothing to release."""


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
