"""When the barriers that arrive on the channels of a task make it take its snapshot: the contract of barrier handlers. Pure.

A handler is told of every barrier and every end of a channel, in the order of arrival, and answers with what the task has to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from flowrun.core.clock import Clock
from flowrun.core.elements import (
    Alignment,
    CheckpointBarrier,
    CheckpointKind,
    CheckpointOptions,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.core.record import record


@record
class Block:
    """Leave a channel unread until `Resume`: its barrier has come, others are awaited."""

    channel: int


@record
class Resume:
    """Read a blocked channel again."""

    channel: int


@record
class TakeSnapshot:
    """Take the snapshot now and pass the barrier on.

    Attributes:
        barrier: unaligned if the alignment was, or has become so.
        recorded: channels whose barrier has not come: what they give from now on belongs to the snapshot, until `StopRecording`.
        since_ns: arrival of the first barrier, `Clock.monotonic_ns`.
    """

    barrier: CheckpointBarrier
    recorded: frozenset[int]
    since_ns: int


@record
class Record:
    """These elements of a recorded channel belong to the snapshot: its barrier has overtaken them where they wait."""

    checkpoint_id: int
    channel: int
    elements: Sequence[RecordBatch | Watermark | WatermarkStatus]


@record
class StopRecording:
    """The barrier of a recorded channel has come, or its end."""

    checkpoint_id: int
    channel: int


@record
class GiveUp:
    """No snapshot of this checkpoint (any more): what was recorded for it is void. `reason` goes into the decline; None: it was aborted."""

    checkpoint_id: int
    reason: str | None


@record
class WakeAt:
    """Call `timed_out(checkpoint_id)` at `time_ms` (epoch)."""

    checkpoint_id: int
    time_ms: int


BarrierAction = Block | Resume | TakeSnapshot | Record | StopRecording | GiveUp | WakeAt
Actions = Sequence[BarrierAction]
NO_ACTION: Actions = ()


class BarrierHandler(Protocol):
    """One a task; called by the task's thread. Channels are numbered over all inputs of the task."""

    def barrier(self, channel: int, barrier: CheckpointBarrier) -> Actions:
        """A barrier arrived."""
        ...

    def end_of_input(self, channel: int) -> Actions:
        """A channel ended, which counts as its barrier."""
        ...

    def abort(self, checkpoint_id: int) -> Actions:
        """The job master gave a checkpoint up; remembered if its barrier has not come."""
        ...

    def timed_out(self, checkpoint_id: int) -> Actions:
        """What `WakeAt` asked for; harmless if late."""
        ...


MAX_REMEMBERED_ABORTS = 128
"""How many aborted checkpoints whose barrier has not come are remembered, the newest ones (as in Apache Flink)."""


class RememberedAborts:
    """Checkpoints that were aborted before their barrier came."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def __contains__(self, checkpoint_id: int) -> bool:
        return checkpoint_id in self._ids

    def add(self, checkpoint_id: int) -> None:
        """Remember one; the oldest is forgotten when there are too many."""
        self._ids.add(checkpoint_id)
        if len(self._ids) > MAX_REMEMBERED_ABORTS:
            self._ids.remove(min(self._ids))

    def forget_up_to(self, checkpoint_id: int) -> None:
        """Barriers up to this one are dropped anyway."""
        self._ids = {i for i in self._ids if i > checkpoint_id}


def overtakes(options: CheckpointOptions) -> bool:
    """Whether barriers with these options overtake rows. Savepoints and the last snapshot of a stopped job never do.

    >>> overtakes(CheckpointOptions(alignment=Alignment.UNALIGNED)), overtakes(CheckpointOptions(CheckpointKind.SAVEPOINT))
    (True, False)
    """
    return options.alignment is Alignment.UNALIGNED and options.kind is CheckpointKind.CHECKPOINT and not options.stop


def overtaking_time_ms(barrier: CheckpointBarrier) -> int | None:
    """When an aligned barrier begins to overtake, epoch ms; None: never.

    >>> overtaking_time_ms(CheckpointBarrier(1, 1_000, CheckpointOptions(alignment_timeout_ms=50)))
    1050
    """
    options = barrier.options
    if options.alignment is not Alignment.ALIGNED or options.alignment_timeout_ms is None:
        return None
    if options.kind is not CheckpointKind.CHECKPOINT or options.stop:
        return None
    return barrier.trigger_ms + options.alignment_timeout_ms


def as_unaligned(barrier: CheckpointBarrier) -> CheckpointBarrier:
    """The same barrier, overtaking."""
    return replace(barrier, options=replace(barrier.options, alignment=Alignment.UNALIGNED))


def as_aligned(barrier: CheckpointBarrier) -> CheckpointBarrier:
    """The same barrier, never overtaking."""
    return replace(barrier, options=replace(barrier.options, alignment=Alignment.ALIGNED, alignment_timeout_ms=None))


def barrier_to_send(barrier: CheckpointBarrier, clock: Clock) -> CheckpointBarrier:
    """The barrier as a task sends it on now: overtaking if its time is up, aligned if it never may overtake."""
    due = overtaking_time_ms(barrier)
    if due is not None and clock.now_ms() >= due:
        return as_unaligned(barrier)
    if barrier.options.alignment is Alignment.UNALIGNED and not overtakes(barrier.options):
        return as_aligned(barrier)
    return barrier
