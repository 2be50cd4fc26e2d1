"""Blocking subpartitions: spilled to disk while they are written, readable after the end, any number of times.

Rows go to Arrow IPC streams in the partition's own folder, event times and row kinds as extra columns; events stay in memory
with their place in the order. Nothing is held in buffer pools, so a producer never waits for its consumer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from flowrun.core.elements import CheckpointBarrier, Event, RecordBatch
from flowrun.errors import ConnectorError, InternalError
from flowrun.runtime.network.subpartition import Control, Data, Settled

_TIMESTAMPS = "__flowrun_timestamps"
_KINDS = "__flowrun_row_kinds"

Layout = tuple[bool, bool]
"""Whether a batch has timestamps, and row kinds: an IPC stream has one schema, so each layout has its own file."""


class BlockingSubpartition:
    """Rows of one consumer in spill files under `folder`. Written by one thread; views may be read by several."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._lock = threading.Lock()
        self._writers: dict[Layout, tuple[pa.OSFile, pa.RecordBatchStreamWriter]] = {}
        self._order: list[Layout | Event] = []
        self._listeners: list[Callable[[], None]] = []
        self._finished = False
        self._released = False

    @property
    def unflushed_rows(self) -> int:
        """Always 0: nothing is read before the partition has ended."""
        return 0

    def add(self, batch: RecordBatch, nbytes: int, slots: int) -> None:
        """Spill rows; watermarks between them become events.

        Raises:
            ConnectorError: the disk does not take them.
        """
        for piece in batch.pieces():
            if isinstance(piece, RecordBatch):
                self._spill(piece)
            else:
                self.add_event(piece)

    def _spill(self, batch: RecordBatch) -> None:
        layout = (batch.timestamps is not None, batch.row_kinds is not None)
        try:
            self._writer(layout, batch).write_batch(_to_columns(batch))
        except OSError as error:
            raise ConnectorError(
                f"cannot spill {batch.num_rows} rows to {self._folder}: {error}",
                hint="free space there, or set TMPDIR to a larger disk",
            ) from error
        self._order.append(layout)

    def try_pack(self, batch: RecordBatch, nbytes: int) -> bool:
        """Spill rows: they never need a slot."""
        self.add(batch, nbytes, 0)
        return True

    def add_event(self, event: Event) -> None:
        """Remember an event at this place of the order."""
        self._order.append(event)

    def add_barrier(self, barrier: CheckpointBarrier, settled: Settled, *, in_order: bool = False) -> None:
        """Nothing: what is read after its end, perhaps several times, belongs to no checkpoint."""
        settled(())

    def overtake(self, checkpoint_id: int) -> None:
        """Nothing: barriers do not come here."""

    def flush(self) -> bool:
        """Nothing is shown before the end."""
        return False

    def finish(self) -> None:
        """Close the files; views become readable."""
        self._close_writers()
        with self._lock:
            self._finished = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def create_view(self, listener: Callable[[], None], urgent: Callable[[], None] | None = None) -> BlockingView:
        """A reader from the beginning; it finds nothing until the producer has finished."""
        with self._lock:
            self._listeners.append(listener)
            finished = self._finished
        if finished:
            listener()
        return BlockingView(self)

    def release(self) -> None:
        """Delete the files."""
        with self._lock:
            if self._released:
                return
            self._released = True
        self._close_writers()
        for has_timestamps in (False, True):
            for has_kinds in (False, True):
                self.path((has_timestamps, has_kinds)).unlink(missing_ok=True)

    @property
    def is_readable(self) -> bool:
        """Whether the producer has finished."""
        return self._finished

    @property
    def order(self) -> list[Layout | Event]:
        """What follows what; complete once readable."""
        return self._order

    def path(self, layout: Layout) -> Path:
        """The file of the batches of one layout."""
        return self._folder / f"{self.name}-{'t' if layout[0] else ''}{'k' if layout[1] else ''}.arrows"

    def _writer(self, layout: Layout, batch: RecordBatch) -> pa.RecordBatchStreamWriter:
        if layout not in self._writers:
            os.makedirs(self._folder, exist_ok=True)
            file = pa.OSFile(str(self.path(layout)), "wb")
            self._writers[layout] = (file, pa.ipc.new_stream(file, _to_columns(batch).schema))
        return self._writers[layout][1]

    def _close_writers(self) -> None:
        for file, writer in self._writers.values():
            writer.close()
            file.close()
        self._writers.clear()


class BlockingView:
    """One pass over a finished blocking subpartition; memory-mapped, so rows are read only when they are used."""

    def __init__(self, subpartition: BlockingSubpartition) -> None:
        self._subpartition = subpartition
        self._readers: dict[Layout, Iterator[pa.RecordBatch]] = {}
        self._maps: list[pa.MemoryMappedFile] = []
        self._next = 0
        self._released = False

    def poll(self, max_rows: int) -> Data | Control | None:
        """See `SubpartitionView.poll`: one batch or one event at a time."""
        if self._released or not self._subpartition.is_readable or self._next >= len(self._subpartition.order):
            return None
        item = self._subpartition.order[self._next]
        sequence = self._next
        self._next += 1
        left = len(self._subpartition.order) - self._next
        if isinstance(item, tuple):
            return Data((_from_columns(next(self._reader(item)), item),), sequence, left, left > 0)
        return Control(item, sequence, left, left > 0)

    def release(self) -> None:
        """Close the files."""
        self._released = True
        self._readers.clear()
        for mapped in self._maps:
            mapped.close()
        self._maps.clear()

    def _reader(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        if layout not in self._readers:
            path = self._subpartition.path(layout)
            if not path.exists():
                raise InternalError(f"spill file {path} is gone although its partition was not released")
            mapped = pa.memory_map(str(path))
            self._maps.append(mapped)
            self._readers[layout] = iter(pa.ipc.open_stream(mapped))
        return self._readers[layout]


def _to_columns(batch: RecordBatch) -> pa.RecordBatch:
    columns = batch.columns
    if batch.timestamps is not None:
        columns = columns.append_column(_TIMESTAMPS, batch.timestamps)
    if batch.row_kinds is not None:
        columns = columns.append_column(_KINDS, batch.row_kinds)
    return columns


def _from_columns(columns: pa.RecordBatch, layout: Layout) -> RecordBatch:
    width = columns.num_columns - sum(layout)
    kinds = columns.column(columns.num_columns - 1) if layout[1] else None
    timestamps = columns.column(width) if layout[0] else None
    rows = columns.select(list(range(width)))
    return RecordBatch(rows, timestamps, kinds)
