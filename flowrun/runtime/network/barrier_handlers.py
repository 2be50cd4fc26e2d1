"""Which handler a task has: one for all barriers that it may meet."""

from __future__ import annotations

from flowrun.core.clock import Clock
from flowrun.core.elements import Alignment, CheckpointBarrier
from flowrun.runtime.network.barrier_alignment import BarrierAligner
from flowrun.runtime.network.barrier_tracker import BarrierTracker
from flowrun.runtime.network.barriers import Actions, BarrierAction, GiveUp, TakeSnapshot


class MixedBarrierHandler:
    """Tracks the barriers of checkpoints at least once, and aligns all others: savepoints of such a job are exact.

    Checkpoints of both kinds that are under way at a time
    do not disturb each other; one that would come out of order is given up.
    """

    def __init__(self, channels: int, clock: Clock) -> None:
        self._tracker = BarrierTracker(channels, clock)
        self._aligner = BarrierAligner(channels, clock)
        self._last = -1

    def barrier(self, channel: int, barrier: CheckpointBarrier) -> Actions:
        """A barrier arrived: its options say how it meets its like."""
        if barrier.options.alignment is Alignment.AT_LEAST_ONCE:
            return self._in_order(self._tracker.barrier(channel, barrier))
        return self._in_order(self._aligner.barrier(channel, barrier))

    def end_of_input(self, channel: int) -> Actions:
        """A channel ended."""
        return self._in_order((*self._tracker.end_of_input(channel), *self._aligner.end_of_input(channel)))

    def abort(self, checkpoint_id: int) -> Actions:
        """A checkpoint was given up."""
        return (*self._tracker.abort(checkpoint_id), *self._aligner.abort(checkpoint_id))

    def timed_out(self, checkpoint_id: int) -> Actions:
        """Time to overtake."""
        return self._in_order(self._aligner.timed_out(checkpoint_id))

    def _in_order(self, actions: Actions) -> Actions:
        checked: list[BarrierAction] = []
        for action in actions:
            if isinstance(action, TakeSnapshot):
                if action.barrier.checkpoint_id <= self._last:
                    checked.append(GiveUp(action.barrier.checkpoint_id, f"subsumed by checkpoint {self._last}"))
                    continue
                self._last = action.barrier.checkpoint_id
            checked.append(action)
        return checked
