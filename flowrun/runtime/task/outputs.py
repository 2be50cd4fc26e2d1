"""Outputs: what an operator of a chain emits into. Each leads straight to the next operators and record writers.

With object reuse off each operator gets rows in memory of its own (`CopyingChainTarget`; the head of a chain likewise): a function
that writes into the buffers of its columns changes them for nobody else. With object reuse on all operators share the columns, which
nobody may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from flowrun.api.operator import OutputTag, PassesWatermarks, ProcessesSelections, StreamOperator
from flowrun.core.clock import Clock
from flowrun.core.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    LatencyMarker,
    PassingWatermarks,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.core.provided import provides
from flowrun.core.selected_rows import SelectedRows
from flowrun.runtime.metrics import ScopedMetrics
from flowrun.runtime.watchdog.board import SubtaskActivity

NoteFailure = Callable[[int, BaseException], None]


class Target(Protocol):
    """One place that an output leads to."""

    def emit(self, batch: RecordBatch) -> None:
        """Rows, at least one unless there are watermarks between them."""
        ...

    def emit_selected(self, selected: SelectedRows) -> None:
        """Rows that are not gathered yet."""
        ...

    def emit_watermark(self, watermark: Watermark) -> None: ...

    def emit_status(self, status: WatermarkStatus) -> None: ...

    def emit_latency_marker(self, marker: LatencyMarker) -> None: ...


def process_with_watermarks(operator: StreamOperator, batch: RecordBatch, input_index: int, *, exact: bool) -> None:
    """Have an operator process a batch that has watermarks between its rows, in the way that it can.

    Args:
        operator: of a chain.
        batch: its rows, and the watermarks.
        input_index: of the operator.
        exact: the operator, or one behind it, needs their order; else watermarks are left to the one that follows the batch.
    """
    if not exact:
        if batch.num_rows:
            operator.process_batch(batch.with_watermarks(None), input_index)
    elif isinstance(operator, PassesWatermarks) and operator.passes_watermarks:
        operator.process_batch(batch, input_index)
    else:
        for piece in batch.pieces():
            if isinstance(piece, RecordBatch):
                operator.process_batch(piece, input_index)
            else:
                operator.process_watermark(piece, input_index)


class ChainTarget:
    """The next operator of the chain, called directly.

    Args:
        operator: to be called.
        position: of it in the chain.
        emitter: the position of the operator that emits.
        output: of the operator.
        metrics: of the operator.
        note_failure: learns which operator raised.
        activity: learns which operator is at work.
        exact_watermarks: the operator, or one behind it, takes rows and watermarks in their exact order.
    """

    def __init__(
        self,
        operator: StreamOperator,
        position: int,
        emitter: int,
        output: OperatorOutput,
        metrics: ScopedMetrics,
        note_failure: NoteFailure,
        activity: SubtaskActivity,
        *,
        exact_watermarks: bool = False,
    ) -> None:
        self._operator = operator
        self._exact_watermarks = exact_watermarks
        self._output = output
        self._position = position
        self._emitter = emitter
        self._activity = activity
        self._records_in = metrics.counter("numRecordsIn")
        self._note_failure = note_failure
        self._reached = MIN_TIMESTAMP

    def start_at(self, timestamp: int) -> None:
        """Rows restored before reached this event time, ms: no watermark up to it is passed on."""
        self._reached = timestamp

    def emit(self, batch: RecordBatch) -> None:
        """Have the operator process rows."""
        self._records_in.inc(batch.num_rows)
        self._activity.enter(self._position)
        try:
            if batch.watermarks is None:
                self._operator.process_batch(batch)
            else:
                process_with_watermarks(self._operator, self._news(batch), 0, exact=self._exact_watermarks)
        except BaseException as error:
            self._note_failure(self._position, error)
            raise
        self._activity.enter(self._emitter)

    def emit_selected(self, selected: SelectedRows) -> None:
        """Have the operator process rows that are not gathered yet, if it can."""
        operator = self._operator
        if not provides(operator, ProcessesSelections):
            self.emit(selected.rows())
            return
        self._records_in.inc(selected.num_rows)
        self._activity.enter(self._position)
        try:
            operator.process_selected(selected)
        except BaseException as error:
            self._note_failure(self._position, error)
            raise
        self._activity.enter(self._emitter)

    def emit_watermark(self, watermark: Watermark) -> None:
        """Advance the operator's event time."""
        if watermark.timestamp <= self._reached:
            return
        self._activity.enter(self._position)
        try:
            self._operator.process_watermark(watermark)
        except BaseException as error:
            self._note_failure(self._position, error)
            raise
        self._activity.enter(self._emitter)

    def emit_status(self, status: WatermarkStatus) -> None:
        """Tell the operator that its input is idle or active."""
        try:
            self._operator.process_status(status)
        except BaseException as error:
            self._note_failure(self._position, error)
            raise

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Pass a probe; where the pipeline ends its age is recorded."""
        self._output.record_latency(marker)
        try:
            self._operator.process_latency_marker(marker)
        except BaseException as error:
            self._note_failure(self._position, error)
            raise

    def _news(self, batch: RecordBatch) -> RecordBatch:
        """Rows without the watermarks that are not passed on."""
        watermarks = batch.watermarks
        if watermarks is None or self._reached == MIN_TIMESTAMP:
            return batch
        new = watermarks.timestamps > self._reached
        return batch.with_watermarks(PassingWatermarks.of(watermarks.rows[new], watermarks.timestamps[new]))


class ChainEntry:
    """Stands for the head of a chain where rows are given to an operator within it: see `flowrun.runtime.task.network_input.Head`."""

    def __init__(self, target: ChainTarget) -> None:
        self._target = target
        self.start_at = target.start_at

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        """Rows."""
        self._target.emit(batch)

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None:
        """A watermark, status or probe."""
        if isinstance(event, Watermark):
            self._target.emit_watermark(event)
        elif isinstance(event, WatermarkStatus):
            self._target.emit_status(event)
        else:
            self._target.emit_latency_marker(event)

    def end_input(self, input_index: int) -> None:
        """The operator's input ends with the chain's."""


def copied(batch: RecordBatch) -> RecordBatch:
    """The same rows in memory of their own."""
    columns = pa.RecordBatch.from_arrays([_copied(c) for c in batch.columns.columns], schema=batch.columns.schema)
    if not batch.columns.num_columns:
        columns = batch.columns  # nothing but a number of rows
    between = batch.watermarks
    return RecordBatch(
        columns,
        None if batch.timestamps is None else _copied(batch.timestamps),
        None if batch.row_kinds is None else _copied(batch.row_kinds),
        None if between is None else PassingWatermarks(between.rows.copy(), between.timestamps.copy()),
    )


def _copied(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        indices, values = _copied(column.indices), _copied(column.dictionary)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=column.type.ordered, safe=False)
    # Arrow has no call that copies an array; concatenating does.
    return pa.concat_arrays([column, column.slice(0, 0)])


class CopyingChainTarget(ChainTarget):
    """As `ChainTarget`, for object reuse off: the operator gets a copy of the rows."""

    def emit(self, batch: RecordBatch) -> None:
        """Have the operator process its own copy."""
        super().emit(copied(batch))

    def emit_selected(self, selected: SelectedRows) -> None:
        """Have the operator process its own copy."""
        self.emit(selected.rows())


class ChainWriter(Protocol):
    """What takes the rows that leave a chain: a `RecordWriter`, or whatever another engine puts in its place."""

    def emit(self, batch: RecordBatch) -> None:
        """Rows, at least one unless there are watermarks between them."""
        ...

    def emit_selected(self, selected: SelectedRows) -> None:
        """Rows that are not gathered yet."""
        ...

    def broadcast_event(self, event: Watermark | WatermarkStatus) -> None:
        """An event for all who read."""
        ...

    def emit_latency_marker(self, marker: LatencyMarker) -> None: ...


class WriterTarget:
    """The end of the chain: a record writer. Watermarks between rows go to it if they matter to who reads (`exact_watermarks`)."""

    def __init__(self, writer: ChainWriter, *, exact_watermarks: bool = False) -> None:
        self._writer = writer
        self._exact_watermarks = exact_watermarks
        self.emit_selected = writer.emit_selected
        self.emit_latency_marker = writer.emit_latency_marker

    def emit(self, batch: RecordBatch) -> None:
        """Write rows."""
        if batch.watermarks is None or self._exact_watermarks:
            self._writer.emit(batch)
        elif batch.num_rows:
            self._writer.emit(batch.with_watermarks(None))

    def emit_watermark(self, watermark: Watermark) -> None:
        """Send to all channels."""
        self._writer.broadcast_event(watermark)

    def emit_status(self, status: WatermarkStatus) -> None:
        """Send to all channels."""
        self._writer.broadcast_event(status)


class OperatorOutput:
    """The output of one operator: main targets, side targets by tag, and what the metrics want to know.

    An operator without any target ends a pipeline: its latency is measured here.

    `batch_mode`: event time stands still until its end: no watermark passes but the last one, and nothing becomes idle.
    """

    def __init__(
        self,
        main: Sequence[Target],
        side: Mapping[str, Sequence[Target]],
        metrics: ScopedMetrics,
        clock: Clock,
        *,
        batch_mode: bool = False,
    ) -> None:
        self._batch_mode = batch_mode
        self._main = tuple(main)
        self._side = {tag: tuple(targets) for tag, targets in side.items()}
        self._all = (*self._main, *(t for targets in self._side.values() for t in targets))
        self._metrics = metrics
        self._clock = clock
        self._records_out = metrics.counter("numRecordsOut")
        self.current_watermark = MIN_TIMESTAMP
        """The last watermark emitted, ms."""
        self.idle = False
        """Whether the last status emitted was idle."""
        metrics.gauge("currentOutputWatermark", lambda: self.current_watermark)
        metrics.gauge("isOutputIdle", lambda: int(self.idle))

    def emit(self, batch: RecordBatch) -> None:
        """Send rows to every main target; a reference each."""
        rows = batch.num_rows
        if rows or batch.watermarks is not None:
            self._records_out.inc(rows)
            for target in self._main:
                target.emit(batch)

    def emit_selected(self, selected: SelectedRows) -> None:
        """Send rows that are not gathered yet to every main target; those that need them gathered share them."""
        self._records_out.inc(selected.num_rows)
        for target in self._main:
            target.emit_selected(selected)

    def emit_side(self, tag: OutputTag, batch: RecordBatch) -> None:
        """Send rows to the targets of a side output; they are dropped if there is none."""
        rows = batch.num_rows
        if rows or batch.watermarks is not None:
            self._metrics.counter(f"numRecordsOut.{tag.name}").inc(rows)
            for target in self._side.get(tag.name, ()):
                target.emit(batch)

    def emit_watermark(self, watermark: Watermark) -> None:
        """Send a watermark everywhere."""
        if self._batch_mode and watermark.timestamp != MAX_TIMESTAMP:
            return
        self.current_watermark = max(self.current_watermark, watermark.timestamp)
        for target in self._all:
            target.emit_watermark(watermark)

    def emit_status(self, status: WatermarkStatus) -> None:
        """Send a status everywhere."""
        if self._batch_mode:
            return
        self.idle = status.idle
        for target in self._all:
            target.emit_status(status)

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Pass a probe on."""
        for target in self._all:
            target.emit_latency_marker(marker)

    def record_latency(self, marker: LatencyMarker) -> None:
        """A probe reached this operator: record its age if the pipeline ends here, whatever the operator does with it."""
        if not self._all:
            latency_ms = self._clock.now_ms() - marker.marked_ms
            self._metrics.histogram(f"latency_ms.{marker.source_id}").update(latency_ms)
