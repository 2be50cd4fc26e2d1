"""Subpartitions: the queue between one producer subtask and one consumer channel, as both ends see it.

They are in memory (`flowrun.runtime.network.pipelined`) or in files (`flowrun.runtime.network.blocking`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from flowrun.core.elements import CheckpointBarrier, Event, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.record import record
from flowrun.runtime.network.batches import EncodedOnce
from flowrun.runtime.network.buffer_pool import SharedSlots

ANY_CREDIT = 1 << 40
"""More slots than there are: rows are never cut for want of credit."""

InFlightElement = RecordBatch | Watermark | WatermarkStatus
Settled = Callable[[Sequence[InFlightElement]], None]
"""Is called once, by any thread and without a lock held, with what a barrier overtook: nothing if the barrier keeps its place."""


@record
class Data:
    """Consecutive batches of one channel, at least one, with what is left behind them.

    Attributes:
        batches: in order.
        sequence: number of the first of them in its channel; data and events count alike.
        backlog: slots that the rows behind them take: the reader needs as much credit.
        more: whether something can be read at once.
        slots: that they take: as much of the reader's credit is used.
        once: for each batch where its bytes are kept if other channels get it as well; None: none of them do.
    """

    batches: Sequence[RecordBatch]
    sequence: int
    backlog: int
    more: bool
    slots: int
    once: Sequence[EncodedOnce | None] | None = None


@record
class Control:
    """One event of a channel; the fields are those of `Data`.

    Attributes:
        overtaken: what a barrier has overtaken after the producer had sent it: it waits in the channel still, and is part of the
            checkpoint. In the producer's queue it is settled there.
    """

    event: Event
    sequence: int
    backlog: int
    more: bool
    overtaken: Sequence[InFlightElement] = ()


class SubpartitionView(Protocol):
    """The reading end of a subpartition; what an input channel, or a connection to another process, reads. One reader thread."""

    @property
    def backlog(self) -> int:
        """Slots that the rows which wait for the reader take; a hint if read by another thread."""
        ...

    def poll(self, max_rows: int, credit: int = ANY_CREDIT) -> Data | Control | None:
        """What comes next, without waiting: batches up to about `max_rows` (at least one batch), or one event, or None.

        After None, `listener` is called once more as soon as there is something.

        Args:
            max_rows: wanted at once.
            credit: slots that the reader has for rows. What is larger is cut by rows; a single row comes all the same. Without any no rows
                come, and nobody is told of those that wait; events need none.
        """
        ...

    def release(self) -> None:
        """Stop reading: what is left is dropped, and its buffers are recycled. Idempotent."""
        ...


class Subpartition(Protocol):
    """The writing end, used by the producer's thread, and the way to open views."""

    def add(self, batch: RecordBatch, nbytes: int, slots: int) -> None:
        """Append rows that hold `slots` buffer slots."""
        ...

    def try_pack(self, batch: RecordBatch, nbytes: int) -> bool:
        """Append rows into the spare bytes of the last slot; False if they do not fit."""
        ...

    def add_shared(self, batch: RecordBatch, nbytes: int, shared: SharedSlots, once: EncodedOnce) -> None:
        """Append rows that other subpartitions get as well; takes over one reference to the slots that they hold together."""
        ...

    @property
    def holds_slots(self) -> bool:
        """Whether rows hold slots until they are read."""
        ...

    def add_event(self, event: Event) -> None:
        """Append an event; it makes everything before it visible."""
        ...

    def add_lingering(self, event: Event) -> None:
        """Append an event that is as visible as the rows before it."""
        ...

    def add_barrier(self, barrier: CheckpointBarrier, settled: Settled) -> None:
        """Add a barrier: in front of everything if it overtakes, else at the end. One that may overtake later is
        settled when its consumer takes it or when `overtake` moves it; every other one at once.
        """
        ...

    def overtake(self, checkpoint_id: int) -> None:
        """Have a barrier that is still queued overtake what is before it. Any thread; nothing happens if it is gone."""
        ...

    @property
    def unflushed_rows(self) -> int:
        """Rows that the consumer was not told of."""
        ...

    def flush(self) -> bool:
        """Make everything visible; True if there was something to show. Any thread."""
        ...

    def finish(self) -> None:
        """The producer ended well: nothing is added any more."""
        ...

    def create_view(self, listener: Callable[[], None], urgent: Callable[[], None] | None = None) -> SubpartitionView:
        """A reading end; `listener` is called from the producer's or the flusher's thread and must not block, and so is `urgent`, each
        time something has overtaken what was queued.
        """
        ...

    def release(self) -> None:
        """Drop everything. Any thread; idempotent."""
        ...

    def listen_for_release(self, listener: Callable[[], None]) -> bool:
        """Call `listener` once, from any thread, when the one who reads has let go, as it does behind the end.

        False if it has, or if nobody is waited for: what blocks is read when its producer has ended.
        """
        ...
