"""Event time in mid-stream: the operator that assigns timestamps and makes watermarks.

The strategies are in `watermark_strategy`, the rule of cutting batches in `watermark_rule`.
"""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch, Watermark, WatermarkStatus
from flowrun.operators.base import AbstractOperator
from flowrun.operators.event_time_output import EventTimeOutput, RestoredEventTime
from flowrun.operators.factories import TimestampsAndWatermarksFactory
from flowrun.operators.split_watermarks import SplitEventTime

_INPUT = "input"
_STATE = "watermark"
_STATE_SCHEMA = pa.schema([("subtask", pa.int32()), ("parallelism", pa.int32()), ("watermark", pa.int64())])


class TimestampsAndWatermarksOperator(AbstractOperator):
    """Upstream idleness is passed on: no rows can come, so nobody downstream should wait for them."""

    def __init__(self, factory: TimestampsAndWatermarksFactory) -> None:
        self._factory = factory
        self._restored: RestoredEventTime | None = None
        self._event_times: EventTimeOutput | None = None

    @property
    def _out(self) -> EventTimeOutput:
        assert self._event_times is not None
        return self._event_times

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """At the same parallelism the subtask's own watermark; else the lowest of all, so that nothing new is late."""
        if restored is None or _STATE not in restored.operator:
            return
        rows = restored.operator[_STATE].rows.to_pylist()
        context = self.context
        own = [r for r in rows if (r["subtask"], r["parallelism"]) == (context.subtask, context.parallelism)]
        if rows:
            watermark = min(r["watermark"] for r in own or rows)
            self._restored = RestoredEventTime(watermark, {_INPUT: SplitEventTime(watermark)})

    def open(self) -> None:
        """Compile the strategy."""
        self._event_times = EventTimeOutput(
            self._factory.strategy, self.context, self.output, f"operator '{self._factory.name}'", self._restored
        )
        self._event_times.start()
        self.context.execute(self._event_times.resume)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Give the rows event time, send them and the watermarks that they allow."""
        self._out.emit(batch, batch, _INPUT)

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        """Only the end of input passes."""
        if watermark.timestamp == MAX_TIMESTAMP:
            self._out.finish()

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        """An idle input makes the output idle, whatever the timeout."""
        self._out.hold_idle(status.idle)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The watermark reached, so that rows late before a failure are late after it."""
        progress = self._out.progress_of(_INPUT)
        reached = [] if progress is None or self._out.combined is None else [progress.watermark]
        row = [
            {"subtask": self.context.subtask, "parallelism": self.context.parallelism, "watermark": watermark}
            for watermark in reached
        ]
        rows = pa.Table.from_pylist(row, _STATE_SCHEMA)
        return OperatorSnapshot(operator={_STATE: OperatorState(rows, Redistribution.UNION)})

    def close(self) -> None:
        """Forget the idleness timer."""
        if self._event_times is not None:
            self._event_times.close()
