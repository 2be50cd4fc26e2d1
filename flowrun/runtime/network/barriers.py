"""Barrier handlers: when the barriers that arrive on the channels of a task make it take its snapshot."""

from __future__ import annotations

from typing import Protocol

from flowrun.core.elements import CheckpointBarrier


class BarrierHandler(Protocol):
    """Told of every barrier and every end of a channel, in order. One a task; called by the task's thread.

    Channels are numbered over all inputs of the task. A handler that aligns blocks and resumes channels of the gates.
    """

    def barrier(self, channel: int, barrier: CheckpointBarrier) -> CheckpointBarrier | None:
        """A barrier arrived; gives the barrier on which the task must act now, if any."""
        ...

    def end_of_input(self, channel: int) -> CheckpointBarrier | None:
        """A channel ended, which counts as its barrier; gives the barrier on which the task must act now, if any."""
        ...


class BarrierTracker:
    """Acts when the barrier has arrived on every open channel; blocks nothing.

    Exactly once for a task with one channel, at least once for others. After Apache Flink's `CheckpointBarrierTracker`: a newer
    id subsumes a pending older one, and ids that were acted upon are forgotten.

    >>> tracker = BarrierTracker(2)
    >>> tracker.barrier(0, CheckpointBarrier(1, 0)), tracker.barrier(1, CheckpointBarrier(1, 0))
    (None, CheckpointBarrier(checkpoint_id=1, trigger_ms=0, options=CheckpointOptions(kind=<CheckpointKind.CHECKPOINT: 'checkpoint'>, \
alignment=<Alignment.ALIGNED: 'aligned'>, alignment_timeout_ms=None, stop=False, drain=False)))
    """

    def __init__(self, channels: int) -> None:
        self._open = set(range(channels))
        self._pending: dict[int, tuple[CheckpointBarrier, set[int]]] = {}
        self._last = -1

    def barrier(self, channel: int, barrier: CheckpointBarrier) -> CheckpointBarrier | None:
        """A barrier arrived on a channel."""
        if barrier.checkpoint_id <= self._last:
            return None
        self._pending.setdefault(barrier.checkpoint_id, (barrier, set()))[1].add(channel)
        return self._complete()

    def end_of_input(self, channel: int) -> CheckpointBarrier | None:
        """A channel ended: the others decide."""
        self._open.discard(channel)
        return self._complete() if self._open else None

    def _complete(self) -> CheckpointBarrier | None:
        complete = [b for b, seen in self._pending.values() if seen >= self._open]
        if not complete:
            return None
        newest = max(complete, key=lambda b: b.checkpoint_id)
        self._last = newest.checkpoint_id
        self._pending = {i: p for i, p in self._pending.items() if i > self._last}
        return newest
