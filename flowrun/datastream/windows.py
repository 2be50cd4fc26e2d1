"""Windows, triggers and evictors by Flink's names, as `WindowedStream` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api import windowing
from flowrun.api.windowing import ClockContext, MergingWindowAssigner, Window, WindowAssigner
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.datastream.functions import column_positions
from flowrun.operators.function_recipe import class_recipe
from flowrun.operators.timed.assigners import AlignedSlices, CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.operators.windows.general import evictors, triggers
from flowrun.operators.windows.general.factories import GlobalAssigner
from flowrun.operators.windows.general.trigger_contract import Trigger
from flowrun.operators.windows.general.user_assigners import CustomAssigner
from flowrun.operators.windows.general.user_triggers import as_trigger


@record
class SessionGap:
    """Session windows: closed by `gap_ms` without rows; windows that touch merge."""

    gap_ms: int


Windows: TypeAlias = AlignedSlices | SessionGap | GlobalAssigner | CustomAssigner


@record
class TimedWindows:
    """Which windows, and the clock that they go by."""

    windows: Windows
    domain: TimeDomain = TimeDomain.EVENT


AnyWindows: TypeAlias = Windows | TimedWindows | WindowAssigner | type[WindowAssigner] | str


def timed_windows(given: AnyWindows, arguments: Mapping[str, object]) -> TimedWindows:
    """Windows in any form: of this module, or a user's assigner, its class or `module:Class` with arguments.

    Raises:
        PipelineError: the assigner does not keep to the rules, or cannot be sent to tasks.
    """
    if isinstance(given, TimedWindows):
        return given
    if isinstance(given, (str, type, WindowAssigner)):
        custom = CustomAssigner(class_recipe(given, WindowAssigner, arguments, "window"))
        return TimedWindows(custom, TimeDomain.EVENT if custom.assigner.is_event_time() else TimeDomain.PROCESSING)
    return TimedWindows(given)


class TumblingEventTimeWindows:
    """Windows of event time, back to back."""

    @staticmethod
    def of(size_ms: int, offset_ms: int = 0) -> TimedWindows:
        """Of one size; they start at multiples of it, plus the offset, since 1970."""
        return TimedWindows(TumblingSlices(size_ms, offset_ms))


class TumblingProcessingTimeWindows:
    """Windows of processing time, back to back."""

    @staticmethod
    def of(size_ms: int, offset_ms: int = 0) -> TimedWindows:
        """As `TumblingEventTimeWindows.of`."""
        return TimedWindows(TumblingSlices(size_ms, offset_ms), TimeDomain.PROCESSING)


class SlidingEventTimeWindows:
    """Windows of event time that overlap."""

    @staticmethod
    def of(size_ms: int, slide_ms: int, offset_ms: int = 0) -> TimedWindows:
        """Of one size, one every `slide_ms`."""
        return TimedWindows(SlidingSlices(size_ms, slide_ms, offset_ms))


class SlidingProcessingTimeWindows:
    """Windows of processing time that overlap."""

    @staticmethod
    def of(size_ms: int, slide_ms: int, offset_ms: int = 0) -> TimedWindows:
        """Of one size, one every `slide_ms`."""
        return TimedWindows(SlidingSlices(size_ms, slide_ms, offset_ms), TimeDomain.PROCESSING)


class CumulativeEventTimeWindows:
    """Windows of event time, back to back, that give what came so far at every step."""

    @staticmethod
    def of(size_ms: int, step_ms: int, offset_ms: int = 0) -> TimedWindows:
        """Of one size, which `step_ms` divides."""
        return TimedWindows(CumulativeSlices(size_ms, step_ms, offset_ms))


class EventTimeSessionWindows:
    """Sessions: windows of event time that end when no row comes for a while."""

    @staticmethod
    def with_gap(gap_ms: int) -> TimedWindows:
        """They end `gap_ms` after their last row."""
        return TimedWindows(SessionGap(gap_ms))

    @staticmethod
    def with_dynamic_gap(gap_ms: Callable[[Mapping[str, Any]], int] | str) -> WindowAssigner:
        """They end the gap of its own after each row, ms: of a column, or of a function of the row (slower)."""
        return ColumnGaps(gap_ms) if isinstance(gap_ms, str) else RowGaps(gap_ms)


class ProcessingTimeSessionWindows:
    """Sessions of processing time."""

    @staticmethod
    def with_gap(gap_ms: int) -> TimedWindows:
        """They end `gap_ms` after their last row."""
        return TimedWindows(SessionGap(gap_ms), TimeDomain.PROCESSING)

    @staticmethod
    def with_dynamic_gap(gap_ms: Callable[[Mapping[str, Any]], int] | str) -> WindowAssigner:
        """As `EventTimeSessionWindows.with_dynamic_gap`."""
        event_time = False
        return ColumnGaps(gap_ms, event_time) if isinstance(gap_ms, str) else RowGaps(gap_ms, event_time)


class RowGaps(MergingWindowAssigner):
    """Sessions whose gap a function gives for each row."""

    def __init__(self, gap_ms: Callable[[Mapping[str, Any]], int], event_time: bool = True) -> None:
        self._gap_ms = gap_ms
        self._event_time = event_time

    def is_event_time(self) -> bool:
        """As it was made."""
        return self._event_time

    def assign_windows(self, row: Mapping[str, Any], timestamp: int, context: ClockContext) -> Iterable[Window]:
        """One that the row opens."""
        return (Window(timestamp, timestamp + self._gap_ms(row)),)


class ColumnGaps(MergingWindowAssigner):
    """Sessions whose gap a column has for each row."""

    def __init__(self, column: str, event_time: bool = True) -> None:
        self._column = column
        self._event_time = event_time

    def is_event_time(self) -> bool:
        """As it was made."""
        return self._event_time

    def assign_windows_batch(self, rows: pa.RecordBatch, timestamps: pa.Int64Array, context: ClockContext) -> Any:
        """One that each row opens."""
        ends = pc.add_checked(timestamps, rows.column(self._column).cast(pa.int64()))
        return np.arange(rows.num_rows), timestamps, ends


class GlobalWindows:
    """One window for ever."""

    @staticmethod
    def create() -> TimedWindows:
        """It fires when its trigger says so; without one, once, at the end of bounded input."""
        return TimedWindows(GlobalAssigner())


class EventTimeTrigger:
    """Fires when the watermark passes the end of the window, then with every late row: the default in event time."""

    @staticmethod
    def create() -> Trigger:
        """The trigger."""
        return triggers.EventTimeTrigger()


class ProcessingTimeTrigger:
    """Fires when the clock passes the end of the window: the default in processing time."""

    @staticmethod
    def create() -> Trigger:
        """The trigger."""
        return triggers.ProcessingTimeTrigger()


class CountTrigger:
    """Fires by the number of rows."""

    @staticmethod
    def of(count: int) -> Trigger:
        """After every `count` rows."""
        return triggers.CountTrigger(count)


class ContinuousEventTimeTrigger:
    """Fires at an interval of event time, and at the end of the window."""

    @staticmethod
    def of(interval_ms: int) -> Trigger:
        """At multiples of the interval, if rows have come since the last firing."""
        return triggers.EarlyLateTrigger(interval_ms)


class ContinuousProcessingTimeTrigger:
    """Fires at an interval of processing time."""

    @staticmethod
    def of(interval_ms: int) -> Trigger:
        """At multiples of the interval, if rows have come since the last firing."""
        return triggers.ContinuousProcessingTimeTrigger(interval_ms)


class DeltaTrigger:
    """Fires when a number has moved."""

    @staticmethod
    def of(threshold: float, column: str) -> Trigger:
        """When the column has moved more than the threshold since the last firing."""
        return _NamedDeltaTrigger(column, threshold)


class PurgingTrigger:
    """Lets windows forget their rows whenever they fire."""

    @staticmethod
    def of(trigger: Trigger | windowing.Trigger | type[windowing.Trigger] | str) -> Trigger:
        """Fires when the other trigger does: one of these, or a user's, its class or `module:Class`."""
        return triggers.PurgingTrigger(as_trigger(trigger))


