"""Metrics for tests: everything in memory, read by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np


class RecordedCounter:
    """A counter that tests read by `count`."""

    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int = 1) -> None:
        """Count `n` more."""
        self.count += n


class RecordedHistogram:
    """A histogram that keeps every value."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def update(self, value: float) -> None:
        """Keep one value."""
        self.values.append(value)

    def quantile(self, q: float) -> float:
        """The q-quantile of all values, 0 ≤ q ≤ 1; NaN while empty."""
        return float(np.quantile(self.values, q)) if self.values else float("nan")


class RecordedMetrics:
    """A `MetricGroup` whose metrics tests read back by name.

    >>> metrics = RecordedMetrics()
    >>> metrics.counter("rows_dropped").inc(3)
    >>> metrics.count("rows_dropped"), metrics.count("never_touched")
    (3, 0)
    """

    def __init__(self) -> None:
        self.counters: dict[str, RecordedCounter] = {}
        self.gauges: dict[str, Callable[[], float | int | None]] = {}
        self.families: dict[str, Callable[[], Mapping[str, float | int | None]]] = {}
        self.histograms: dict[str, RecordedHistogram] = {}
        self.notes: list[str] = []

    def counter(self, name: str) -> RecordedCounter:
        """The counter of this name."""
        return self.counters.setdefault(name, RecordedCounter())

    def gauge(self, name: str, read: Callable[[], float | int | None]) -> None:
        """Keep the gauge; `value` reads it."""
        self.gauges[name] = read

    def gauge_family(self, name: str, read: Callable[[], Mapping[str, float | int | None]]) -> None:
        """Keep the family; `values` reads it."""
        self.families[name] = read

    def histogram(self, name: str) -> RecordedHistogram:
        """The histogram of this name."""
        return self.histograms.setdefault(name, RecordedHistogram())

    def note(self, text: str) -> None:
        """Keep what users are told."""
        self.notes.append(text)

    def count(self, name: str) -> int:
        """What a counter says; 0 if nobody asked for it."""
        return self.counters[name].count if name in self.counters else 0

    def value(self, name: str) -> float | int | None:
        """What a gauge says now. Raises KeyError for an unknown one."""
        return self.gauges[name]()

    def values(self, name: str) -> dict[str, float | int | None]:
        """What a family of gauges says now, by key. Raises KeyError for an unknown one."""
        return dict(self.families[name]())
