"""Credit: the slots in which a gate receives rows. Each channel has exclusive ones, and all channels share the gate's floating ones.

A sender gives no more rows than its channel has credit for. With them it announces its backlog, the slots that the rows behind them take,
and the channel gets as many floating slots for it as there are. Rows keep their slots until the task has processed them. After Apache
Flink's credit-based flow control (`BufferManager`), for senders in the same process and in others alike: in the same process rows are
handed over by reference, and the slots only account for what the task has in its hands. What a sender in another process was promised stays
promised: nobody else gets these slots until it has filled them.
"""

from __future__ import annotations

import threading

from flowrun.runtime.network.buffer_pool import GlobalBufferPool

EXCLUSIVE_SLOTS = 2
"""Slots that each channel has for itself: however greedy others are, it goes on."""

FLOATING_SLOTS = 256
"""Slots that the channels of a gate may have beside them: 8 MiB, about five batches of 64k rows × 3 BIGINTs."""


class GateCredit:
    """The slots of one gate, and the credit of its channels. Thread-safe.

    Args:
        pool: of the process.
        channels: of the gate.
        exclusive: slots of each channel.
        floating: slots that they may have beside them, as long as the process has any.

    Raises:
        ClusterError: not even the exclusive slots are left.
    """

    def __init__(
        self,
        pool: GlobalBufferPool,
        channels: int,
        *,
        exclusive: int = EXCLUSIVE_SLOTS,
        floating: int = FLOATING_SLOTS,
    ) -> None:
        reserved = exclusive * channels
        self.lock = threading.RLock()
        """Held while a channel's credit changes: that of channels from other processes does so on their connection's thread."""
        self._process = pool
        self._floating = floating
        self._pool = pool.create_local(reserved, reserved + floating)
        self._reserved = self._pool.try_acquire(reserved)
        self.channels = tuple(ChannelCredit(self, exclusive) for _ in range(channels))

    @property
    def used_floating(self) -> int:
        """Floating slots that channels have."""
        return self._pool.used - self._reserved

    @property
    def is_scarce(self) -> bool:
        """Whether others may want the floating slots that a channel has and does not need now."""
        return 2 * self._process.free_slots < self._process.total_slots

    @property
    def share(self) -> int:
        """Floating slots that a channel may promise to its sender although that has announced no rows for them: so it can send rows as
        soon as it has some, and every other channel still comes to as many.
        """
        return 0 if self.is_scarce else self._floating // len(self.channels)

    def floating(self, slots: int, taker: ChannelCredit) -> int:
        """Up to `slots` floating ones; gives as many as there are. Other channels part with those that they do not use for it."""
        taken = self._pool.acquire_some(slots)
        if taken < slots:
            for channel in self.channels:
                if channel is not taker:
                    channel.give_back_unused()
            taken += self._pool.acquire_some(slots - taken)
        return taken

    def overdraw(self, slots: int) -> None:
        """Slots for a row that came although there was too little credit for it."""
        self._pool.overdraw(slots)

    def give_back(self, slots: int) -> None:
        """Floating or overdrawn slots are free."""
        self._pool.recycle(slots)

    def release(self) -> None:
        """Free the exclusive slots; floating ones follow as they are given back. Idempotent."""
        with self.lock:
            reserved, self._reserved = self._reserved, 0
        self._pool.recycle(reserved)
        self._pool.close()


class ChannelCredit:
    """What one channel may receive. Thread-safe."""

    __slots__ = ("_exclusive", "_extra", "_gate", "_held", "_promised")

    def __init__(self, gate: GateCredit, exclusive: int) -> None:
        self._gate = gate
        self._exclusive = exclusive
        self._extra = 0
        """Slots beyond the exclusive ones."""
        self._held = 0
        """Slots of rows that were received and not processed yet."""
        self._promised = 0
        """Slots that the sender, in another process, was told of and has not filled; less than none after a row that took more."""

    @property
    def available(self) -> int:
        """Slots that the sender may fill."""
        return self._exclusive + self._extra - self._held

    def for_backlog(self, backlog: int) -> int:
        """The credit once the sender has announced a backlog, with as many floating slots as there are for it."""
        with self._gate.lock:
            available = self._exclusive + self._extra - self._held
            if backlog > available:
                extra = self._gate.floating(backlog - available, self)
                self._extra += extra
                available += extra
            return available

    def promise(self, backlog: int) -> int:
        """Slots that the sender may fill beside those that it knows of, once it has announced a backlog. They are kept for it."""
        with self._gate.lock:
            most = max(backlog, self._exclusive + self._gate.share)
            added = min(self.for_backlog(backlog), most) - self._promised
            if added <= 0:
                return 0
            self._promised += added
            return added

    def receive(self, slots: int) -> None:
        """Rows came that take so many slots."""
        with self._gate.lock:
            self._held += slots
            missing = self._held - self._exclusive - self._extra
            if missing > 0:
                self._gate.overdraw(missing)
                self._extra += missing

    def receive_promised(self, slots: int) -> None:
        """Rows came that take so many of the slots that were promised."""
        with self._gate.lock:
            self._promised -= slots
            self.receive(slots)

    def recycle(self, still_held: int = 0) -> None:
        """All rows were processed but those that take `still_held` slots: the other slots are free.

        Floating ones stay while the process has plenty, to be asked for less often.
        """
        with self._gate.lock:
            self._held = still_held
            if self._extra and self._gate.is_scarce:
                self.give_back_unused()

    def give_back_unused(self) -> None:
        """Part with the floating slots that hold nothing and are promised to nobody."""
        with self._gate.lock:
            used = max(self._held + max(self._promised, 0) - self._exclusive, 0)
            if self._extra > used:
                extra, self._extra = self._extra - used, used
                self._gate.give_back(extra)

    def release(self) -> None:
        """Nothing is received any more."""
        with self._gate.lock:
            self._held = self._promised = 0
            self.give_back_unused()
