"""Triggers: when a window of the general window operator fires, and whether it forgets its rows then.

The classes and their behaviour are those of Apache Flink's DataStream triggers, with two additions: `EarlyLateTrigger`, and
`AnyTrigger`, which combines several. One deviation: a continuous firing without a new row since the window's last firing, which
would repeat that result, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import gcd
from typing import Any

from flowrun.api.window_function import Window
from flowrun.api.windowing import TriggerResult
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.windows.general.trigger_contract import (
    Decision,
    Trigger,
    TriggerContext,
    TriggerRows,
)


@record(slots=False)
class EventTimeTrigger(Trigger):
    """Fires when the watermark reaches the end of the window; then with every late row."""

    watermark_step_ms = 0

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire if the window's time is over, else wait for it."""
        if window.max_timestamp <= context.current_watermark:
            return TriggerResult.FIRE
        context.register(False, window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """One look at the watermark decides for all rows."""
        if window.max_timestamp <= context.current_watermark:
            return [(i, TriggerResult.FIRE) for i in range(len(rows.times))]
        context.register(False, window.max_timestamp)
        return []

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire at the end."""
        return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Wait for the merged window's end."""
        if window.max_timestamp > context.current_watermark:
            context.register(False, window.max_timestamp)

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Wait no more."""
        context.delete(False, window.max_timestamp)


@record(slots=False)
class ProcessingTimeTrigger(Trigger):
    """Fires when processing time reaches the end of the window."""

    watermark_step_ms = 0

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Wait for the end."""
        _wait_for_end(window, context)
        return TriggerResult.CONTINUE

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """Wait for the end."""
        _wait_for_end(window, context)
        return []

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire at the end."""
        return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Wait for the merged window's end."""
        _wait_for_end(window, context)

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Wait no more."""
        context.delete(True, window.max_timestamp)


def _wait_for_end(window: Window, context: TriggerContext) -> None:
    if window.max_timestamp < MAX_TIMESTAMP:  # the global window ends with its input
        context.register(True, window.max_timestamp)


_COUNT = "count"


@record(slots=False)
class CountTrigger(Trigger):
    """Fires after every `count` rows."""

    count: int
    watermark_step_ms = 0

    def __post_init__(self) -> None:
        _require_positive("count", self.count)

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Count one row."""
        seen = context.get(_COUNT, 0) + 1
        context.put(_COUNT, seen if seen < self.count else 0)
        return TriggerResult.CONTINUE if seen < self.count else TriggerResult.FIRE

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """Every `count`-th row, without looking at the others."""
        seen, added = context.get(_COUNT, 0), len(rows.times)
        fires = range(
            max(self.count - 1 - seen, 0), added, self.count
        )  # merged windows may have seen more than `count`
        context.put(_COUNT, added - 1 - fires[-1] if fires else seen + added)
        return [(i, TriggerResult.FIRE) for i in fires]

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Add up."""
        context.put(_COUNT, sum(m.get(_COUNT, 0) for m in merged))

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """Start again."""
        context.put(_COUNT, 0)

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Forget the count."""
        context.remove(_COUNT)


_NEXT = "next_firing"
_CHANGED = "changed"


@record(slots=False)
class _Interval:
    """Firings at a window's intervals of one kind of time: the first one ends the interval of the first row."""

    every_ms: int
    processing: bool

    def row(self, time: int, now: int, context: TriggerContext) -> None:
        """A row came: make sure that a timer waits."""
        following = context.get(_NEXT)
        if following is not None and context.get(_CHANGED):
            return
        if following is None:
            following = time - time % self.every_ms + self.every_ms
        elif following <= now:
            following += ((now - following) // self.every_ms + 1) * self.every_ms
        context.put(_NEXT, following)
        context.put(_CHANGED, 1)
        context.register(self.processing, following)

    def due(self, time: int, context: TriggerContext) -> bool:
        """Whether the timer is the one that waits and there is something new."""
        following = context.get(_NEXT)
        if following is None or time < following:
            return False
        changed = bool(context.get(_CHANGED))
        context.put(_NEXT, following + self.every_ms)
        context.put(_CHANGED, 0)
        return changed

    def merge(self, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """The earliest next firing counts."""
        waiting = [m.get(_NEXT) for m in merged if m.get(_NEXT) is not None]
        if waiting:
            context.put(_NEXT, min(waiting))
            context.put(_CHANGED, max(m.get(_CHANGED, 0) for m in merged))
            context.register(self.processing, min(waiting))

    def fired(self, context: TriggerContext) -> None:
        """Nothing is new any more. The timer stays, for it may be another's too; it will find nothing due."""
        if context.get(_NEXT) is not None:
            context.put(_CHANGED, 0)

    def clear(self, context: TriggerContext) -> None:
        """Forget everything."""
        if context.get(_NEXT) is not None:
            context.delete(self.processing, context.get(_NEXT))
        context.remove(_NEXT, _CHANGED)


_LATE = "late"


@record(slots=False)
class EarlyLateTrigger(Trigger):
    """Fires early, on time and late.

    Attributes:
        early_ms: before the end of the window, at this interval of event time; None: not early.
        late_count: after it, with every so many late rows.
    """

    early_ms: int | None = None
    late_count: int = 1

    @property
    def watermark_step_ms(self) -> int:  # type: ignore[override]
        """Early firings are at these times."""
        return self.early_ms or 0

    def __post_init__(self) -> None:
        if self.early_ms is not None:
            _require_positive("interval", self.early_ms)
        _require_positive("late_count", self.late_count)

    @property
    def _early(self) -> _Interval | None:
        return None if self.early_ms is None else _Interval(self.early_ms, False)

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Count it if it is late, else wait for the next interval and the end."""
        if window.max_timestamp <= context.current_watermark:
            late = context.get(_LATE, 0) + 1
            context.put(_LATE, late if late < self.late_count else 0)
            return TriggerResult.CONTINUE if late < self.late_count else TriggerResult.FIRE
        if window.max_timestamp < MAX_TIMESTAMP:
            context.register(False, window.max_timestamp)
        if (early := self._early) is not None:
            early.row(time, context.current_watermark, context)
        return TriggerResult.CONTINUE

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """On time, the first row says it all."""
        if window.max_timestamp <= context.current_watermark:
            return super().on_elements(rows, window, context)
        self.on_element(int(rows.times[0]), None, window, context)
        return []

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire at the end, and at an interval with new rows."""
        early = self._early
        due = early is not None and early.due(time, context)
        on_time = time == window.max_timestamp and time < MAX_TIMESTAMP
        if on_time and early is not None:
            early.fired(context)
        return TriggerResult.FIRE if due or on_time else TriggerResult.CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Wait for the merged window's end and the earliest interval."""
        context.put(_LATE, sum(m.get(_LATE, 0) for m in merged))
        if window.max_timestamp > context.current_watermark:
            context.register(False, window.max_timestamp)
        if (early := self._early) is not None:
            early.merge(merged, context)

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """Nothing is new any more."""
        context.put(_LATE, 0)
        if (early := self._early) is not None:
            early.fired(context)

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Forget counts and timers."""
        context.remove(_LATE)
        context.delete(False, window.max_timestamp)
        if (early := self._early) is not None:
            early.clear(context)


@record(slots=False)
class ContinuousProcessingTimeTrigger(Trigger):
    """Fires at every interval of processing time in which there were new rows."""

    every_ms: int
    watermark_step_ms = 0

    def __post_init__(self) -> None:
        _require_positive("interval", self.every_ms)

    @property
    def _interval(self) -> _Interval:
        return _Interval(self.every_ms, True)

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Wait for the next interval."""
        self._wait(context)
        return TriggerResult.CONTINUE

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """Wait for the next interval."""
        self._wait(context)
        return []

    def _wait(self, context: TriggerContext) -> None:
        now = context.current_processing_time
        self._interval.row(now, now, context)

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire if there are new rows."""
        return TriggerResult.FIRE if self._interval.due(time, context) else TriggerResult.CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Wait for the earliest interval."""
        self._interval.merge(merged, context)

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """Nothing is new any more."""
        self._interval.fired(context)

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Forget the timer."""
        self._interval.clear(context)


_LAST = "last_value"
_SEEN = "seen_value"


@record(slots=False)
class DeltaTrigger(Trigger):
    """Fires when a column's number has moved more than `threshold` since the window's last firing, or first row; NULLs do not count."""

    column: int = field()  # no default, though the base class has one
    threshold: float = field()
    can_merge: bool = field(default=False, init=False)
    watermark_step_ms = 0

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Compare with the number at the last firing."""
        if value is None:
            return TriggerResult.CONTINUE
        context.put(_SEEN, value)
        last = context.get(_LAST)
        moved = last is not None and abs(value - last) > self.threshold
        if last is None or moved:
            context.put(_LAST, value)
        return TriggerResult.FIRE if moved else TriggerResult.CONTINUE

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """Compare with the newest number from now on."""
        if context.get(_SEEN) is not None:
            context.put(_LAST, context.get(_SEEN))

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Forget the numbers."""
        context.remove(_LAST, _SEEN)


@record(slots=False)
class PurgingTrigger(Trigger):
    """Fires when another trigger does, and forgets the window's rows then."""

    trigger: Trigger

    @property
    def watermark_step_ms(self) -> int:  # type: ignore[override]
        """The other one's."""
        return self.trigger.watermark_step_ms

    @property
    def can_merge(self) -> bool:  # type: ignore[override]
        """Whether the other one can."""
        return self.trigger.can_merge

    @property
    def column(self) -> int | None:  # type: ignore[override]
        """The other one's."""
        return self.trigger.column

    def bound(self, schema: Schema) -> Trigger:
        """The same around the bound trigger."""
        return PurgingTrigger(self.trigger.bound(schema))

    def loaded(self) -> Trigger:
        """The same around the loaded trigger."""
        return PurgingTrigger(self.trigger.loaded())

    @property
    def reads_rows(self) -> bool:  # type: ignore[override]
        """Whether the other one does."""
        return self.trigger.reads_rows

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """As the other trigger."""
        return _purging(self.trigger.on_element(time, value, window, context))

    def on_elements(self, rows: TriggerRows, window: Window, context: TriggerContext) -> list[Decision]:
        """As the other trigger."""
        return [(i, _purging(r)) for i, r in self.trigger.on_elements(rows, window, context)]

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """As the other trigger."""
        return _purging(self.trigger.on_event_time(time, window, context))

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """As the other trigger."""
        return _purging(self.trigger.on_processing_time(time, window, context))

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """As the other trigger."""
        self.trigger.on_merge(window, merged, context)

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """As the other trigger."""
        self.trigger.on_fired(window, context)

    def clear(self, window: Window, context: TriggerContext) -> None:
        """As the other trigger."""
        self.trigger.clear(window, context)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.fires else result


@record(slots=False)
class AnyTrigger(Trigger):
    """Fires when one of several triggers does; all of them count from there. At most one of them may read a column."""

    triggers: tuple[Trigger, ...]

    @property
    def watermark_step_ms(self) -> int:  # type: ignore[override]
        """One that has all of theirs among its multiples."""
        return gcd(*(t.watermark_step_ms for t in self.triggers))

    @property
    def can_merge(self) -> bool:  # type: ignore[override]
        """Whether all can."""
        return all(t.can_merge for t in self.triggers)

    @property
    def column(self) -> int | None:  # type: ignore[override]
        """That of the one that has one."""
        return next((t.column for t in self.triggers if t.column is not None), None)

    def _ask(
        self, window: Window, context: TriggerContext, ask: Callable[[Trigger, TriggerContext], TriggerResult]
    ) -> TriggerResult:
        parts = [context.part(i) for i in range(len(self.triggers))]
        results = [ask(trigger, part) for trigger, part in zip(self.triggers, parts, strict=True)]
        fires = any(r.fires for r in results)
        if fires:
            for trigger, part, result in zip(self.triggers, parts, results, strict=True):
                if not result.fires:
                    trigger.on_fired(window, part)
        return TriggerResult((fires, any(r.purges for r in results)))

    def on_element(self, time: int, value: Any, window: Window, context: TriggerContext) -> TriggerResult:
        """Ask all."""
        return self._ask(window, context, lambda t, part: t.on_element(time, value, window, part))

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Ask all."""
        return self._ask(window, context, lambda t, part: t.on_event_time(time, window, part))

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Ask all."""
        return self._ask(window, context, lambda t, part: t.on_processing_time(time, window, part))

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], context: TriggerContext) -> None:
        """Tell all."""
        for i, trigger in enumerate(self.triggers):
            trigger.on_merge(window, [m.part(i) for m in merged], context.part(i))

    def on_fired(self, window: Window, context: TriggerContext) -> None:
        """Tell all."""
        for i, trigger in enumerate(self.triggers):
            trigger.on_fired(window, context.part(i))

    def clear(self, window: Window, context: TriggerContext) -> None:
        """Tell all."""
        for i, trigger in enumerate(self.triggers):
            trigger.clear(window, context.part(i))


def _require_positive(name: str, value: int) -> None:
    if value <= 0:
        raise ValueError(f"{name} of a trigger must be positive, not {value}")
