"""Buffer pools: how much data may be in flight, counted in byte-sized slots. An empty pool is back pressure.

Arrow owns the memory itself; what is pooled is the right to hold it. One global pool for a process, one local pool for a
result partition and for an input gate: it owns a reserve that nobody else can use (so every writer can always go on) and borrows
from the global pool up to its limit. What is larger than that is cut by rows; a single row that is larger is charged as what it is.
A writer that began to write while there was room, and has more to write than it knew, may borrow a few slots beyond the limit, its
overdraft, so that it need not wait in the middle. After Apache Flink's `NetworkBufferPool`, `LocalBufferPool` and overdraft buffers
(FLIP-227).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from flowrun.errors import ClusterError, InternalError, JobCancelledError

SLOT_BYTES = 32 * 1024
"""Size of a slot. A batch takes as many as its bytes need."""

DEFAULT_TOTAL_SLOTS = 16384
"""Slots of a process: 512 MiB in flight at most, on both sides of all exchanges."""

BATCH_OVERHEAD_BYTES = 512
"""What a batch costs beside its rows (array and buffer objects); it keeps a flood of one-row batches accounted for."""


def slots_for(nbytes: int) -> int:
    """Slots that a batch of `nbytes` takes.

    >>> slots_for(0), slots_for(32_768), slots_for(1_500_000)
    (1, 2, 46)
    """
    return -(-(nbytes + BATCH_OVERHEAD_BYTES) // SLOT_BYTES)


class GlobalBufferPool:
    """The slots of a process. Thread-safe."""

    def __init__(self, total_slots: int = DEFAULT_TOTAL_SLOTS) -> None:
        self.total_slots = total_slots
        self._lock = threading.Lock()
        self._free = total_slots
        self._reserved = 0
        self._borrowers: list[LocalBufferPool] = []

    @property
    def free_slots(self) -> int:
        """Slots that are neither reserved nor borrowed; negative if others have more than is left beside the reserves."""
        return self._free

    def create_local(self, reserved: int, limit: int, overdraft: int = 0) -> LocalBufferPool:
        """A local pool with `reserved` slots of its own that may grow to `limit`, and by `overdraft` more where a writer is in the middle.

        If others have borrowed what it reserves, nobody borrows any more until as much has come back.

        Raises:
            ClusterError: others have reserved too much.
        """
        with self._lock:
            left = self.total_slots - self._reserved
            if left < reserved:
                raise ClusterError(
                    f"not enough network buffers: {reserved} slots needed for one more result partition or input gate, "
                    f"{left} of {self.total_slots} left",
                    hint="lower the parallelism, or raise the number of network buffer slots",
                )
            self._free -= reserved
            self._reserved += reserved
            pool = LocalBufferPool(self, reserved, max(limit, reserved), overdraft)
            self._borrowers.append(pool)
            return pool

    def borrow(self, slots: int) -> bool:
        """Take `slots`, all or none."""
        with self._lock:
            if self._free < slots:
                return False
            self._free -= slots
            return True

    def borrow_some(self, slots: int) -> int:
        """Take up to `slots`; gives how many there were."""
        with self._lock:
            taken = max(min(slots, self._free), 0)
            self._free -= taken
            return taken

    def overdraw(self, slots: int) -> None:
        """Take `slots` even if there are not as many: nobody else gets one until as many have come back."""
        with self._lock:
            self._free -= slots

    def give_back(self, slots: int, lender: LocalBufferPool | None = None) -> None:
        """Return slots; local pools that wait for some try again. `lender` is a pool that closes for good."""
        with self._lock:
            self._free += slots
            if self._free > self.total_slots:
                raise InternalError(f"{self._free - self.total_slots} network buffer slots were returned twice")
            if lender is not None:
                self._borrowers.remove(lender)
                self._reserved -= lender.reserved
            waiting = [p for p in self._borrowers if p.is_short]
        for pool in waiting:
            pool.notify_global_slots()


class LocalBufferPool:
    """The slots of one result partition or gate. Those are taken by one thread; `recycle` and `cancel` are for any."""

    def __init__(self, parent: GlobalBufferPool, reserved: int, limit: int, overdraft: int = 0) -> None:
        self._parent = parent
        self.reserved = reserved
        self.limit = limit
        self._overdraft = overdraft
        self._condition = threading.Condition(threading.Lock())
        self._borrowed = 0
        self._used = 0
        self._cancelled = False
        self._closed = False
        self._listener: Callable[[], None] | None = None
        self._wanted = 0
        self.peak_used = 0

    @property
    def used(self) -> int:
        """Slots of batches that are in flight."""
        return self._used

    @property
    def is_short(self) -> bool:
        """Whether the writer waits (or was told to wait) for slots."""
        return self._wanted > 0

    def try_acquire(self, slots: int, *, whole: bool = False) -> int:
        """Take `slots` (clamped to the limit) at once; gives the number taken, 0 if there is no room.

        Fewer are taken only if nothing is in flight: then as many as can be had, so that a part of the rows can go. `whole`: never fewer.
        """
        with self._condition:
            return 0 if self._cancelled else self._try(slots, whole=whole)

    def try_overdraft(self, slots: int) -> bool:
        """Take `slots` at once, beyond the limit by the overdraft at most; False if there is no room."""
        with self._condition:
            if self._cancelled or self._used + slots > self.limit + self._overdraft:
                return False
            missing = max(self._used + slots - self.reserved - self._borrowed, 0)
            if not self._parent.borrow(missing):
                return False
            self._borrowed += missing
            self._used += slots
            self.peak_used = max(self.peak_used, self._used)
            return True

    def acquire_some(self, slots: int) -> int:
        """Take up to `slots` at once; gives as many as there were."""
        with self._condition:
            wanted = min(slots, self.limit - self._used)
            if wanted <= 0 or self._cancelled or self._closed:
                return 0
            missing = max(self._used + wanted - self.reserved - self._borrowed, 0)
            borrowed = self._parent.borrow_some(missing) if missing else 0
            self._borrowed += borrowed
            taken = wanted - missing + borrowed
            self._used += taken
            self.peak_used = max(self.peak_used, self._used)
            return taken

    def overdraw(self, slots: int) -> None:
        """Take `slots` beyond the limit, without waiting: for a single row that is larger than what there is."""
        with self._condition:
            missing = max(self._used + slots - self.reserved - self._borrowed, 0)
            self._parent.overdraw(missing)
            self._borrowed += missing
            self._used += slots
            self.peak_used = max(self.peak_used, self._used)

    def acquire(self, slots: int) -> int:
        """Take slots, waiting for room; gives the number taken: `slots` clamped to the limit, or fewer as in `try_acquire`.

        Raises:
            JobCancelledError: `cancel` was called, before or while waiting.
        """
        with self._condition:
            while True:
                if self._cancelled:
                    raise JobCancelledError("the job was cancelled while its writer waited for network buffers")
                taken = self._try(slots)
                if taken:
                    return taken
                self._wanted = slots
                self._condition.wait()

    def has_room(self, slots: int) -> bool:
        """Whether a request for `slots` would be granted now; a hint, read without the lock."""
        return self._can_grant(slots)

    def listen(self, slots: int, listener: Callable[[], None]) -> bool:
        """Call `listener` once (from any thread) as soon as `slots` are free. False: they already are, nothing will be called."""
        with self._condition:
            if self._can_grant(slots) or self._cancelled:
                return False
            self._wanted = slots
            self._listener = listener
            return True

    def recycle(self, slots: int) -> None:
        """Give back the slots of a batch that was taken by its consumer; wakes the writer."""
        if slots == 0:
            return
        with self._condition:
            self._used -= slots
            if self._used < 0:
                raise InternalError(f"{-self._used} network buffer slots were recycled twice")
            surplus = max(min(self._borrowed, self._borrowed + self.reserved - self._used), 0)
            # Keep what was borrowed while the writer is short: it would only be borrowed again.
            surplus = 0 if self._wanted and not self._closed else surplus
            self._borrowed -= surplus
            final = self._closed and self._used == 0
            listener = self._wake()
        if surplus or final:
            self._parent.give_back(surplus + (self.reserved if final else 0), self if final else None)
        if listener is not None:
            listener()

    def notify_global_slots(self) -> None:
        """The global pool has slots again."""
        with self._condition:
            listener = self._wake()
        if listener is not None:
            listener()

    def cancel(self) -> None:
        """Make a waiting and every later `acquire` raise."""
        with self._condition:
            self._cancelled = True
            listener, self._listener = self._listener, None
            self._condition.notify_all()
        if listener is not None:
            listener()

    def close(self) -> None:
        """No more requests; slots return to the global pool as their batches are consumed. Idempotent."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._wanted = 0
            self._listener = None
            final = self._used == 0
            surplus = max(self._borrowed - max(self._used - self.reserved, 0), 0)
            self._borrowed -= surplus
        self._parent.give_back(surplus + (self.reserved if final else 0), self if final else None)

    def _wake(self) -> Callable[[], None] | None:
        listener = None
        if self._wanted and self._can_grant(self._wanted):
            listener, self._listener = self._listener, None
            self._wanted = 0
        self._condition.notify_all()
        return listener

    def _can_grant(self, slots: int) -> bool:
        slots = min(slots, self.limit)
        missing = self._used + slots - self.reserved - self._borrowed
        # With nothing in flight the reserve always lets some rows go.
        return self._used == 0 or (
            self._used + slots <= self.limit and (missing <= 0 or self._parent.free_slots >= missing)
        )

    def _try(self, slots: int, *, whole: bool = False) -> int:
        slots = min(slots, self.limit)
        if self._used + slots > self.limit:
            return 0
        missing = self._used + slots - self.reserved - self._borrowed
        if missing > 0:
            if self._parent.borrow(missing):
                self._borrowed += missing
            elif self._used == 0 and not whole:
                slots = self.reserved + self._borrowed
            else:
                return 0
        self._used += slots
        self.peak_used = max(self.peak_used, self._used)
        self._wanted = 0
        return slots


class SharedSlots:
    """Slots of rows that go to several consumers, held and charged once: they are recycled with the last reference. Thread-safe.

    Args:
        slots: how many.
        recycle: takes them back.
        references: how many holders there are at first.
    """

    __slots__ = ("_lock", "_recycle", "_references", "_slots")

    def __init__(self, slots: int, recycle: Callable[[int], None], references: int) -> None:
        self._slots = slots
        self._recycle = recycle
        self._references = references
        self._lock = threading.Lock()

    def retain(self, references: int) -> bool:
        """More holders; False if the slots were recycled already."""
        with self._lock:
            if self._references == 0:
                return False
            self._references += references
            return True

    def release(self) -> None:
        """One holder less."""
        with self._lock:
            self._references -= 1
            if self._references < 0:
                raise InternalError("a buffer that consumers share was recycled twice")
            last = self._references == 0
        if last:
            self._recycle(self._slots)
