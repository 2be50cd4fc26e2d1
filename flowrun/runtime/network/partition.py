"""Result partitions: what one subtask produces for one edge, cut into a subpartition a consumer.

The partition takes buffer slots for what is written, decides when rows are worth a wake-up of the consumer, and waits when no
slot is left. Written by its subtask's thread; `flush`, `cancel` and `release` may come from any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock

from flowrun.api.metrics import Counter
from flowrun.core.clock import Clock
from flowrun.core.elements import END_OF_INPUT, CheckpointBarrier, Event, RecordBatch, Watermark
from flowrun.errors import JobCancelledError
from flowrun.runtime.metrics import TimeAccount
from flowrun.runtime.network.batches import EncodedOnce
from flowrun.runtime.network.buffer_pool import (
    BATCH_OVERHEAD_BYTES,
    SLOT_BYTES,
    LocalBufferPool,
    SharedSlots,
    slots_for,
)
from flowrun.runtime.network.cutting import rows_within
from flowrun.runtime.network.subpartition import InFlightElement, Subpartition, SubpartitionView
from flowrun.runtime.timers import Timer, TimerThread

WORTH_A_WAKE_UP_ROWS = 1024
"""Vectorised kernels lose below about a thousand rows (docs/architecture.md, Performance). Fewer rows wait for more, up to the buffer
timeout."""

MIN_LINGER_MS = 10
"""Lingering longer than this saves next to nothing: a consumer that wakes up a hundred times a second is idle all the same."""

SATURATED_ROWS, SATURATED_LINGER_MS = 8192, 50
"""The same for a process that has no processor time to spare: some operators take a millisecond for each batch, however small it is."""

END_READ_WITHIN_MS = 10_000
"""So long a subtask that had no rows waits for its readers to know of its end. One that selects another input reads it later."""

_DEMAND_DECAY = 6
"""With each call of `write` a demand for more than 2 ** 6 slots that did not come again is forgotten by a part in 2 ** 6."""

Overtaken = Sequence[InFlightElement]
"""What a barrier overtook in one subpartition, in order."""


def linger_ms(buffer_timeout_ms: int, channels: int, *, saturated: bool = False) -> int:
    """How long rows may wait for company: at most the buffer timeout, and so that a partition wakes consumers once a ms at most.

    >>> linger_ms(100, 4), linger_ms(100, 64), linger_ms(5, 4), linger_ms(0, 4), linger_ms(100, 4, saturated=True)
    (10, 64, 5, 0, 50)
    """
    return min(buffer_timeout_ms, max(SATURATED_LINGER_MS if saturated else MIN_LINGER_MS, channels))


class ResultPartition:
    """The subpartitions of one producer subtask and edge, with their buffer pool.

    Lingering is adaptive: a channel that was silent passes rows on at once, so that a lone row never waits; a busy one gathers up
    to `WORTH_A_WAKE_UP_ROWS` rows or for `linger_ms`, whichever is first. It gathers more, and for longer, while the process is saturated.
    A negative buffer timeout lingers until there are enough rows or an event comes.

    Args:
        name: for messages.
        subpartitions: one a consumer.
        pool: whose slots rows take.
        clock: of the process.
        timers: of the process.
        buffer_timeout_ms: the longest time that rows wait for company, ms; 0: none; negative: any.
        watermarks_may_wait: see `flowrun.graph.execution_graph.InputGate`.
        saturated: given the monotonic time, ns: whether the process has no processor time to spare.
    """

    def __init__(
        self,
        name: str,
        subpartitions: Sequence[Subpartition],
        pool: LocalBufferPool,
        *,
        clock: Clock,
        timers: TimerThread,
        buffer_timeout_ms: int,
        watermarks_may_wait: bool = False,
        saturated: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.name = name
        self.subpartitions = tuple(subpartitions)
        self.pool = pool
        self._clock = clock
        self._timers = timers
        self._saturated = saturated
        channels = len(self.subpartitions)
        self._linger_ms = linger_ms(buffer_timeout_ms, channels)
        self._saturated_linger_ms = linger_ms(buffer_timeout_ms, channels, saturated=True)
        self._last_flush_ns = [clock.monotonic_ns() - self._saturated_linger_ms * 1_000_000] * channels
        self._flush_due = [False] * len(self.subpartitions)
        self._watermarks_linger = watermarks_may_wait and buffer_timeout_ms >= 0
        self._demand = 1
        self._cancelled = False
        self._has_rows = False
        self._shares_slots = all(s.holds_slots for s in self.subpartitions)
        self._shared: SharedSlots | None = None
        self._shared_spare = 0
        """Bytes that are left in the slots of the last rows that were broadcast."""
        self._time: TimeAccount | None = None
        self._bytes_out: Counter | None = None

    def attach(self, time: TimeAccount, bytes_out: Counter) -> None:
        """Count waiting for slots as back pressure of the subtask, and what is written."""
        self._time = time
        self._bytes_out = bytes_out

    @property
    def is_available(self) -> bool:
        """Whether as much as the largest of the last calls of `write` can be written without waiting: one that waits holds up timers."""
        return self.pool.has_room(self._demand)

    def listen(self, listener: Callable[[], None]) -> bool:
        """Call `listener` once when `is_available` turns true; False if it is true already."""
        self.flush()  # hidden rows hold slots that only their consumer can free
        return self.pool.listen(self._demand, listener)

    def write(self, parts: Sequence[tuple[int, RecordBatch]]) -> None:
        """Append rows to their subpartitions; waits while no slot is left.

        Raises:
            JobCancelledError: the job was cancelled.
        """
        if self._cancelled:
            raise JobCancelledError(f"the job was cancelled while {self.name} was written")
        demand = written = 0
        for channel, batch in parts:
            nbytes = batch.nbytes
            written += nbytes
            subpartition = self.subpartitions[channel]
            if subpartition.try_pack(batch, nbytes + BATCH_OVERHEAD_BYTES):
                pass
            elif (slots := slots_for(nbytes)) <= self.pool.limit and self.pool.try_acquire(slots, whole=True):
                demand += slots
                subpartition.add(batch, nbytes + BATCH_OVERHEAD_BYTES, slots)
            else:
                for piece, size, slots in self._charged(batch, nbytes):
                    demand += slots
                    subpartition.add(piece, size, slots)
            if subpartition.unflushed_rows:
                self._linger_or_flush(channel, subpartition)
        self._wrote(demand, written)

    def broadcast(self, batch: RecordBatch) -> None:
        """Append the same rows to every subpartition. They are held, and charged, once; waits while no slot is left.

        Raises:
            JobCancelledError: the job was cancelled.
        """
        if not self._shares_slots:
            self.write([(channel, batch) for channel in range(len(self.subpartitions))])
            return
        if self._cancelled:
            raise JobCancelledError(f"the job was cancelled while {self.name} was written")
        nbytes, consumers, demand = batch.nbytes, len(self.subpartitions), 0
        cost = nbytes + BATCH_OVERHEAD_BYTES
        if self._shared is not None and cost <= self._shared_spare and self._shared.retain(consumers):
            self._shared_spare -= cost
            self._add_shared(batch, cost, self._shared)
        else:
            for piece, size, slots in self._charged(batch, nbytes):
                demand += slots
                self._shared = SharedSlots(slots, self.pool.recycle, consumers)
                self._shared_spare = max(slots * SLOT_BYTES - size, 0)
                self._add_shared(piece, size, self._shared)
        self._wrote(demand, nbytes * consumers)

    def broadcast_event(self, event: Event) -> None:
        """Append an event to every subpartition; it shows everything before it. Never waits.

        A watermark that may wait lingers with the rows before it, if they do and the process is saturated.
        """
        lingers = (
            self._watermarks_linger and isinstance(event, Watermark) and self._saturated(self._clock.monotonic_ns())
        )
        for subpartition in self.subpartitions:
            if lingers and subpartition.unflushed_rows:
                subpartition.add_lingering(event)
            else:
                subpartition.add_event(event)

    def broadcast_barrier(self, barrier: CheckpointBarrier, settled: Callable[[int, Overtaken], None]) -> None:
        """Add a barrier to every subpartition, behind or before what is queued; never waits.

        Args:
            barrier: overtakes if its options say so; one with an alignment timeout may do so later, see `overtake`.
            settled: called once a subpartition (its number, what the barrier overtook there), at once or by another thread.
        """
        for channel, subpartition in enumerate(self.subpartitions):
            subpartition.add_barrier(barrier, partial(settled, channel))

    def overtake(self, checkpoint_id: int) -> None:
        """Have a barrier overtake wherever it is still queued. Any thread."""
        for subpartition in self.subpartitions:
            subpartition.overtake(checkpoint_id)

    def send_event(self, channel: int, event: Event) -> None:
        """Append an event to one subpartition."""
        self.subpartitions[channel].add_event(event)

    def flush(self) -> None:
        """Show everything to the consumers."""
        for subpartition in self.subpartitions:
            subpartition.flush()

    def finish(self) -> None:
        """End all channels; their slots go back to the global pool as they are read."""
        self.broadcast_event(END_OF_INPUT)
        for subpartition in self.subpartitions:
            subpartition.finish()
        self.pool.close()

    def call_when_read(self, listener: Callable[[], object], within_ms: int = END_READ_WITHIN_MS) -> None:
        """Call `listener` once, from any thread, perhaps at once.

        If it has ended without a row, that is when all who read know of the end, or `within_ms` later; else now: whoever has rows
        knows of the subtask.
        """
        if self._has_rows:
            listener()
            return
        countdown = _Countdown(len(self.subpartitions) + 1, listener)
        for subpartition in self.subpartitions:
            if not subpartition.listen_for_release(countdown.one_done):
                countdown.one_done()
        countdown.end_after(within_ms, self._timers)
        countdown.one_done()

    def create_view(
        self, subpartition: int, listener: Callable[[], None], urgent: Callable[[], None] | None = None
    ) -> SubpartitionView:
        """The reading end of one subpartition."""
        return self.subpartitions[subpartition].create_view(listener, urgent)

    def cancel(self) -> None:
        """Wake the writer: it raises `JobCancelledError`."""
        self._cancelled = True
        self.pool.cancel()

    def release(self, *, keep_files: bool = False) -> None:
        """Drop everything that was not read. Idempotent.

        Args:
            keep_files: of blocking subpartitions, for other processes.
        """
        for subpartition in self.subpartitions:
            if not (keep_files and not subpartition.holds_slots):
                subpartition.release()
        self.pool.cancel()
        self.pool.close()

    def _wrote(self, demand: int, nbytes: int) -> None:
        self._has_rows = True
        forgotten = self._demand >> _DEMAND_DECAY
        self._demand = min(max(demand, self._demand - forgotten), self.pool.limit)
        if self._bytes_out is not None:
            self._bytes_out.inc(nbytes)

    def _add_shared(self, batch: RecordBatch, nbytes: int, shared: SharedSlots) -> None:
        once = EncodedOnce()
        for channel, subpartition in enumerate(self.subpartitions):
            subpartition.add_shared(batch, nbytes, shared, once)
            if subpartition.unflushed_rows:
                self._linger_or_flush(channel, subpartition)

    def _charged(self, batch: RecordBatch, nbytes: int) -> Iterator[tuple[RecordBatch, int, int]]:
        """Rows with their bytes and the slots that were taken for them: as one batch if the pool has room for it, else cut by rows."""
        limit = self.pool.limit
        while True:
            slots = slots_for(nbytes)
            # Of what does not fit, half a pool at a time: one half is read while the next is written.
            taken = self._acquire(slots if slots <= limit else max(limit // 2, 1))
            if taken >= slots:
                yield batch, nbytes + BATCH_OVERHEAD_BYTES, taken
                return
            rows = rows_within(batch, taken * SLOT_BYTES - BATCH_OVERHEAD_BYTES)
            piece = batch if rows == batch.num_rows else batch.slice(0, rows)
            size = piece.nbytes
            slots = slots_for(size)
            if slots > taken:  # a row, or the dictionaries of its columns, that no cut makes smaller
                self.pool.overdraw(slots - taken)
            else:
                self.pool.recycle(taken - slots)
            yield piece, size + BATCH_OVERHEAD_BYTES, slots
            if piece is batch:
                return
            batch = batch.slice(rows)
            nbytes = batch.nbytes

    def _acquire(self, slots: int) -> int:
        taken = self.pool.try_acquire(slots)
        if taken:
            return taken
        if self.pool.try_overdraft(slots):
            return slots
        self.flush()
        if self._time is None:
            return self.pool.acquire(slots)
        self._time.begin(back_pressured=True)
        try:
            return self.pool.acquire(slots)
        finally:
            self._time.end()

    def _linger_or_flush(self, channel: int, subpartition: Subpartition) -> None:
        rows = subpartition.unflushed_rows
        if rows >= SATURATED_ROWS or self._linger_ms == 0:
            # Rows that come in bulk need no clock: the next small batch then finds an old flush and goes at once.
            subpartition.flush()
            return
        now = self._clock.monotonic_ns()
        saturated = self._saturated(now)
        if rows >= WORTH_A_WAKE_UP_ROWS and not saturated:
            subpartition.flush()
            return
        if self._linger_ms < 0 or self._flush_due[channel]:
            return
        linger_ns = (self._saturated_linger_ms if saturated else self._linger_ms) * 1_000_000
        silent_ns = now - self._last_flush_ns[channel]
        if silent_ns >= linger_ns:
            self._last_flush_ns[channel] = now
            subpartition.flush()
            return
        self._flush_due[channel] = True
        self._timers.after(-(-(linger_ns - silent_ns) // 1_000_000), lambda: self._flush_late(channel))

    def _flush_late(self, channel: int) -> None:
        # The flag goes first: a batch that is added after this line and still missed by the flush asks for a new one.
        self._flush_due[channel] = False
        self._last_flush_ns[channel] = self._clock.monotonic_ns()
        self.subpartitions[channel].flush()


class _Countdown:
    """Calls `listener` once, when `count` are done or it is ended. Thread-safe."""

    def __init__(self, count: int, listener: Callable[[], object]) -> None:
        self._left = count
        self._listener = listener
        self._timer: Timer | None = None
        self._lock = Lock()

    def end_after(self, delay_ms: int, timers: TimerThread) -> None:
        """End it then; to be called before the last one is done."""
        self._timer = timers.after(delay_ms, self._end)

    def one_done(self) -> None:
        with self._lock:
            self._left -= 1
            is_over = self._left == 0
        if is_over:
            self._tell()

    def _end(self) -> None:
        with self._lock:
            was_over, self._left = self._left <= 0, 0
        if not was_over:
            self._tell()

    def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._listener()
