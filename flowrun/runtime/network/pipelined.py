"""Subpartitions in memory: each is read once, while it is written.

What is written becomes visible to the consumer when it is worth a wake-up: at `flush`, at an event, or when enough rows have
gathered (see `RecordWriter`).

A barrier that overtakes goes to the front of the queue. What it overtook is in flight and becomes a part of the checkpoint.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice

from flowrun.core.elements import CheckpointBarrier, Event, RecordBatch, Watermark, WatermarkStatus
from flowrun.errors import InternalError
from flowrun.runtime.network.barriers import as_unaligned, overtakes, overtaking_time_ms
from flowrun.runtime.network.batches import EncodedOnce
from flowrun.runtime.network.buffer_pool import BATCH_OVERHEAD_BYTES, SLOT_BYTES, SharedSlots
from flowrun.runtime.network.cutting import rows_within
from flowrun.runtime.network.subpartition import ANY_CREDIT, Control, Data, InFlightElement, Settled

Recycle = Callable[[int], None]


class _Queued:
    """A batch in a queue with its bytes and the slots that it holds, alone or with other subpartitions."""

    __slots__ = ("batch", "nbytes", "once", "shared", "slots")

    def __init__(
        self,
        batch: RecordBatch,
        nbytes: int,
        slots: int,
        shared: SharedSlots | None,
        once: EncodedOnce | None = None,
    ) -> None:
        self.batch = batch
        self.nbytes = nbytes
        self.slots = slots
        self.shared = shared
        self.once = once


class PipelinedSubpartition:
    """An in-memory queue that is read once, while it is written."""

    def __init__(self, name: str, recycle: Recycle) -> None:
        self.name = name
        self._recycle = recycle
        self._lock = threading.Lock()
        self._queue: deque[_Queued | Event] = deque()
        self._listener: Callable[[], None] | None = None
        self._armed = False
        """The consumer found nothing and is to be told."""
        self._hidden = 0
        """How many elements at the queue's end the consumer was not told of."""
        self._hidden_rows = 0
        self._spare = 0
        self._bytes = 0
        self._sequence = 0
        self._released = False
        self._on_release: Callable[[], None] = _nothing
        self._urgent: Callable[[], None] | None = None
        self._unsettled: dict[int, Settled] = {}
        """By checkpoint: whom to tell what becomes of a queued barrier that may overtake."""

    @property
    def unflushed_rows(self) -> int:
        """Rows that the consumer was not told of; a hint when read without the lock."""
        return self._hidden_rows

    @property
    def holds_slots(self) -> bool:
        """They are held in memory."""
        return True

    @property
    def backlog(self) -> int:
        """Slots that the rows which wait for the consumer take."""
        return -(-self._bytes // SLOT_BYTES)

    def add(self, batch: RecordBatch, nbytes: int, slots: int) -> None:
        """Append rows, hidden until the next flush."""
        with self._lock:
            if not self._released:
                self._append(_Queued(batch, nbytes, slots, None))
                self._spare = max(slots * SLOT_BYTES - nbytes, 0)
                return
        self._recycle(slots)

    def add_shared(self, batch: RecordBatch, nbytes: int, shared: SharedSlots, once: EncodedOnce) -> None:
        """Append rows, hidden until the next flush."""
        with self._lock:
            if not self._released:
                self._append(_Queued(batch, nbytes, 0, shared, once))
                return
        shared.release()

    def try_pack(self, batch: RecordBatch, nbytes: int) -> bool:
        """Append rows into the spare bytes of the last batch's slots; False if they do not fit."""
        with self._lock:
            if self._released:
                return True  # nobody reads it: dropped
            last = self._queue[-1] if self._queue else None
            if nbytes > self._spare or not isinstance(last, _Queued):
                return False
            # The slot goes with the last batch in it, so that it is recycled only when all of them were taken.
            slots, last.slots = last.slots, 0
            self._append(_Queued(batch, nbytes, slots, None))
            self._spare -= nbytes
            return True

    def add_event(self, event: Event) -> None:
        """Append an event and make everything visible."""
        with self._lock:
            listener = self._append_event(event)
        if listener is not None:
            listener()

    def add_lingering(self, event: Event) -> None:
        """Append an event, hidden with the rows before it."""
        with self._lock:
            if self._hidden and not self._released:
                self._queue.append(event)
                self._hidden += 1
                self._spare = 0
                return
        self.add_event(event)  # a flush has shown them meanwhile

    def add_barrier(self, barrier: CheckpointBarrier, settled: Settled) -> None:
        """Add a barrier; see `Subpartition.add_barrier`."""
        if overtakes(barrier.options):
            with self._lock:
                overtaken = () if self._released else self._put_first(barrier, len(self._queue))
            self._announce()
            settled(overtaken)
            return
        may_overtake = overtaking_time_ms(barrier) is not None
        with self._lock:
            queued = may_overtake and not self._released
            if queued:
                self._unsettled[barrier.checkpoint_id] = settled
            listener = self._append_event(barrier)
        if listener is not None:
            listener()
        if not queued:
            settled(())

    def overtake(self, checkpoint_id: int) -> None:
        """Move a queued barrier to the front."""
        with self._lock:
            settled = self._unsettled.pop(checkpoint_id, None)
            if settled is None:
                return
            place, barrier = next(
                (i, e)
                for i, e in enumerate(self._queue)
                if isinstance(e, CheckpointBarrier) and e.checkpoint_id == checkpoint_id
            )
            del self._queue[place]
            overtaken = self._put_first(as_unaligned(barrier), place)
        self._announce()
        settled(overtaken)

    def flush(self) -> bool:
        """Make everything visible."""
        with self._lock:
            if not self._hidden:
                return False
            listener = self._show()
        if listener is not None:
            listener()
        return True

    def finish(self) -> None:
        """The end-of-input event, which was added before, says all that a reader needs."""

    def create_view(self, listener: Callable[[], None], urgent: Callable[[], None] | None = None) -> PipelinedView:
        """The one reading end.

        Raises:
            InternalError: it was opened before.
        """
        with self._lock:
            if self._listener is not None:
                raise InternalError(f"pipelined subpartition {self.name} was opened twice")
            self._listener = listener
            self._urgent = urgent or listener
            self._armed = True
            notify = self._show() if len(self._queue) > self._hidden else None
        if notify is not None:
            notify()
        return PipelinedView(self)

    def poll(self, max_rows: int, credit: int = ANY_CREDIT) -> Data | Control | None:
        """See `SubpartitionView.poll`. Takes hidden batches too: a consumer that asks is not idle."""
        with self._lock:
            if not self._queue:
                self._armed = True
                return None
            head = self._queue[0]
            if isinstance(head, _Queued):
                if credit <= 0:
                    return None
                taken, nbytes, slots, shared = self._take(max_rows, credit * SLOT_BYTES)
                self._bytes -= nbytes
                self._taken()
                if not self._queue:
                    self._spare = 0
                backlog = -(-self._bytes // SLOT_BYTES)
                batches, once = [q.batch for q in taken], [q.once for q in taken] if shared else None
                data = Data(batches, self._sequence, backlog, self._rearm(), -(-nbytes // SLOT_BYTES), once)
                self._sequence += len(batches)
            else:
                self._queue.popleft()
                self._taken()
                control = Control(head, self._sequence, self.backlog, self._rearm())
                self._sequence += 1
        if isinstance(head, _Queued):
            if slots:
                self._recycle(slots)
            for held in shared:
                held.release()
            return data
        if isinstance(head, CheckpointBarrier):
            self._settle_in_place(head.checkpoint_id)
        return control

    def release(self) -> None:
        """Drop everything and recycle its slots."""
        with self._lock:
            self._released = True
            tell, self._on_release = self._on_release, _nothing
            dropped = [q for q in self._queue if isinstance(q, _Queued)]
            self._queue.clear()
            self._hidden = self._hidden_rows = self._bytes = 0
            unsettled = list(self._unsettled)
        self._recycle(sum(queued.slots for queued in dropped))
        for queued in dropped:
            if queued.shared is not None:
                queued.shared.release()
        for checkpoint_id in unsettled:
            self._settle_in_place(checkpoint_id)
        tell()

    def listen_for_release(self, listener: Callable[[], None]) -> bool:
        """See `Subpartition.listen_for_release`."""
        with self._lock:
            if not self._released:
                self._on_release = listener
            return not self._released

    def _take(self, max_rows: int, most_bytes: int) -> tuple[list[_Queued], int, int, list[SharedSlots]]:
        """Remove batches from the beginning of the queue, which has one there; one that is larger than `most_bytes` is cut.

        Gives them with their bytes, the slots that are free now, and those that are shared with others.
        """
        queue, batches, shared = self._queue, list[_Queued](), list[SharedSlots]()
        rows = nbytes = slots = 0
        while queue:
            queued = queue[0]
            if not isinstance(queued, _Queued):
                break
            if queued.once is not None and (queued.nbytes > most_bytes or queued.once.is_cut):
                queued = self._cut_for_all(queued, queued.once)
            rows += queued.batch.num_rows
            size = queued.nbytes
            if batches and (rows > max_rows or nbytes + size > most_bytes):
                break
            if size > most_bytes and (first := self._cut(queued, most_bytes)) is not None:
                return [first], first.nbytes, first.slots, shared
            queue.popleft()
            batches.append(queued)
            nbytes += size
            slots += queued.slots
            if queued.shared is not None:
                shared.append(queued.shared)
        return batches, nbytes, slots, shared

    def _cut(self, queued: _Queued, most_bytes: int) -> _Queued | None:
        """The first rows of a batch, which leave the queue; they free a part of its slots. None: they cannot be cut."""
        batch = queued.batch
        rows = rows_within(batch, most_bytes - BATCH_OVERHEAD_BYTES)
        if rows >= batch.num_rows:
            return None
        piece = batch.slice(0, rows)
        nbytes = min(piece.nbytes + BATCH_OVERHEAD_BYTES, queued.nbytes - 1)
        slots = min(nbytes // SLOT_BYTES, queued.slots)
        queued.batch, queued.once = batch.slice(rows), None  # others cut elsewhere
        queued.nbytes -= nbytes
        queued.slots -= slots
        return _Queued(piece, nbytes, slots, None)

    def _cut_for_all(self, queued: _Queued, once: EncodedOnce) -> _Queued:
        """Have pieces that all its channels get take the place of the first batch in the queue; gives the first of them.

        They take a slot each, so that no channel that has any credit cuts them again.
        """
        shared = queued.shared
        pieces = once.pieces(queued.batch, SLOT_BYTES - BATCH_OVERHEAD_BYTES)
        if shared is None or len(pieces) == 1:
            queued.once = None if shared is None else pieces[0][1]
            return queued
        shared.retain(len(pieces) - 1)
        self._queue.popleft()
        made = [_Queued(piece, piece.nbytes + BATCH_OVERHEAD_BYTES, 0, shared, kept) for piece, kept in pieces]
        self._queue.extendleft(reversed(made))
        self._bytes += sum(piece.nbytes for piece in made) - queued.nbytes
        return made[0]

    def _settle_in_place(self, checkpoint_id: int) -> None:
        """A barrier is taken, or dropped, without having overtaken anything since it was added."""
        with self._lock:
            settled = self._unsettled.pop(checkpoint_id, None)
        if settled is not None:
            settled(())

    def _put_first(self, barrier: CheckpointBarrier, count: int) -> list[InFlightElement]:
        """Put a barrier before everything; gives what counts of the first `count` elements, which it overtakes."""
        overtaken: list[InFlightElement] = []
        for element in islice(self._queue, count):
            if isinstance(element, _Queued):
                overtaken += element.batch.pieces()
            elif isinstance(element, Watermark | WatermarkStatus):
                overtaken.append(element)
        self._queue.appendleft(barrier)
        self._spare = 0
        return overtaken

    def _announce(self) -> None:
        """Tell the consumer of what is now first in the queue."""
        with self._lock:
            self._hidden = self._hidden_rows = 0
            self._armed = False
            urgent = self._urgent
        if urgent is not None:
            urgent()

    def _append(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._bytes += queued.nbytes
        self._hidden += 1
        self._hidden_rows += queued.batch.num_rows

    def _taken(self) -> None:
        """The consumer may have taken hidden elements."""
        if len(self._queue) < self._hidden:
            self._hidden = len(self._queue)
            self._hidden_rows = sum(q.batch.num_rows for q in self._queue if isinstance(q, _Queued))

    def _append_event(self, event: Event) -> Callable[[], None] | None:
        """Append an event, all visible; gives the listener if it is to be called."""
        if self._released:
            return None
        self._queue.append(event)
        self._spare = 0
        return self._show()

    def _show(self) -> Callable[[], None] | None:
        """All visible; gives the listener if it is to be called."""
        self._hidden = self._hidden_rows = 0
        if not self._armed or not self._queue:
            return None
        self._armed = False
        return self._listener

    def _rearm(self) -> bool:
        """Whether visible elements are left; if none, the listener is armed."""
        more = len(self._queue) > self._hidden
        self._armed = not more
        return more


class PipelinedView:
    """The reading end of a `PipelinedSubpartition`."""

    __slots__ = ("_subpartition",)

    def __init__(self, subpartition: PipelinedSubpartition) -> None:
        self._subpartition = subpartition

    @property
    def backlog(self) -> int:
        """See `SubpartitionView.backlog`."""
        return self._subpartition.backlog

    def poll(self, max_rows: int, credit: int = ANY_CREDIT) -> Data | Control | None:
        """See `SubpartitionView.poll`."""
        return self._subpartition.poll(max_rows, credit)

    def release(self) -> None:
        """Drop what is left; later writes are dropped too."""
        self._subpartition.release()


def _nothing() -> None:
    pass
