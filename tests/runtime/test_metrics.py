"""Metrics: one object a name, and time that adds up."""

from __future__ import annotations

import math

import pytest

from flowrun.core.clock import ManualClock
from flowrun.errors import InternalError
from flowrun.runtime.metrics import HISTOGRAM_WINDOW, MetricRegistry, RecentTimeUse, TimeAccount, WindowHistogram


def test_a_name_is_one_metric() -> None:
    group = MetricRegistry().group("v", "0")
    group.counter("rows").inc(3)
    group.counter("rows").inc()
    group.gauge("lag", lambda: 7)
    assert group.counters() == {"rows": 4}
    assert group.gauges() == {"lag": 7}
    with pytest.raises(InternalError, match=r"metric 'v\.0\.rows' is a SimpleCounter, not a WindowHistogram"):
        group.histogram("rows")


def test_groups_are_found_by_prefix() -> None:
    registry = MetricRegistry()
    first, second = registry.group("v", "0", "a"), registry.group("v", "1", "a")
    registry.group("w", "0", "a")
    assert list(registry.under("v")) == [first, second]


def test_a_histogram_forgets_the_oldest() -> None:
    histogram = WindowHistogram()
    assert math.isnan(histogram.quantile(0.5))
    for _ in range(HISTOGRAM_WINDOW):
        histogram.update(1)
    for _ in range(HISTOGRAM_WINDOW):
        histogram.update(5)
    assert histogram.quantile(0.0) == 5


def test_waits_are_told_apart_and_the_rest_is_busy() -> None:
    clock = ManualClock()
    account = TimeAccount(clock)
    recent = RecentTimeUse(account.read, clock)
    clock.advance(200)
    account.begin(back_pressured=True)
    clock.advance(300)
    account.end()
    account.begin(back_pressured=False)
    clock.advance(500)
    assert recent.read() == pytest.approx((200, 500, 300)), "a wait that goes on counts"
    clock.advance(1_000)
    assert recent.read() == pytest.approx((0, 1_000, 0)), "only the last second counts"
    account.stop()
    use = account.read()
    clock.advance(5_000)
    assert account.read() == use
