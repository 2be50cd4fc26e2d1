"""Sends rows with their event times, watermarks between and after them, and idleness: what sources and watermark operators share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from flowrun.api.operator import OperatorContext, Output, TimerHandle
from flowrun.core.arrays import Integers
from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    MAX_TIMESTAMP,
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    PassingWatermarks,
    RecordBatch,
    Watermark,
)
from flowrun.core.record import record
from flowrun.operators.event_times import EventTimes
from flowrun.operators.split_watermarks import SPLIT, PerSplitWatermarks, SplitEventTime
from flowrun.operators.watermark_rule import passing, progress
from flowrun.operators.watermark_strategy import EMIT_INTERVAL_MS, WatermarkStrategy

NUM_SPLITS = "numSplits"
NUM_IDLE_SPLITS = "numIdleSplits"
"""Gauges of a source's subtask: splits that have sent something or are expected to, and those of them that are idle."""


@record
class RestoredEventTime:
    """Event time as it was at a snapshot.

    Attributes:
        combined: the last watermark sent, ms.
        splits: of those that had sent something.
    """

    combined: int = MIN_TIMESTAMP
    splits: Mapping[str, SplitEventTime] = field(default_factory=dict)


class EventTimeOutput:
    """Applies a watermark strategy to the rows of one subtask, split by split.

    Watermarks of a source's own count only if the strategy (none given, or kind SOURCE or NONE) makes no watermarks itself.

    Args:
        upserts: deletions may have no event time: theirs is that of the row before them.
        splits: the rows come from splits of a source, which gauges show.
        bounded: the rows come from an input that ends. What is held back of periodic watermarks is then not sent for mere silence: how
            fast a file is read must not decide which of its rows are late.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy | None,
        context: OperatorContext,
        output: Output,
        place: str,
        restored: RestoredEventTime | None = None,
        *,
        splits: bool = False,
        bounded: bool = False,
        upserts: bool = False,
    ) -> None:
        restored = restored or RestoredEventTime()
        self._times = EventTimes(strategy, context, place, upserts=upserts)
        self._output = output
        self._processing_time = context.processing_time
        self._idle_timeout_ms = None if strategy is None else strategy.idle_timeout_ms
        self._generates = strategy is not None and strategy.generates
        held_back_ms = 0 if strategy is None else strategy.held_back_ms
        self._quiet_after_ms = None if strategy is None or bounded or not held_back_ms else strategy.emit_interval_ms
        self._splits = PerSplitWatermarks(restored.combined, held_back_ms)
        if splits:
            metrics, counted = context.metrics, self._splits.count
            metrics.gauge_family(SPLIT, self._splits.gauges)
            metrics.gauge(NUM_SPLITS, counted)
            metrics.gauge(NUM_IDLE_SPLITS, lambda: counted(idle=True))
        self._restored_splits = restored.splits
        self._announced = restored.combined == MIN_TIMESTAMP
        self._timer: TimerHandle | None = None
        self._quiet_timer: TimerHandle | None = None
        self._idle = False
        self._held_idle = False
        self._touched_ms = 0
        self._exact = context.exact_watermarks
        self._follows_clock = strategy is not None and strategy.follows_clock
        self._clock_every_ms = EMIT_INTERVAL_MS if strategy is None else strategy.emit_interval_ms
        self._clock_timer: TimerHandle | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that sent something and are not finished."""
        return self._splits.names

    def check(self, read: RecordBatch) -> None:
        """Raise DataError if the strategy finds no event time for a row."""
        self._times.check(read)

    def start(self) -> None:
        """Begin to watch for idleness: without any row within the timeout the whole output becomes idle."""
        self._touched_ms = self._processing_time.now_ms()
        for split_id, reached in self._restored_splits.items():
            self._splits.restore(split_id, reached, self._touched_ms)
        self._arm()
        if self._follows_clock:
            self._await_clock()

    def expect(self, split_ids: Iterable[str]) -> None:
        """Wait for the first rows of these splits, until they are idle."""
        now = self._processing_time.now_ms()
        for split_id in split_ids:
            self._splits.expect(split_id, now)
        self._show_status()
        self._arm()

    def resume(self) -> None:
        """Send the restored watermark, so that nobody downstream waits for what event time had reached already."""
        if not self._announced:
            self._announced = True
            self._output.emit_watermark(Watermark(self._splits.combined))
            self._show_status()

    def emit(self, read: RecordBatch, rows: RecordBatch, split_id: str) -> None:
        """Send `rows` with the event times that the strategy finds in `read` (the same rows, before their projection)."""
        if rows.num_rows == 0:
            return
        self.resume()
        splits = self._splits
        now = self._processing_time.now_ms()
        splits.touch(split_id, now)
        times = self._times.read(read, splits.combined if self._follows_clock else splits.watermark(split_id))
        self._show_status()
        batch = RecordBatch(rows.columns, times.timestamps, rows.row_kinds)
        if times.marks is None or times.timestamps is None:
            self._output.emit(batch)
        else:
            if self._exact:
                batch = batch.with_watermarks(self._passing(times.marks, split_id))
            advanced = progress(
                times.timestamps.to_numpy(),
                times.marks,
                self._times.lag,
                watermark=splits.watermark(split_id),
                sent=splits.combined,
                ceiling=splits.ceiling(split_id),
            )
            self._emit_cut(batch, advanced.cuts)
            splits.advance(split_id, advanced.watermark)
            self._combine()
        if self._idle_timeout_ms is not None or self._quiet_after_ms is not None:
            # Sending may have waited for a slow consumer; that is not idleness.
            self._touched_ms = self._processing_time.now_ms()
            splits.touch(split_id, self._touched_ms)
            self._arm()

    def emit_watermark(self, timestamp: int, split_id: str) -> None:
        """A watermark of the source's own."""
        if not self._generates:
            self.advance(timestamp, split_id)

    def advance(self, timestamp: int, split_id: str) -> None:
        """A watermark that counts whatever the strategy is."""
        self.resume()
        self._splits.touch(split_id, self._processing_time.now_ms())
        self._splits.advance(
            split_id, min(timestamp, MAX_TIMESTAMP - 1)
        )  # MAX is the end of input, which no split can announce
        self._show_status()
        self._combine()
        self._arm()

    def mark_idle(self, split_id: str) -> None:
        """Do not wait for this split until its next row."""
        self._splits.mark_quiet(split_id)
        self._combine()
        self._splits.mark_idle(split_id, self._processing_time.now_ms())
        self._combine()
        self._show_status()

    def hold_idle(self, idle: bool) -> None:
        """Idle because the input says so, until it says otherwise; `False` lets the splits decide again."""
        self._held_idle = idle
        self._show_status()

    def finish_split(self, split_id: str) -> None:
        """Stop counting a split that was read to its end."""
        self._splits.finish(split_id)
        self._combine()
        if len(self._splits):  # else the status stands until the next split's first row, or until the timeout
            self._show_status()
            self._arm()

    def finish(self) -> None:
        """The end of input: everything has arrived."""
        if self._splits.combined == MAX_TIMESTAMP:
            return
        if self._idle:
            self._idle = False
            self._output.emit_status(ACTIVE)
        self._splits.combined = MAX_TIMESTAMP
        self._output.emit_watermark(MAX_WATERMARK)

    def close(self) -> None:
        """Stop watching for idleness."""
        for timer in (self._timer, self._quiet_timer, self._clock_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._quiet_timer = self._clock_timer = None

    @property
    def combined(self) -> int | None:
        """The last watermark sent, ms; None before the first one and after the end of time, which is not for who resumes."""
        reached = self._splits.combined
        return None if reached in (MIN_TIMESTAMP, MAX_TIMESTAMP) else reached

    def progress_of(self, split_id: str) -> SplitEventTime | None:
        """What to restore of a split; None if it has sent nothing yet."""
        return self._splits.progress_of(split_id)

    def _passing(self, marks: Integers, split_id: str) -> PassingWatermarks | None:
        splits = self._splits
        return passing(
            marks,
            self._times.lag,
            watermark=splits.watermark(split_id),
            sent=splits.combined,
            ceiling=splits.ceiling(split_id),
        )

    def _emit_cut(self, batch: RecordBatch, cuts: tuple[tuple[int, int], ...]) -> None:
        sent = 0
        for row, watermark in cuts:
            if row > sent:
                self._output.emit(batch.slice(sent, row - sent))
            self._splits.combined = watermark
            self._output.emit_watermark(Watermark(watermark))
            sent = row
        self._output.emit(batch.slice(sent) if sent else batch)

    def _combine(self) -> None:
        if self._splits.combine():
            self._output.emit_watermark(Watermark(self._splits.combined))

    def _show_status(self) -> None:
        idle = self._held_idle or self._splits.all_idle
        if idle != self._idle:
            self._idle = idle
            self._output.emit_status(IDLE if idle else ACTIVE)

    def _arm(self) -> None:
        if self._idle_timeout_ms is not None and self._timer is None:
            self._timer = self._processing_time.register(
                self._processing_time.now_ms() + self._idle_timeout_ms, self._check_idleness
            )
        if self._quiet_after_ms is not None and self._quiet_timer is None and len(self._splits):
            self._quiet_timer = self._processing_time.register(
                self._processing_time.now_ms() + self._quiet_after_ms, self._check_quiet
            )

    def _await_clock(self) -> None:
        due = self._processing_time.now_ms() + self._clock_every_ms
        self._clock_timer = self._processing_time.register(due, self._follow_clock)

    def _follow_clock(self, now_ms: int) -> None:
        """Ingestion time goes on, whether rows come or not: none that comes later can have an earlier one."""
        self.resume()
        if self._splits.advance_all(self._processing_time.now_ms() - self._times.lag):
            self._output.emit_watermark(Watermark(self._splits.combined))
        if self._splits.combined != MAX_TIMESTAMP:
            self._await_clock()

    def _check_quiet(self, now_ms: int) -> None:
        """Send the exact watermark of splits that have sent nothing for a while."""
        assert self._quiet_after_ms is not None
        self._quiet_timer = None
        self.resume()
        oldest = self._splits.quiet_since(self._processing_time.now_ms() - self._quiet_after_ms)
        self._combine()
        if oldest is not None:
            self._quiet_timer = self._processing_time.register(oldest + self._quiet_after_ms, self._check_quiet)

    def _check_idleness(self, now_ms: int) -> None:
        assert self._idle_timeout_ms is not None
        self._timer = None
        deadline = self._processing_time.now_ms() - self._idle_timeout_ms
        self._splits.quiet_since(deadline)
        self._combine()
        oldest = self._splits.idle_since(deadline)
        if len(self._splits):
            self._combine()
            self._show_status()
        elif self._touched_ms > deadline:
            oldest = self._touched_ms
        elif not self._idle:  # no split at all: idle until the first row of one
            self._idle = True
            self._output.emit_status(IDLE)
        if oldest is not None:
            self._timer = self._processing_time.register(oldest + self._idle_timeout_ms, self._check_idleness)