@record(slots=False)
class _NamedDeltaTrigger(Trigger):
    """A delta trigger whose column has no position yet."""

    name: str
    threshold: float

    def bound(self, schema: Schema) -> Trigger:
        (position,) = column_positions(schema, (self.name,), "DeltaTrigger")
        return triggers.DeltaTrigger(position, self.threshold)


class CountEvictor:
    """Keeps the rows that came last."""

    @staticmethod
    def of(count: int, do_evict_after: bool = False) -> evictors.Evictor:
        """The last `count` rows; others are dropped before the window fires, or after that."""
        return evictors.CountEvictor(count, do_evict_after)


class TimeEvictor:
    """Keeps the newest rows."""

    @staticmethod
    def of(window_size_ms: int, do_evict_after: bool = False) -> evictors.Evictor:
        """Those that are less than `window_size_ms` older than the newest."""
        return evictors.TimeEvictor(window_size_ms, do_evict_after)


@record
class NamedDeltaEvictor:
    """A delta evictor whose column has no position yet."""

    name: str
    threshold: float
    after: bool

    def bound(self, schema: Schema) -> evictors.Evictor:
        """The evictor for rows with these columns."""
        (position,) = column_positions(schema, (self.name,), "DeltaEvictor")
        return evictors.DeltaEvictor(position, self.threshold, self.after)


class DeltaEvictor:
    """Keeps rows that are near the last one."""

    @staticmethod
    def of(threshold: float, column: str, do_evict_after: bool = False) -> NamedDeltaEvictor:
        """Those whose number in the column is less than the threshold away from the last row's."""
        return NamedDeltaEvictor(column, threshold, do_evict_after)


def event_time_windows(size_ms: int, slide_ms: int | None) -> TimedWindows:
    """Tumbling, or with a slide sliding windows of event time."""
    return TumblingEventTimeWindows.of(size_ms) if slide_ms is None else SlidingEventTimeWindows.of(size_ms, slide_ms)
