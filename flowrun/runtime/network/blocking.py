"""Blocking subpartitions: spilled to disk while they are written, readable after the end, any number of times, by any process.

Small batches gather until they are worth a record in the file (`partition_files.py`). Nothing is held in buffer pools, so a producer never
waits for its consumer. What is complete needs its producer no more: a process that finds the files reads them, or serves them to others.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from flowrun.core.elements import CheckpointBarrier, Event, RecordBatch, concat_batches
from flowrun.errors import ClusterError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.batches import BatchDecoder, EncodedOnce
from flowrun.runtime.network.buffer_pool import BATCH_OVERHEAD_BYTES, SLOT_BYTES, SharedSlots, slots_for
from flowrun.runtime.network.cutting import rows_within
from flowrun.runtime.network.events import decode_event
from flowrun.runtime.network.partition_files import (
    ItemKind,
    Items,
    StoredItem,
    SubpartitionPath,
    SubpartitionWriter,
    checksum,
    read_items,
)
from flowrun.runtime.network.spilled_rows import cannot_spill, layout_of
from flowrun.runtime.network.subpartition import ANY_CREDIT, Control, Data, Settled

WORTH_A_RECORD_ROWS = 8192
"""A record of a file has some hundred bytes beside its columns, and is a batch for who reads it."""
_ANNOUNCED_RECORDS = 16
"""How far a reader looks ahead for its backlog."""


class BlockingSubpartition:
    """Rows of one consumer in a file. Written by one thread; views may be read by several.

    Args:
        place: of the file.
    """

    def __init__(self, place: SubpartitionPath) -> None:
        self._place = place
        self._writer = SubpartitionWriter(place)
        self._pending: list[RecordBatch] = []
        self._pending_rows = 0
        self._lock = threading.Lock()
        self._items: Items | None = None
        self._listeners: list[Callable[[], None]] = []
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
        try:
            self._writer.add(batch)
        except OSError as error:
            raise self._cannot_spill(error) from error

    def try_pack(self, batch: RecordBatch, nbytes: int) -> bool:
        """Spill rows: they never need a slot."""
        self.add(batch, nbytes, 0)
        return True

    def add_shared(self, batch: RecordBatch, nbytes: int, shared: SharedSlots, once: EncodedOnce) -> None:
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
        self._writer.add_event(event)

    def add_lingering(self, event: Event) -> None:
        """As `add_event`: all is read when the partition is finished."""
        self.add_event(event)

    def add_barrier(self, barrier: CheckpointBarrier, settled: Settled) -> None:
        """Nothing: what is read after its end, perhaps several times, belongs to no checkpoint."""
        settled(())

    def overtake(self, checkpoint_id: int) -> None:
        """Nothing: barriers do not come here."""

    def flush(self) -> bool:
        """Nothing is shown before the end."""
        return False

    def listen_for_release(self, listener: Callable[[], None]) -> bool:
        """Nobody is waited for."""
        return False

    @property
    def finished_file(self) -> SubpartitionPath | None:
        """Where the rows are; None while they are written."""
        return None if self._items is None else self._place

    def finish(self) -> None:
        """Close the file; views become readable.

        Raises:
            ConnectorError: the disk does not take the rest.
        """
        self._write_pending()
        try:
            items = self._writer.finish()
        except OSError as error:
            raise self._cannot_spill(error) from error
        with self._lock:
            self._items = items
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def create_view(self, listener: Callable[[], None], urgent: Callable[[], None] | None = None) -> BlockingView:
        """A reader from the beginning; it finds nothing until the producer has finished."""
        with self._lock:
            self._listeners.append(listener)
            finished = self._items is not None
        if finished:
            listener()
        return BlockingView(self._place, lambda: self._items)

    def release(self) -> None:
        """Delete the file."""
        with self._lock:
            if self._released:
                return
            self._released = True
        self._pending.clear()
        with contextlib.suppress(OSError):  # a full disk: the file goes anyway
            self._writer.close()
        self._place.remove()

    def _cannot_spill(self, error: OSError) -> Exception:
        return cannot_spill("rows between two stages", self._place.folder, error)


class StoredPartition:
    """A partition whose files were finished, in whichever process: for those that read it here, or from here.

    Args:
        folder: of the job.
        partition: that is read.
        attempt_id: that wrote it.
    """

    def __init__(self, folder: Path, partition: PartitionId, attempt_id: str) -> None:
        self.name = str(partition)
        self._folder = folder
        self._partition = partition
        self._attempt_id = attempt_id

    def create_view(
        self, subpartition: int, listener: Callable[[], None], urgent: Callable[[], None] | None = None
    ) -> BlockingView:
        """A reader of one subpartition from the beginning.

        Raises:
            PartitionLostError: its file is gone, was not finished, or is damaged.
        """
        place = SubpartitionPath(self._folder, self._partition, self._attempt_id, subpartition)
        items = read_items(place)
        listener()
        return BlockingView(place, lambda: items)


class BlockingView:
    """One pass over a finished blocking subpartition. Rows are read when they are used, and checked.

    Args:
        place: of the file.
        items: what is in it; None until it is finished.
    """

    def __init__(self, place: SubpartitionPath, items: Callable[[], Items | None]) -> None:
        self._place = place
        self._read_items = items
        self._file: pa.OSFile | None = None
        self._decoder = BatchDecoder()
        self._next = 0
        self._sequence = 0
        self._rest: RecordBatch | None = None
        """What was too large for the reader's credit."""
        self._released = False

    @property
    def backlog(self) -> int:
        """Slots that the next rows take, as far as it looks ahead."""
        items = self._read_items()
        if self._released or items is None:
            return 0
        ahead = items[self._next : self._next + _ANNOUNCED_RECORDS]
        rest = 0 if self._rest is None else slots_for(self._rest.nbytes)
        return rest + sum(slots_for(item.size) for item in ahead if item.kind == ItemKind.ROWS)

    def poll(self, max_rows: int, credit: int = ANY_CREDIT) -> Data | Control | None:
        """See `SubpartitionView.poll`: one batch, as it was spilled, or one event at a time.

        Raises:
            PartitionLostError: the file is not there any more, or is damaged.
        """
        items = self._read_items()
        if self._released or items is None:
            return None
        if self._rest is None:
            while self._next < len(items) and items[self._next].kind == ItemKind.SCHEMA:
                self._decoder.set_schema(pa.py_buffer(items[self._next].content))
                self._next += 1
            if self._next >= len(items):
                return None
            item = items[self._next]
            if item.kind == ItemKind.EVENT:
                self._next += 1
                event = decode_event(memoryview(item.content))
                return Control(event, self._number(1), self.backlog, self._next < len(items))
            if credit <= 0:
                return None
            self._next += 1
            self._rest = self._read(item)
        elif credit <= 0:
            return None
        batch, self._rest = self._cut(self._rest, credit)
        more = self._rest is not None or self._next < len(items)
        return Data((batch,), self._number(1), self.backlog, more, slots_for(batch.nbytes))

    def release(self) -> None:
        """Close the file."""
        self._released = True
        self._rest = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _number(self, count: int) -> int:
        number = self._sequence
        self._sequence += count
        return number

    def _cut(self, batch: RecordBatch, credit: int) -> tuple[RecordBatch, RecordBatch | None]:
        """As many rows as there is credit for, at least one; and the rest."""
        if slots_for(batch.nbytes) <= credit:
            return batch, None
        rows = rows_within(batch, credit * SLOT_BYTES - BATCH_OVERHEAD_BYTES)
        return (batch, None) if rows >= batch.num_rows else (batch.slice(0, rows), batch.slice(rows))

    def _read(self, item: StoredItem) -> RecordBatch:
        """The next record of the file."""
        try:
            if self._file is None:
                self._file = pa.OSFile(str(self._place.path))
            data = self._file.read_buffer(item.size)
        except FileNotFoundError as error:
            raise self._place.lost("is gone") from error
        except OSError as error:
            raise self._place.lost(f"cannot be read: {error}") from error
        if data.size != item.size or checksum(data) != item.checksum:
            raise self._place.lost("is damaged: what is read is not what was written")
        try:
            (batch,) = self._decoder.batches(data)
        except (ClusterError, ValueError) as error:
            raise self._place.lost(f"is damaged: {error}") from error
        return batch
