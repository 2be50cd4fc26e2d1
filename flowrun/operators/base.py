"""The common part of all operators: context, output, event time combined over inputs, and defaults for optional calls."""

from __future__ import annotations

import numpy as np

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    LatencyMarker,
    PassingWatermarks,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)


class CombinedWatermark:
    """The event time of an operator with several inputs: the minimum over its active inputs.

    After Apache Flink's `IndexedCombinedWatermarkStatus`: idle inputs do not count; while all are idle the last value stands;
    the combined value never goes back. Unlike there, an input that is at its end does not count either while others go on: an
    idle input beside an ended one must not push event time to its end.

    >>> combined = CombinedWatermark(2)
    >>> combined.update(0, 5), combined.update(1, 3), combined.timestamp
    (False, True, 3)
    """

    def __init__(self, inputs: int) -> None:
        self._timestamps = [MIN_TIMESTAMP] * inputs
        self._idle = [False] * inputs
        self.timestamp = MIN_TIMESTAMP

    @property
    def idle(self) -> bool:
        """Whether all inputs are idle."""
        return all(self._idle)

    def update(self, index: int, timestamp: int) -> bool:
        """Raise the watermark of one input; True if the combined one advanced."""
        self._timestamps[index] = max(self._timestamps[index], timestamp)
        return self._advance()

    def passing(self, index: int, watermarks: PassingWatermarks) -> PassingWatermarks | None:
        """What these watermarks of one input make of the combined one, between the same rows. `reach` is to be called for each."""
        others = [t for i, t in enumerate(self._timestamps) if i != index and not self._idle[i] and t != MAX_TIMESTAMP]
        self._timestamps[index] = max(self._timestamps[index], int(watermarks.timestamps[-1]))
        reached = np.minimum(watermarks.timestamps, min(others, default=MAX_TIMESTAMP))
        new = (reached > self.timestamp) & (reached > np.append(MIN_TIMESTAMP, reached[:-1]))
        return PassingWatermarks.of(watermarks.rows[new], reached[new])

    def reach(self, timestamp: int) -> None:
        """The combined watermark is one that `passing` gave."""
        self.timestamp = max(self.timestamp, timestamp)

    def update_status(self, index: int, idle: bool) -> bool:
        """Set one input idle or active; True if the combined watermark advanced."""
        self._idle[index] = idle
        return self._advance()

    def _advance(self) -> bool:
        ended = all(t == MAX_TIMESTAMP for t in self._timestamps)
        counting = [
            t for t, idle in zip(self._timestamps, self._idle, strict=True) if ended or not (idle or t == MAX_TIMESTAMP)
        ]
        if not counting or min(counting) <= self.timestamp:
            return False
        self.timestamp = min(counting)
        return True


class AbstractOperator:
    """Implements every call of the operator contract but `process_batch`; subclasses override what they need.

    Subclasses with event-time logic override `on_watermark`, not `process_watermark`: it is called with the combined watermark
    of all inputs before that is forwarded.
    """

    inputs = 1
    context: OperatorContext
    output: Output

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        self.context = context
        self.output = output
        self._event_time = CombinedWatermark(self.inputs)

    @property
    def current_watermark(self) -> int:
        """Event time of this operator, ms; MIN_TIMESTAMP before the first watermark."""
        return self._event_time.timestamp

    @property
    def passes_watermarks(self) -> bool:
        """`process_batch` takes no batches with watermarks between the rows; see `flowrun.api.operator.PassesWatermarks`."""
        return False

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Nothing to restore."""

    def open(self) -> None:
        """Nothing to acquire."""

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Process rows."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        """Combine with the other inputs; when event time advanced, fire what is due and forward."""
        if self._event_time.update(input_index, watermark.timestamp):
            self._advance_to(self._event_time.timestamp)

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """Forward idleness once all inputs agree; an input that goes idle may let event time advance."""
        was_idle = self._event_time.idle
        if self._event_time.update_status(input_index, status.idle):
            self._advance_to(self._event_time.timestamp)
        if self._event_time.idle != was_idle:
            self.output.emit_status(IDLE if self._event_time.idle else ACTIVE)

    def _advance_to(self, timestamp: int) -> None:
        self.on_watermark(timestamp)
        self.output.emit_watermark(Watermark(timestamp))

    def on_watermark(self, timestamp: int) -> None:
        """Event time advanced to `timestamp` (ms); emit what is due. The watermark is forwarded afterwards."""

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        """Forward."""
        self.output.emit_latency_marker(marker)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Nothing to flush."""

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """Nothing to remember."""
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing to commit."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Nothing to undo."""

    def end_input(self, input_index: int = 0) -> None:
        """Nothing to do."""

    def finish(self) -> None:
        """Nothing left to emit."""

    def close(self) -> None:
        """Nothing to release."""
