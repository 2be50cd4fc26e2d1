"""Assigners, triggers and evictors of users, and Flink's `WindowOperator` row by row with any of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.process_function import list_state, reducing_state, value_state
from flowrun.api.window_function import ProcessWindowFunction, Window
from flowrun.api.windowing import Evictor, MergingWindowAssigner, Trigger, TriggerResult, WindowAssigner
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


class ByNumber(WindowAssigner):
    """Windows as long as the row's number says, and a longer one that begins at the same time; of some rows none."""

    def assign_windows(self, row: Any, timestamp: int, context: Any) -> Any:
        size = 6 + 3 * (row["number"] or 0)
        start = timestamp - timestamp % size
        if row["text"] != "zz":
            yield Window(start, start + size)
            yield Window(start, start + 2 * size)


class ByNumberBatch(WindowAssigner):
    """The same, by batch."""

    def assign_windows_batch(self, rows: pa.RecordBatch, timestamps: Any, context: Any) -> Any:
        size = 6 + 3 * rows.column("number").fill_null(0).to_numpy()
        starts = timestamps.to_numpy()
        starts = starts - starts % size
        kept = [i for i, text in enumerate(rows.column("text").to_pylist()) if text != "zz"]
        starts, size = np.repeat(starts[kept], 2), np.repeat(size[kept], 2)
        return np.repeat(kept, 2), starts, starts + size * np.tile([1, 2], len(kept))


class Gaps(MergingWindowAssigner):
    """Sessions that rows with a high number keep open longer."""

    def assign_windows(self, row: Any, timestamp: int, context: Any) -> Any:
        return [Window(timestamp, timestamp + 4 + 3 * (row["number"] or 0))]


class CountOrEnd(Trigger):
    """Fires after three rows, at the end, at a time of its own, purges on large numbers; can merge."""

    count = reducing_state("sum", "BIGINT")
    seen = list_state("BIGINT")
    timer = value_state("BIGINT")

    def __init__(self, rows: int = 3) -> None:
        self.rows = rows

    def on_element(self, row: Any, timestamp: int, window: Window, context: Any) -> TriggerResult:
        self.count.add(1)
        self.seen.add(row["v"] or 0)
        context.register_event_time_timer(window.max_timestamp)
        if self.timer.value() is None and row["v"] and row["v"] > 0:
            self.timer.update(timestamp + row["v"])
            context.register_event_time_timer(timestamp + row["v"])
        if row["v"] == 5:
            self.count.clear()
            return TriggerResult.PURGE
        if context.current_watermark >= window.max_timestamp:
            return TriggerResult.FIRE
        if self.count.get() >= self.rows:
            self.count.clear()
            return TriggerResult.FIRE_AND_PURGE if sum(self.seen.get()) < 0 else TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, context: Any) -> TriggerResult:
        if time == self.timer.value():
            self.timer.clear()
            if window.start % 2:
                context.register_event_time_timer(time + 3)
                self.timer.update(time + 3)
            return TriggerResult.FIRE
        return TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, context: Any) -> None:
        context.merge_partitioned_state(self.count)
        context.merge_partitioned_state(self.seen)
        context.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Window, context: Any) -> None:
        context.delete_event_time_timer(window.max_timestamp)
        if self.timer.value() is not None:
            context.delete_event_time_timer(self.timer.value())


class KeepSome(Evictor):
    """Drops NULLs before, and every third row after firing."""

    def evict_before(self, elements: Any, window: Window, context: Any) -> Any:
        return [e for e in elements if e.value["v"] is not None]

    def evict_after(self, elements: Any, window: Window, context: Any) -> Any:
        return [e for i, e in enumerate(elements) if i % 3 != 2]


class KeepSomeBatch(Evictor):
    """The same, by batch."""

    def evict_before_batch(self, rows: pa.RecordBatch, timestamps: Any, window: Window, context: Any) -> Any:
        return rows.column("v").is_valid()

    def evict_after_batch(self, rows: pa.RecordBatch, timestamps: Any, window: Window, context: Any) -> Any:
        return np.arange(rows.num_rows) % 3 != 2


class Tell(ProcessWindowFunction):
    """All that a firing shows."""

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        shown = [row["v"] for row in rows]
        yield {"text": f"{key} {context.window.start} {context.window.end} {shown} {context.current_watermark}"}


class _Handle:
    """State of triggers, in a dict a window."""

    def __init__(self, name: str, oracle: WindowOracle) -> None:
        self._name, self._oracle = name, oracle

    @property
    def _state(self) -> dict[str, Any]:
        return self._oracle.states[self._oracle.current]

    def value(self) -> Any:
        return self._state.get(self._name)

    def update(self, value: Any) -> None:
        self._state[self._name] = value

    def clear(self) -> None:
        self._state.pop(self._name, None)


class _Sum(_Handle):
    get = _Handle.value

    def add(self, value: Any) -> None:
        self._state[self._name] = (self.value() or 0) + value

    def merge(self, state: dict[str, Any]) -> None:
        if self._name in state:
            self.add(state[self._name])


class _List(_Handle):
    def get(self) -> list[Any]:
        return self.value() or []

    def add(self, value: Any) -> None:
        self._state[self._name] = [*self.get(), value]

    def merge(self, state: dict[str, Any]) -> None:
        self._state[self._name] = [*self.get(), *state.get(self._name, [])]


