"""At least once: a task takes its snapshot when it has seen all barriers, and goes on with all channels meanwhile. Pure."""

from __future__ import annotations

from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointBarrier
from flowrun.runtime.network.barriers import NO_ACTION, Actions, GiveUp, RememberedAborts, TakeSnapshot


class _Pending:
    """A checkpoint some of whose barriers have come."""

    __slots__ = ("barrier", "seen", "since_ns")

    def __init__(self, barrier: CheckpointBarrier, since_ns: int) -> None:
        self.barrier = barrier
        self.seen: set[int] = set()
        self.since_ns = since_ns


class BarrierTracker:
    """Acts when the barrier has arrived on every open channel; blocks nothing.

    Exactly once for a task with one channel, at least once for others. After Apache Flink's `CheckpointBarrierTracker`: several
    checkpoints may be under way, and one that completes subsumes the older ones.

    >>> from flowrun.core.clock import ManualClock
    >>> tracker = BarrierTracker(2, ManualClock())
    >>> tracker.barrier(0, CheckpointBarrier(1, 0))
    ()
    >>> [a.barrier.checkpoint_id for a in tracker.barrier(1, CheckpointBarrier(1, 0))]
    [1]
    """

    def __init__(self, channels: int, clock: Clock) -> None:
        self._clock = clock
        self._open = set(range(channels))
        self._pending: dict[int, _Pending] = {}
        self._last = -1
        self._aborted = RememberedAborts()

    def barrier(self, channel: int, barrier: CheckpointBarrier) -> Actions:
        """A barrier arrived; dropped if its checkpoint is over."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id <= self._last or checkpoint_id in self._aborted:
            return NO_ACTION
        if checkpoint_id not in self._pending:
            self._pending[checkpoint_id] = _Pending(barrier, self._clock.monotonic_ns())
        self._pending[checkpoint_id].seen.add(channel)
        return self._complete()

    def end_of_input(self, channel: int) -> Actions:
        """A channel ended: the others decide."""
        self._open.discard(channel)
        return self._complete() if self._open else NO_ACTION

    def abort(self, checkpoint_id: int) -> Actions:
        """Forget a pending checkpoint, and its barriers that are still to come."""
        if checkpoint_id > self._last:
            self._aborted.add(checkpoint_id)
        return NO_ACTION if self._pending.pop(checkpoint_id, None) is None else (GiveUp(checkpoint_id, None),)

    def timed_out(self, checkpoint_id: int) -> Actions:
        """Nothing is ever blocked."""
        return NO_ACTION

    def _complete(self) -> Actions:
        complete = [i for i, p in self._pending.items() if p.seen >= self._open]
        if not complete:
            return NO_ACTION
        newest = max(complete)
        done = self._pending[newest]
        older = sorted(i for i in self._pending if i < newest)
        self._last = newest
        self._aborted.forget_up_to(newest)
        self._pending = {i: p for i, p in self._pending.items() if i > newest}
        subsumed = (GiveUp(i, f"subsumed by checkpoint {newest}") for i in older)
        return (*subsumed, TakeSnapshot(done.barrier, frozenset(), done.since_ns))
