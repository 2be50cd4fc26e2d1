"""Blocking subpartitions: spilled to disk while they are written, readable after the end, any number of times.

Rows go to Arrow IPC streams in the partition's own folder, event times and row kinds as extra columns; events stay in memory
with their place in the order. Small batches gather until they are worth a record in the file. Nothing is held in buffer pools, so a
producer never waits for its consumer.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from flowrun.core.elements import CheckpointBarrier, Event, RecordBatch, concat_batches
from flowrun.errors import PartitionLostError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.buffer_pool import SharedSlots, slots_for
from flowrun.runtime.network.spilled_rows import Layout, cannot_spill, from_columns, layout_of, to_columns
from flowrun.runtime.network.subpartition import ANY_CREDIT, Control, Data, Settled

WORTH_A_RECORD_ROWS = 8192
"""A record of a file has some hundred bytes beside its columns, and is a batch for who reads it."""


class BlockingSubpartition:
    """Rows of one consumer in spill files. Written by one thread; views may be read by several.

    Args:
        partition: that it is a part of.
        index: its number there.
        folder: of the files.
    """

    def __init__(self, partition: PartitionId, index: int, folder: Path) -> None:
        self.partition = partition
        self.name = f"{partition.data_set_id}-{partition.subtask}.{index}"
        self._folder = folder
        self._pending: list[RecordBatch] = []
        self._pending_rows = 0
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
        """Write rows, or keep them until there are more."""
        if self._pending and layout_of(self._pending[0]) != layout_of(batch):
            self._write_pending()
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows >= WORTH_A_RECORD_ROWS:
            self._write_pending()

    def _write_pending(self) -> None:
        if not self._pending:
            return
        batch = concat_batches(self._pending)
        self._pending, self._pending_rows = [], 0
        layout = layout_of(batch)
        try:
            self._writer(layout, batch).write_batch(to_columns(batch))
        except OSError as error:
            raise cannot_spill("rows between two stages", self._folder, error) from error
        self._order.append(layout)

    def try_pack(self, batch: RecordBatch, nbytes: int) -> bool:
        """Spill rows: they never need a slot."""
        self.add(batch, nbytes, 0)
        return True

    def add_shared(self, batch: RecordBatch, nbytes: int, shared: SharedSlots) -> None:
        """Spill rows: they hold no slots."""
        self.add(batch, nbytes, 0)
        shared.release()

    @property
    def holds_slots(self) -> bool:
        """They are on disk."""
        return False

    def add_event(self, event: Event) -> None:
        """Remember an event at this place of the order.

        Raises:
            ConnectorError: the disk does not take the rows before it.
        """
        self._write_pending()
        self._order.append(event)

    def add_barrier(self, barrier: CheckpointBarrier, settled: Settled) -> None:
        """Nothing: what is read after its end, perhaps several times, belongs to no checkpoint."""
        settled(())

    def overtake(self, checkpoint_id: int) -> None:
        """Nothing: barriers do not come here."""

    def flush(self) -> bool:
        """Nothing is shown before the end."""
        return False

    def finish(self) -> None:
        """Close the files; views become readable.

        Raises:
            ConnectorError: the disk does not take the rest.
        """
        self._write_pending()
        try:
            self._close_writers()
        except OSError as error:
            raise cannot_spill("rows between two stages", self._folder, error) from error
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
        self._pending.clear()
        with contextlib.suppress(OSError):  # a full disk: the files go anyway
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
            self._writers[layout] = (file, pa.ipc.new_stream(file, to_columns(batch).schema))
        return self._writers[layout][1]

    def _close_writers(self) -> None:
        writers = list(self._writers.values())
        self._writers.clear()
        with contextlib.ExitStack() as closing:  # all of them, whatever one raises
            for file, writer in writers:
                closing.callback(file.close)
                closing.callback(writer.close)


class BlockingView:
    """One pass over a finished blocking subpartition; memory-mapped, so rows are read only when they are used."""

    def __init__(self, subpartition: BlockingSubpartition) -> None:
        self._subpartition = subpartition
        self._readers: dict[Layout, Iterator[pa.RecordBatch]] = {}
        self._maps: list[pa.MemoryMappedFile] = []
        self._next = 0
        self._released = False

    @property
    def backlog(self) -> int:
        """Not known before the rows are read: 0."""
        return 0

    def poll(self, max_rows: int, credit: int = ANY_CREDIT) -> Data | Control | None:
        """See `SubpartitionView.poll`: one batch, as it was spilled, or one event at a time."""
        if self._released or not self._subpartition.is_readable or self._next >= len(self._subpartition.order):
            return None
        item = self._subpartition.order[self._next]
        if isinstance(item, tuple) and credit <= 0:
            return None
        sequence = self._next
        self._next += 1
        more = self._next < len(self._subpartition.order)
        if isinstance(item, tuple):
            batch = from_columns(self._read(item), item)
            return Data((batch,), sequence, 0, more, slots_for(batch.nbytes))
        return Control(item, sequence, 0, more)

    def release(self) -> None:
        """Close the files."""
        self._released = True
        self._readers.clear()
        for mapped in self._maps:
            mapped.close()
        self._maps.clear()

    def _read(self, layout: Layout) -> pa.RecordBatch:
        """The next record of a file.

        Raises:
            PartitionLostError: it is not there any more, or damaged.
        """
        path = self._subpartition.path(layout)
        try:
            if layout not in self._readers:
                mapped = pa.memory_map(str(path))
                self._maps.append(mapped)
                self._readers[layout] = iter(pa.ipc.open_stream(mapped))
            return next(self._readers[layout])
        except FileNotFoundError as error:
            raise _lost(self._subpartition.partition, path, "is gone") from error
        except (OSError, pa.ArrowException, StopIteration) as error:
            raise _lost(self._subpartition.partition, path, f"is damaged: {error}") from error


def _lost(partition: PartitionId, path: Path, cause: str) -> PartitionLostError:
    return PartitionLostError(
        f"spilled rows are lost: {path} {cause}",
        data_set_id=partition.data_set_id,
        subtask=partition.subtask,
        hint="keep other programs away from that folder, or set TMPDIR to another one; with a restart strategy they are made again",
    )
