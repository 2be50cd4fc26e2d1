"""Window semantics one row at a time: what Apache Flink's `WindowOperator` does with an event-time trigger, in plain dicts.

Written from the documented behaviour, for tests only: rows are tuples, every window keeps its rows, nothing is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowrun.api.aggregate import BoundAggregate
from tests.operators.windows.kernels import python_value

Row = tuple[Any, ...]
Window = tuple[int, int]
NEVER = -(2**63)


def tumbling(size: int, offset: int = 0) -> Callable[[int], list[Window]]:
    return sliding(size, size, offset)


def sliding(size: int, slide: int, offset: int = 0) -> Callable[[int], list[Window]]:
    def assign(ts: int) -> list[Window]:
        start = ts - (ts - offset) % slide
        windows = []
        while start > ts - size:
            windows.append((start, start + size))
            start -= slide
        return windows

    return assign


def cumulative(size: int, step: int, offset: int = 0) -> Callable[[int], list[Window]]:
    def assign(ts: int) -> list[Window]:
        start = ts - (ts - offset) % size
        ends = [start + step * (k + 1) for k in range(size // step)]
        return [(start, end) for end in reversed(ends) if end > ts]

    return assign


def result_row(aggregates: Sequence[BoundAggregate], key: Row, window: Window, rows: Sequence[Row]) -> Row:
    return (*key, *window, *(python_value(a, rows) for a in aggregates))


@dataclass
class AlignedOracle:
    """`emitted` are result rows (key, start, end, aggregates), `late` the rows that were dropped.

    A row between two windows (slide > size) belongs to none and is late once its slice of `slice_ms` is past (in Flink: once
    its own time is past; slices are what a pre-aggregated row still has).
    """

    assign: Callable[[int], list[Window]]
    keys: Sequence[int]
    aggregates: Sequence[BoundAggregate]
    lateness: int = 0
    slice_ms: int = 1
    watermark: int = NEVER
    contents: dict[tuple[Row, Window], list[Row]] = field(default_factory=dict)
    emitted: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def row(self, row: Row, ts: int) -> None:
        key = tuple(row[k] for k in self.keys)
        skipped = True
        for window in self.assign(ts):
            if window[1] - 1 + self.lateness <= self.watermark:
                continue
            skipped = False
            held = self.contents.setdefault((key, window), [])
            held.append(row)
            if window[1] - 1 <= self.watermark:
                self._fire(key, window)
        last_of_slice = ts - ts % self.slice_ms + self.slice_ms - 1
        if skipped and (self.assign(ts) or last_of_slice + self.lateness <= self.watermark):
            self.late.append(row)

    def advance(self, watermark: int) -> None:
        before, self.watermark = self.watermark, watermark
        for key, window in sorted(self.contents, key=lambda c: (c[1][1], repr(c[0]))):
            if before < window[1] - 1 <= watermark:
                self._fire(key, window)
            if window[1] - 1 + self.lateness <= watermark:
                del self.contents[key, window]

    def _fire(self, key: Row, window: Window) -> None:
        self.emitted.append(result_row(self.aggregates, key, window, self.contents[key, window]))


@dataclass
class SessionOracle:
    """Sessions per key as a list of (start, end, rows)."""

    gap: int
    keys: Sequence[int]
    aggregates: Sequence[BoundAggregate]
    lateness: int = 0
    watermark: int = NEVER
    sessions: dict[Row, list[tuple[int, int, list[Row]]]] = field(default_factory=dict)
    emitted: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    arrivals: int = 0

    def row(self, row: Row, ts: int) -> None:
        key = tuple(row[k] for k in self.keys)
        held = self.sessions.setdefault(key, [])
        touching = [s for s in held if s[0] <= ts + self.gap and ts <= s[1]]
        start = min([ts, *(s[0] for s in touching)])
        end = max([ts + self.gap, *(s[1] for s in touching)])
        if end - 1 + self.lateness <= self.watermark:
            self.late.append(row)
            return
        numbered = [*(r for s in touching for r in s[2]), (self.arrivals, row)]
        self.arrivals += 1
        merged = (start, end, sorted(numbered, key=lambda n: n[0]))
        self.sessions[key] = [*(s for s in held if s not in touching), merged]
        if end - 1 <= self.watermark:
            self._fire(key, merged)

    def advance(self, watermark: int) -> None:
        before, self.watermark = self.watermark, watermark
        due = [(s[1], repr(k), s[0], k, s) for k, held in self.sessions.items() for s in held]
        for end, _, _, key, session in sorted(due, key=lambda d: d[:3]):
            if before < end - 1 <= watermark:
                self._fire(key, session)
            if end - 1 + self.lateness <= watermark:
                self.sessions[key].remove(session)

    def _fire(self, key: Row, session: tuple[int, int, list[Any]]) -> None:
        rows = [r for _, r in session[2]]
        self.emitted.append(result_row(self.aggregates, key, (session[0], session[1]), rows))
