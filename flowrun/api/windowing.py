"""Users' own windows: which windows rows belong to, when they fire, and which of their rows they drop.

Each is a class; subtasks have instances of their own, made with the arguments given in the pipeline, and call them from one thread. All
that is remembered of a window is declared state: an assigner and an evictor remember nothing.

**An assigner** extends `WindowAssigner` and has either `assign_windows(row, timestamp, context)`, which gives the row's windows, or
`assign_windows_batch(rows, timestamps, context)`, which gives three arrays: for each pair of a row and a window of it the position of the
row, and the start and end of the window. One that extends `MergingWindowAssigner` lets windows of one key that overlap or touch become one.

    class UntilMidnight(WindowAssigner):
        def assign_windows(self, row, timestamp, context):
            yield Window(timestamp, timestamp - timestamp % DAY + DAY)

**A trigger** extends `Trigger`. It is asked at each row and at each timer of its window, and answers what happens:

    class EveryTenOrLarge(Trigger):
        count = reducing_state("sum", "BIGINT")

        def on_element(self, row, timestamp, window, context):
            self.count.add(1)
            context.register_event_time_timer(window.max_timestamp)
            if row["amount"] < 1000 and self.count.get() < 10:
                return TriggerResult.CONTINUE
            self.count.clear()
            return TriggerResult.FIRE

        def on_event_time(self, time, window, context):
            return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

**An evictor** extends `Evictor` and has `evict_before(elements, window, context)` or `evict_after` or both, which give the elements that
stay; or `evict_before_batch(rows, timestamps, window, context)` or `evict_after_batch`, which give a boolean a row: whether it stays. Rows
that go are gone for good. *Before* means before the window's rows are seen by the function or the aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from flowrun.api.keyed_state import Values
from flowrun.api.window_function import Window


class TriggerResult(Enum):
    """What happens to a window: (fires, forgets its rows)."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def fires(self) -> bool:
        """Whether the window's rows are evaluated and emitted."""
        return self.value[0]

    @property
    def purges(self) -> bool:
        """Whether the window's rows are forgotten, after it fired."""
        return self.value[1]


class ClockContext(Protocol):
    """Time, ms since the epoch."""

    @property
    def current_watermark(self) -> int:
        """Event time: no row before it is expected any more. `MIN_TIMESTAMP` at first, `MAX_TIMESTAMP` at the end of the input."""
        ...

    @property
    def current_processing_time(self) -> int:
        """What the clock shows."""
        ...


class TriggerContext(ClockContext, Protocol):
    """What a trigger may do for one key and window. Registering a timer twice is registering it once."""

    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` when the watermark reaches `time`; with the next watermark if it already has."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` when the clock reaches `time`."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Forget a timer of this window, if it is registered."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Forget a timer of this window, if it is registered."""
        ...

    def merge_partitioned_state(self, state: Any) -> None:
        """In `on_merge`: take over what the merged windows have of a reducing or a list state."""
        ...


class Trigger:
    """When windows fire; see the module. What it remembers of a window is declared state, of numbers, booleans and texts:
    `value_state`, `reducing_state`, `list_state`. Its handles show the window at hand.
    """

    def on_element(
        self, row: Mapping[str, Any], timestamp: int, window: Window, context: TriggerContext
    ) -> TriggerResult:
        """A row was added to the window; `timestamp` is its event time, or the clock's in processing time."""
        raise NotImplementedError

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """The watermark reached an event-time timer: one of this trigger, or that by which the window is forgotten."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """The clock reached a timer; or bounded input of windows of processing time ended: then `time` is the window's last."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether it may be used with windows that merge; then it has `on_merge`."""
        return False

    def on_merge(self, window: Window, context: TriggerContext) -> None:
        """Windows became this one. State is empty, and no timer is registered but those that this call sets."""

    def clear(self, window: Window, context: TriggerContext) -> None:
        """The window is forgotten: delete timers that are not due. State is forgotten by itself."""


Assigned: TypeAlias = tuple[Values, Values, Values]
"""(position of the row, start, end) of each pair, as three columns."""


class WindowAssigner:
    """Which windows rows belong to; see the module."""

    merging: ClassVar[bool] = False

    def is_event_time(self) -> bool:
        """Whether event time closes the windows; else the clock does, and `timestamp` is what it shows."""
        return True

    def default_trigger(self) -> Any:
        """The trigger of windows that are given none; None: at their end."""
        return None


class MergingWindowAssigner(WindowAssigner):
    """An assigner of windows that merge: those of one key that overlap or touch are one."""

    merging: ClassVar[bool] = True


class TimestampedValue(NamedTuple):
    """A row of a window, as evictors see it.

    Attributes:
        value: the row.
        timestamp: its event time, or when it arrived on a stream without.
        position: among the elements given.
    """

    value: Mapping[str, Any]
    timestamp: int
    position: int


class Evictor:
    """Which rows windows drop; see the module."""


__all__ = [
    "ClockContext",
    "Evictor",
    "MergingWindowAssigner",
    "TimestampedValue",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "Window",
    "WindowAssigner",
]
