"""One checkpoint of one subtask between its barrier and its acknowledgement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import CheckpointBarrier
from flowrun.runtime.network.partition import Overtaken
from flowrun.runtime.network.subpartition import InFlightElement
from flowrun.runtime.timers import Timer
from flowrun.state.checkpoints import ChannelProgress, OperatorSubtaskState


class SnapshotInProgress:
    """Collects the parts of a snapshot: the state that an upload thread writes, what was in flight on inputs and on outputs.

    The parts come from different threads; the last one calls `when_complete`.

    Args:
        barrier: as it is sent on.
        recorded: channels of the task whose barrier is still to come; what they give is one part.
        outputs: number of subpartitions that the barrier is sent to; what it overtakes in each is one part.
        since_ns: arrival of the first barrier.
        when_complete: called, by any thread, when there is nothing more to wait for.
    """

    def __init__(
        self,
        barrier: CheckpointBarrier,
        recorded: frozenset[int],
        outputs: int,
        since_ns: int,
        when_complete: Callable[[SnapshotInProgress], None],
    ) -> None:
        self.barrier = barrier
        self.recorded: dict[int, list[InFlightElement]] = {channel: [] for channel in recorded}
        self.overtaken: dict[tuple[int, int], Overtaken] = {}
        """By partition and subpartition."""
        self.operators: Sequence[OperatorSnapshot] = ()
        self.states: list[OperatorSubtaskState] = []
        self.progress: tuple[ChannelProgress, ...] = ()
        self.alignment_ms = 0.0
        self.synchronous_ms = 0.0
        self.captured_ns = 0
        """When the synchronous part was over."""
        self.timer: Timer | None = None
        """Makes the barrier overtake."""
        self.void = False
        """Whether it was aborted or declined, so that its result is not needed."""
        self.is_acknowledged = False
        self._since_ns = since_ns
        self._when_complete = when_complete
        self._lock = threading.Lock()
        self._left = 1 + bool(recorded) + outputs
        self._open_channels = set(recorded)

    @property
    def checkpoint_id(self) -> int:
        """Of the barrier."""
        return self.barrier.checkpoint_id

    def part_done(self) -> None:
        """A part is there. Any thread."""
        with self._lock:
            self._left -= 1
            complete = self._left == 0
        if complete and not self.void:
            self._when_complete(self)

    def settle(self, partition: int, subpartition: int, overtaken: Overtaken) -> None:
        """What the barrier overtook in an output. Any thread."""
        if overtaken:
            self.overtaken[partition, subpartition] = overtaken
        self.part_done()

    def record(self, channel: int, element: InFlightElement) -> None:
        """An element of a channel whose barrier is still to come."""
        self.recorded[channel].append(element)

    def stop_recording(self, channel: int, now_ns: int) -> None:
        """The barrier of a channel has come; with the last one the inputs are done."""
        self._open_channels.discard(channel)
        if not self._open_channels:
            self.alignment_ms = (now_ns - self._since_ns) / 1e6
            self.part_done()