class WindowOracle:
    """Flink's `WindowOperator`, `EvictingWindowOperator` and `MergingWindowSet` for rows one by one, with `Tell`."""

    def __init__(
        self, assigner: Any, trigger: CountOrEnd | None, evictor: Any, keys: tuple[int, ...], lateness: int
    ) -> None:
        self._assigner, self._trigger, self._evictor = assigner, trigger, evictor
        self._keys, self._lateness = keys, lateness
        self.current_watermark = MIN_TIMESTAMP
        self.current: Any = None
        self.states: dict[Any, dict[str, Any]] = defaultdict(dict)
        self._rows: dict[Any, list[Any]] = {}
        self._timers: dict[tuple[int, Any], int] = {}
        self._registered = self._arrived = 0
        self._merged: list[dict[str, Any]] = []
        self.emitted: list[Any] = []
        self.late: list[Any] = []
        if trigger is not None:
            for name, kind in (("count", _Sum), ("seen", _List), ("timer", _Handle)):
                setattr(trigger, name, kind(name, self))

    def register_event_time_timer(self, time: int) -> None:
        if (time, self.current) not in self._timers:
            self._registered += 1
            self._timers[time, self.current] = self._registered

    def delete_event_time_timer(self, time: int) -> None:
        if time != self._cleanup(self.current[1]):
            self._timers.pop((time, self.current), None)

    def merge_partitioned_state(self, handle: Any) -> None:
        for state in self._merged:
            handle.merge(state)

    def _cleanup(self, window: Window) -> int:
        return window.max_timestamp + self._lateness

    def row(self, row: Any, time: int) -> None:
        key = tuple(row[k] for k in self._keys)
        named = dict(zip(("name", "number", "v", "text", "chosen"), row, strict=True))
        skipped = True
        self._arrived += 1
        for assigned in self._assigner.assign_windows(named, time, self):
            window = self._merge(key, assigned) if self._assigner.merging else assigned
            if self._cleanup(window) <= self.current_watermark:
                continue
            skipped = False
            self.current = (key, window)
            self._rows.setdefault(self.current, []).append((named, time, self._arrived))
            result = (
                self._default(window) if self._trigger is None else self._trigger.on_element(named, time, window, self)
            )
            self._apply(result)
            self.register_event_time_timer(self._cleanup(window))
        if skipped and time + self._lateness <= self.current_watermark:
            self.late.append(row)

    def _default(self, window: Window) -> TriggerResult:
        if window.max_timestamp <= self.current_watermark:
            return TriggerResult.FIRE
        self.register_event_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def _merge(self, key: Any, added: Window) -> Window:
        touching = [w for k, w in self._rows if k == key and w.start <= added.end and added.start <= w.end]
        whole = Window(min([added.start, *(w.start for w in touching)]), max([added.end, *(w.end for w in touching)]))
        if self._cleanup(whole) <= self.current_watermark or touching in ([], [whole]):
            return whole
        rows = sorted((r for w in touching for r in self._rows.pop((key, w))), key=lambda r: r[2])
        self._merged = [self.states.get((key, w), {}) for w in touching]
        self._rows[key, whole] = rows
        self.current = (key, whole)
        if self._trigger is not None:
            self._trigger.on_merge(whole, self)
        elif whole.max_timestamp > self.current_watermark:
            self.register_event_time_timer(whole.max_timestamp)
        for window in touching:
            self._clear(key, window)
            self._timers.pop((self._cleanup(window), (key, window)), None)
        return whole

    def _clear(self, key: Any, window: Window) -> None:
        self.current = (key, window)
        if self._trigger is not None:
            self._trigger.clear(window, self)
        else:
            self.delete_event_time_timer(window.max_timestamp)
        self.states.pop((key, window), None)

    def _apply(self, result: TriggerResult) -> None:
        rows = self._rows.get(self.current, [])
        if result.fires:
            rows = self._evict(rows, "evict_before")
            if rows:
                (key, window), shown = self.current, [r[0]["v"] for r in rows]
                self.emitted.append((f"{key} {window.start} {window.end} {shown} {self.current_watermark}",))
                self._evict(rows, "evict_after")
        if result.purges:
            self._rows[self.current] = []

    def _evict(self, rows: list[Any], method: str) -> list[Any]:
        if self._evictor is None or not rows:
            return rows
        elements = [_Element(r, t, i) for i, (r, t, _) in enumerate(rows)]
        stay: Iterable[Any] = getattr(self._evictor, method)(elements, self.current[1], self)
        self._rows[self.current] = kept = [rows[e.position] for e in stay]
        return kept

    def advance(self, watermark: int) -> None:
        self.current_watermark = watermark
        while due := sorted(
            (t, n, at) for (t, at), n in self._timers.items() if t <= watermark or watermark == MAX_TIMESTAMP
        ):
            time, _, at = due[0]
            del self._timers[time, at]
            if at not in self._rows:
                continue
            self.current = at
            key, window = at
            on_time = TriggerResult.FIRE if time == window.max_timestamp else TriggerResult.CONTINUE
            self._apply(on_time if self._trigger is None else self._trigger.on_event_time(time, window, self))
            if time == self._cleanup(window):
                del self._rows[at]
                self._clear(key, window)


class _Element:
    def __init__(self, value: Any, timestamp: int, position: int) -> None:
        self.value, self.timestamp, self.position = value, timestamp, position
