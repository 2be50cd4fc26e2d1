"""Windows by the clocks of a time zone: an operator whose times are local, among operators whose times are instants.

The rules are those of Apache Flink's `TimeWindowUtil`: windows are aligned to the wall clock, their bounds are local times, and a window
is over when no later instant can show a time of it. So a day on which clocks are set forward has 23 hours, and the hour that comes
twice when they are set back is one window, which closes when the second one is over. The operator inside knows nothing of it: watermarks
and clock reach it as the local time that is over by then, and what it sends gets the last instant of its local time as event time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from flowrun.api.operator import (
    OperatorContext,
    Output,
    OutputTag,
    ProcessingTimeService,
    StreamOperator,
    TimerHandle,
)
from flowrun.api.state import OperatorSnapshot
from flowrun.core.elements import LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.local_time import UTC_ZONE, Times, WallClock


def in_zone(operator: StreamOperator, zone: str) -> StreamOperator:
    """The operator with the clocks of `zone` for its times; the very operator in UTC."""
    return operator if zone == UTC_ZONE else _LocalTimeOperator(operator, WallClock(zone))


class _LocalProcessingTime:
    """The clock as windows see it: the local time that is over, which stands still while clocks show an hour again."""

    def __init__(self, service: ProcessingTimeService, clock: WallClock) -> None:
        self._service = service
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.reached(self._service.now_ms() - 1) + 1

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> TimerHandle:
        instant = self._clock.instant(timestamp_ms - 1) + 1
        return self._service.register(instant, lambda _: callback(timestamp_ms))


class _RowTimes:
    """The local times that rows belong to."""

    def __init__(self, clock: WallClock, service: ProcessingTimeService) -> None:
        self._clock = clock
        self._service = service

    def times(self, instants: Times) -> Times:
        return self._clock.times(instants)

    def now_ms(self) -> int:
        return int(self._clock.times(np.array([self._service.now_ms()]))[0])

    def last_instant(self, local: int) -> int:
        return self._clock.instant(local)


class _LocalOutput:
    """Rows with instants for the local times that they were sent with. Late rows pass as they came."""

    def __init__(self, output: Output, clock: WallClock) -> None:
        self._output = output
        self._clock = clock

    def emit(self, batch: RecordBatch) -> None:
        if batch.timestamps is not None:
            instants = self._clock.last_instants(batch.timestamps.to_numpy())
            batch = RecordBatch(batch.columns, pa.array(instants), batch.row_kinds)
        self._output.emit(batch)

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        self._output.emit_side(tag, batch)

    def emit_watermark(self, watermark: Watermark) -> None:
        self._output.emit_watermark(Watermark(self._clock.instant(watermark.timestamp)))

    def emit_status(self, status: WatermarkStatus) -> None:
        self._output.emit_status(status)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        self._output.emit_latency_marker(marker)


class _LocalTimeOperator:
    """Passes every call on, with times as the module says. Rows keep their instants: who needs their times asks `context.wall_clock`."""

    def __init__(self, operator: StreamOperator, clock: WallClock) -> None:
        self._operator = operator
        self._clock = clock

    def setup(self, context: OperatorContext, output: Output) -> None:
        service = _LocalProcessingTime(context.processing_time, self._clock)
        wall = _RowTimes(self._clock, context.processing_time)
        self._operator.setup(
            replace(context, processing_time=service, wall_clock=wall), _LocalOutput(output, self._clock)
        )

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        self._operator.initialize_state(restored)

    def open(self) -> None:
        self._operator.open()

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._operator.process_batch(batch, input_index)

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        self._operator.process_watermark(Watermark(self._clock.reached(watermark.timestamp)), input_index)

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        self._operator.process_status(status, input_index)

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        self._operator.process_latency_marker(marker)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._operator.prepare_snapshot(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._operator.snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._operator.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._operator.notify_checkpoint_aborted(checkpoint_id)

    def end_input(self, input_index: int = 0) -> None:
        self._operator.end_input(input_index)

    def finish(self) -> None:
        self._operator.finish()

    def close(self) -> None:
        self._operator.close()
