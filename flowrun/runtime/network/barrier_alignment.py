"""Exactly once: barriers are aligned, or overtake, or are aligned until a time has passed and then overtake. Pure.

Aligned: a channel whose barrier has come is left unread until those of all channels have. Unaligned: the first barrier makes the
task take its snapshot, and what other channels give until theirs comes is recorded as part of it.
"""

from __future__ import annotations

from flowrun.core.clock import Clock
from flowrun.core.elements import CheckpointBarrier
from flowrun.runtime.network import barriers


class _Aligning:
    """The checkpoint some of whose barriers have come."""

    __slots__ = ("barrier", "seen", "since_ns")

    def __init__(self, barrier: CheckpointBarrier, since_ns: int) -> None:
        self.barrier = barrier
        self.seen: set[int] = set()
        self.since_ns = since_ns

    @property
    def checkpoint_id(self) -> int:
        return self.barrier.checkpoint_id


class BarrierAligner:
    """Acts on each checkpoint at most once, with an exact cut through all channels.

    After Apache Flink's `SingleCheckpointBarrierHandler`: the end of a channel counts as its barrier; a newer checkpoint subsumes an
    older one that is under way; barriers of checkpoints that are over are dropped; an abort that comes before its barrier is
    remembered. How barriers meet is said by each barrier, so savepoints may be aligned where checkpoints are not.

    >>> from flowrun.core.clock import ManualClock
    >>> aligner = BarrierAligner(2, ManualClock())
    >>> aligner.barrier(0, CheckpointBarrier(1, 0))
    [Block(channel=0)]
    >>> [type(action).__name__ for action in aligner.barrier(1, CheckpointBarrier(1, 0))]
    ['Resume', 'TakeSnapshot']
    """

    def __init__(self, channels: int, clock: Clock) -> None:
        self._clock = clock
        self._open = set(range(channels))
        self._blocked: set[int] = set()
        self._aligning: _Aligning | None = None
        self._recorded: set[int] = set()
        """Channels on which the barrier of `_last` is still awaited after its snapshot."""
        self._last = -1
        """The newest checkpoint that was acted upon or given up."""
        self._aborted = barriers.RememberedAborts()

    def barrier(self, channel: int, barrier: CheckpointBarrier) -> barriers.Actions:
        """A barrier arrived."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id == self._last and channel in self._recorded:
            return self._stop_recording(channel)
        current = self._aligning
        floor = self._last if current is None else current.checkpoint_id - 1
        if checkpoint_id <= floor or checkpoint_id in self._aborted:
            return barriers.NO_ACTION
        actions: list[barriers.BarrierAction] = []
        if current is None or checkpoint_id > current.checkpoint_id:
            actions += self._subsume(checkpoint_id)
            current = self._aligning = _Aligning(barrier, self._clock.monotonic_ns())
        current.seen.add(channel)
        if barriers.overtakes(barrier.options):
            current.barrier = barrier
        if current.seen >= self._open or self._overtakes_now(current):
            return [*actions, *self._act(current)]
        due = barriers.overtaking_time_ms(current.barrier)
        if due is not None and not self._blocked:
            actions.append(barriers.WakeAt(checkpoint_id, due))
        self._blocked.add(channel)
        return [*actions, barriers.Block(channel)]

    def end_of_input(self, channel: int) -> barriers.Actions:
        """A channel ended; the others may be complete now."""
        self._open.discard(channel)
        if channel in self._recorded:
            return self._stop_recording(channel)
        current = self._aligning
        if current is not None and self._open and current.seen >= self._open:
            return self._act(current)
        return barriers.NO_ACTION

    def abort(self, checkpoint_id: int) -> barriers.Actions:
        """Unblock what waits for it, stop recording for it, or remember it."""
        current = self._aligning
        if current is not None and current.checkpoint_id == checkpoint_id:
            self._over(checkpoint_id)
            return [*self._resume_all(), barriers.GiveUp(checkpoint_id, None)]
        if checkpoint_id == self._last and self._recorded:
            self._recorded.clear()
            return [barriers.GiveUp(checkpoint_id, None)]
        if checkpoint_id > self._last:
            self._aborted.add(checkpoint_id)
        return barriers.NO_ACTION

    def timed_out(self, checkpoint_id: int) -> barriers.Actions:
        """Go on unaligned if the alignment still waits."""
        current = self._aligning
        if current is None or current.checkpoint_id != checkpoint_id:
            return barriers.NO_ACTION
        return self._act(current)

    def _overtakes_now(self, current: _Aligning) -> bool:
        due = barriers.overtaking_time_ms(current.barrier)
        return barriers.overtakes(current.barrier.options) or (due is not None and self._clock.now_ms() >= due)

    def _act(self, current: _Aligning) -> list[barriers.BarrierAction]:
        """Take the snapshot: aligned if all barriers are here, else record the channels that are behind."""
        self._recorded = self._open - current.seen
        barrier = barriers.as_unaligned(current.barrier) if self._recorded else current.barrier
        self._over(current.checkpoint_id)
        return [*self._resume_all(), barriers.TakeSnapshot(barrier, frozenset(self._recorded), current.since_ns)]

    def _subsume(self, checkpoint_id: int) -> list[barriers.BarrierAction]:
        """Give up what a newer checkpoint makes pointless: its barrier can only overtake an older one that was given up upstream."""
        reason = f"subsumed by checkpoint {checkpoint_id}"
        actions: list[barriers.BarrierAction] = []
        if self._aligning is not None:
            actions += [*self._resume_all(), barriers.GiveUp(self._aligning.checkpoint_id, reason)]
            self._over(self._aligning.checkpoint_id)
        if self._recorded:
            actions.append(barriers.GiveUp(self._last, reason))
            self._recorded.clear()
        return actions

    def _over(self, checkpoint_id: int) -> None:
        self._last = checkpoint_id
        self._aligning = None
        self._aborted.forget_up_to(checkpoint_id)

    def _resume_all(self) -> list[barriers.BarrierAction]:
        resumed: list[barriers.BarrierAction] = [barriers.Resume(channel) for channel in sorted(self._blocked)]
        self._blocked.clear()
        return resumed

    def _stop_recording(self, channel: int) -> list[barriers.BarrierAction]:
        self._recorded.discard(channel)
        return [barriers.StopRecording(self._last, channel)]
