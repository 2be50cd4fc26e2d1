"""The destinations of the rows of a stage, and their writers, which replace the record writers of a chain."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pyarrow as pa

from flowrun.connectors.newest_rows import NewestRows
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import (
    MIN_TIMESTAMP,
    LatencyMarker,
    RecordBatch,
    RowKind,
    Watermark,
    WatermarkStatus,
    concat_batches,
)
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.selected_rows import SelectedRows
from flowrun.graph.partitioner import ForwardPartitioner, Partitioner
from flowrun.runtime.network.selectors import ChannelSelector, create_selector
from flowrun.spark.hosted.folding import FoldedRows
from flowrun.spark.hosted.wire import Sent

_FIRST_OF_PARTITION = 44
"""How many bits of a sequence number count the rows of one partition; the others are the partition."""


class Form(Enum):
    """The form in which rows go to a destination."""

    CHANGES = "changes"
    """All changes, as they come."""
    FINAL = "final"
    """The final rows: those that were added and not removed."""
    NEWEST = "newest"
    """The newest row of each key."""


@record
class Destination:
    """A destination of rows: a reader in a later stage, or a sink.

    Attributes:
        schema: the columns of the rows.
        form: the form in which they are sent.
        partitioner: how the subtask of a row is chosen; None: the reader chooses it.
        channels: how many subtasks there are to choose from.
        max_parallelism: the max parallelism of these subtasks.
        keys: positions of the key columns, for `NEWEST`.
    """

    schema: Schema
    form: Form = Form.CHANGES
    partitioner: Partitioner | None = None
    channels: int = 1
    max_parallelism: int = 1
    keys: tuple[int, ...] = ()


class DestinationWriter:
    """Collects the rows that a chain sends to one destination, until the stage takes them."""

    def __init__(self, destination: Destination, subtask: int) -> None:
        self._destination = destination
        self._subtask = subtask
        self._selector = _selector(destination, subtask)
        self._forward = isinstance(destination.partitioner, ForwardPartitioner)
        self._waiting: list[tuple[int, RecordBatch]] = []
        self._next = subtask << _FIRST_OF_PARTITION
        self._greatest = MIN_TIMESTAMP
        self._folded = FoldedRows() if destination.form is Form.FINAL else None
        self._newest = (
            NewestRows(destination.schema.arrow, destination.keys) if destination.form is Form.NEWEST else None
        )
        self._rows = 0
        self.watermark = MIN_TIMESTAMP
        """The last watermark that was sent, in ms since the epoch."""

    @property
    def rows(self) -> int:
        """How many rows can be taken."""
        return self._rows

    def emit(self, batch: RecordBatch) -> None:
        """Collect rows of the chain."""
        if self._folded is not None:
            self._folded.add(batch)
        elif self._newest is not None:
            self._newest.add(batch.columns, _removes(batch))
        else:
            self._send(batch)

    def emit_selected(self, selected: SelectedRows) -> None:
        """Collect rows that are not gathered yet."""
        self.emit(selected.rows())

    def broadcast_event(self, event: Watermark | WatermarkStatus) -> None:
        """Remember the last watermark."""
        if isinstance(event, Watermark):
            self.watermark = max(self.watermark, event.timestamp)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Drop it: latency is not measured here."""

    def kept(self) -> pa.RecordBatch | None:
        """The rows that a sink with rows by key keeps in its state; None: the destination is no such sink."""
        return None if self._newest is None else self._newest.alive()

    def finish(self) -> None:
        """Note that no more rows will be emitted; the final rows can be taken now."""
        if self._folded is not None:
            rows = self._folded.rows()
        elif self._newest is not None:
            rows = RecordBatch(self._newest.newest())
        else:
            return
        if rows is not None and rows.num_rows:
            self._send(rows)

    def take(self) -> Sent | None:
        """All rows that can be taken, as one batch; None if there are none."""
        if not self._waiting:
            return None
        waiting, self._waiting, self._rows = self._waiting, [], 0
        batch = concat_batches([b for _, b in waiting])
        targets = None
        if self._selector is not None or self._forward:
            targets = np.repeat(np.array([c for c, _ in waiting], np.int32), [b.num_rows for _, b in waiting])
        first, self._next = self._next, self._next + batch.num_rows
        return Sent(batch, first, self._order(batch), targets)

    def _send(self, batch: RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._selector is None:
            self._waiting.append((self._subtask % self._destination.channels, batch))
        else:
            self._waiting += self._selector.deal(batch)

    def _order(self, batch: RecordBatch) -> Integers | None:
        if batch.timestamps is None:
            return None
        times = batch.timestamps_numpy()
        if batch.row_kinds is not None:  # a retraction must not overtake the row that it retracts
            times = np.maximum(np.maximum.accumulate(times), self._greatest)
        self._greatest = max(self._greatest, int(times.max()))
        return times


def _selector(destination: Destination, subtask: int) -> ChannelSelector | None:
    partitioner = destination.partitioner
    if partitioner is None or isinstance(partitioner, ForwardPartitioner):
        return None
    return create_selector(partitioner, destination.channels, subtask, destination.max_parallelism)


def _removes(batch: RecordBatch) -> Bools | None:
    if batch.row_kinds is None:
        return None
    return np.isin(batch.row_kinds.to_numpy(), (RowKind.UPDATE_BEFORE, RowKind.DELETE))
