"""Buffer pools: how much data may be in flight, counted in byte-sized slots. An empty pool is back pressure.

Arrow owns the memory itself; what is pooled is the right to hold it. One global pool for a process, one local pool for a
result partition: it owns a reserve that nobody else can use (so every writer can always go on, one batch at a time) and borrows
from the global pool up to its limit. After Apache Flink's `NetworkBufferPool` and `LocalBufferPool`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from flowrun.errors import ClusterError, InternalError, JobCancelledError

SLOT_BYTES = 32 * 1024
"""Size of a slot. A batch takes as many as its bytes need, clamped to its pool, so that an oversized batch still goes."""

DEFAULT_TOTAL_SLOTS = 8192
"""Slots of a process: 256 MiB in flight at most."""

BATCH_OVERHEAD_BYTES = 512
"""What a batch costs beside its rows (array and buffer objects); it keeps a flood of one-row batches accounted for."""


def slots_for(nbytes: int) -> int:
    """Slots that a batch of `nbytes` takes before clamping.

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
        self._borrowers: list[LocalBufferPool] = []

    @property
    def free_slots(self) -> int:
        """Slots that are neither reserved nor borrowed."""
        return self._free

    def create_local(self, reserved: int, limit: int) -> LocalBufferPool:
        """A local pool with `reserved` slots of its own that may grow to `limit`.

        Raises:
            ClusterError: not even the reserve is left.
        """
        with self._lock:
            if self._free < reserved:
                raise ClusterError(
                    f"not enough network buffers: {reserved} slots needed for one more result partition, "
                    f"{self._free} of {self.total_slots} left",
                    hint="lower the parallelism, or raise the number of network buffer slots",
                )
            self._free -= reserved
            pool = LocalBufferPool(self, reserved, max(limit, reserved))
            self._borrowers.append(pool)
            return pool

    def borrow(self, slots: int) -> bool:
        """Take `slots`, all or none."""
        with self._lock:
            if self._free < slots:
                return False
            self._free -= slots
            return True

    def give_back(self, slots: int, lender: LocalBufferPool | None = None) -> None:
        """Return slots; local pools that wait for some try again. `lender` is a pool that closes for good."""
        with self._lock:
            self._free += slots
            if self._free > self.total_slots:
                raise InternalError(f"{self._free - self.total_slots} network buffer slots were returned twice")
            if lender is not None:
                self._borrowers.remove(lender)
            waiting = [p for p in self._borrowers if p.is_short]
        for pool in waiting:
            pool.notify_global_slots()


class LocalBufferPool:
    """The slots of one result partition. `acquire` is for the writer's thread; `recycle` and `cancel` are for any."""

    def __init__(self, parent: GlobalBufferPool, reserved: int, limit: int) -> None:
        self._parent = parent
        self._reserved = reserved
        self.limit = limit
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

    def try_acquire(self, slots: int) -> int:
        """Take up to `slots` (clamped to the limit) at once; gives the number taken, 0 if there is no room."""
        with self._condition:
            return 0 if self._cancelled else self._try(slots)

    def acquire(self, slots: int) -> int:
        """Take slots, waiting for room; gives the number taken, which is `slots` clamped to what the pool can ever hold.

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
            surplus = max(min(self._borrowed, self._borrowed + self._reserved - self._used), 0)
            # Keep what was borrowed while the writer is short: it would only be borrowed again.
            surplus = 0 if self._wanted and not self._closed else surplus
            self._borrowed -= surplus
            final = self._closed and self._used == 0
            listener = self._wake()
        if surplus or final:
            self._parent.give_back(surplus + (self._reserved if final else 0), self if final else None)
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
            surplus = max(self._borrowed - max(self._used - self._reserved, 0), 0)
            self._borrowed -= surplus
        self._parent.give_back(surplus + (self._reserved if final else 0), self if final else None)

    def _wake(self) -> Callable[[], None] | None:
        listener = None
        if self._wanted and self._can_grant(self._wanted):
            listener, self._listener = self._listener, None
            self._wanted = 0
        self._condition.notify_all()
        return listener

    def _can_grant(self, slots: int) -> bool:
        slots = min(slots, self.limit)
        missing = self._used + slots - self._reserved - self._borrowed
        # With nothing in flight the reserve always lets one batch go, however large.
        return (
            self._used == 0 or missing <= 0 or (self._used + slots <= self.limit and self._parent.free_slots >= missing)
        )

    def _try(self, slots: int) -> int:
        slots = min(slots, self.limit)
        if self._used + slots > self.limit:
            return 0
        missing = self._used + slots - self._reserved - self._borrowed
        if missing > 0:
            if self._parent.borrow(missing):
                self._borrowed += missing
            elif self._used == 0:
                slots = self._reserved + self._borrowed
            else:
                return 0
        self._used += slots
        self.peak_used = max(self.peak_used, self._used)
        self._wanted = 0
        return slots
