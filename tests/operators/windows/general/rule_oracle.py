"""The general window operator one row at a time: windows that do not merge, any trigger rule, evictors; plain dicts, for tests only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowrun.api.aggregate import BoundAggregate
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.operators.windows.general.evictors import CountEvictor, Evictor, TimeEvictor
from flowrun.operators.windows.recipes import TriggerRule
from tests.operators.windows.flink_oracle import NEVER, Row, Window
from tests.operators.windows.kernels import python_value

EVER = (NEVER, MAX_TIMESTAMP)


@dataclass
class Held:
    rows: list[tuple[Row, int]] = field(default_factory=list)
    count: int = 0
    late: int = 0
    next: int | None = None
    changed: bool = False
    last: Any = None
    seen: Any = None


@dataclass
class RuleOracle:
    """`assign` gives the windows of a time, latest first; None stands for the global window."""

    assign: Callable[[int], list[Window]] | None
    keys: Sequence[int]
    aggregates: Sequence[BoundAggregate]
    rule: TriggerRule
    evictor: Evictor | None = None
    lateness: int = 0
    watermark: int = NEVER
    held: dict[tuple[Row, Window], Held] = field(default_factory=dict)
    emitted: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def row(self, row: Row, ts: int) -> None:
        key = tuple(row[k] for k in self.keys)
        skipped = True
        for window in [EVER] if self.assign is None else self.assign(ts):
            if self._last(window) + self.lateness <= self.watermark:
                continue
            skipped = False
            held = self.held.setdefault((key, window), Held())
            held.rows.append((row, ts))
            if self._row_fires(held, window, row, ts):
                self._fire(key, window, held)
        if skipped and ts + self.lateness <= self.watermark:
            self.late.append(row)

    def _last(self, window: Window) -> int:
        return MAX_TIMESTAMP if window == EVER else window[1] - 1

    def _row_fires(self, held: Held, window: Window, row: Row, ts: int) -> bool:
        rule, fires = self.rule, False
        if self._last(window) <= self.watermark:
            held.late += 1
            fires = held.late >= rule.late_count
        elif rule.every_ms is not None and not held.changed:
            if held.next is None:  # the first row's interval may be over already: then it fires with the next watermark
                held.next = ts - ts % rule.every_ms + rule.every_ms
            else:
                while held.next <= self.watermark:
                    held.next += rule.every_ms
            held.changed = True
        held.count += 1
        fires = fires or (rule.count is not None and held.count >= rule.count)
        if rule.delta is not None and row[rule.delta] is not None:
            held.seen = row[rule.delta]
            held.last = held.seen if held.last is None else held.last
            fires = fires or abs(held.seen - held.last) > (rule.threshold or 0)
        return fires

    def _fire(self, key: Row, window: Window, held: Held) -> None:
        held.count = held.late = 0
        held.changed, held.last = False, held.seen
        newest = max(t for _, t in held.rows)
        if isinstance(self.evictor, CountEvictor) and not self.evictor.after:
            del held.rows[: -self.evictor.count]
        if isinstance(self.evictor, TimeEvictor) and not self.evictor.after:
            held.rows = [(r, t) for r, t in held.rows if t > newest - self.evictor.time_ms]
        bounds = () if window == EVER else window
        self.emitted.append((*key, *bounds, *(python_value(a, [r for r, _ in held.rows]) for a in self.aggregates)))
        if isinstance(self.evictor, CountEvictor) and self.evictor.after:
            del held.rows[: -self.evictor.count]
        if isinstance(self.evictor, TimeEvictor) and self.evictor.after:
            held.rows = [(r, t) for r, t in held.rows if t > newest - self.evictor.time_ms]
        if self.rule.purge:
            held.rows = []

    def advance(self, watermark: int) -> None:
        before, self.watermark = self.watermark, watermark
        due: list[Any] = []
        for (key, window), held in self.held.items():
            last = self._last(window)
            times = [held.next] if held.next is not None and held.changed else []
            on_time = window != EVER or self._default_only
            if on_time and before < last <= watermark:
                times.append(last)
            due += [(t, repr(key), key, window, held) for t in set(times) if t <= watermark]
        for time, _, key, window, held in sorted(due, key=lambda d: (d[0], d[1], d[3])):
            early = time == held.next and held.changed
            if early:
                assert held.next is not None
                assert self.rule.every_ms is not None
                held.next += self.rule.every_ms
            on_time = time == self._last(window) and (window != EVER or self._default_only)
            if held.rows and (early or on_time):
                self._fire(key, window, held)
        for key, window in [k for k in self.held if self._last(k[1]) + self.lateness <= watermark]:
            del self.held[key, window]

    @property
    def _default_only(self) -> bool:
        return self.rule.count is None and self.rule.every_ms is None and self.rule.delta is None
