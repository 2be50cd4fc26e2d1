"""Metrics: one object a name, and time that adds up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flowrun.core.clock import ManualClock
from flowrun.errors import InternalError
from flowrun.runtime.metric_reports import MetricReports, MetricsReport, ScopeReport, read_report
from flowrun.runtime.metrics import (
    HISTOGRAM_WINDOW,
    MetricRegistry,
    RecentTimeUse,
    TimeAccount,
    TimeUse,
    WindowHistogram,
)
from flowrun.runtime.rpc.codec import decode, encode


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


def test_reports_of_workers_make_one_registry() -> None:
    clock = ManualClock()
    workers = {"w0": MetricRegistry(), "w1": MetricRegistry()}
    whole = MetricRegistry()
    reports = MetricReports(whole, clock)

    def report(worker: str) -> None:
        told = encode(read_report(workers[worker]), MetricsReport)
        reports.add(worker, decode(told, MetricsReport))

    for subtask, worker in enumerate(workers):
        group = workers[worker].group("v", str(subtask))
        group.counter("rows").inc(10 + subtask)
        group.gauge("watermark", lambda n=subtask: np.int64(n) if n else None)  # type: ignore[misc]
        group.histogram("latency").update(4.5)
        group.note(f"of {subtask}")
        report(worker)
    workers["w1"].group("v", "1").counter("rows").inc(5)
    workers["w1"].group("v", "1").histogram("latency").update(5.5)
    report("w1")
    report("w1")
    first, second = whole.group("v", "0"), whole.group("v", "1")
    assert (first.counters(), second.counters()) == ({"rows": 10}, {"rows": 16}), "no report counts twice"
    assert (first.gauges(), second.gauges()) == ({"watermark": None}, {"watermark": 1})
    assert (second.histograms()["latency"].total, second.histograms()["latency"].quantile(0.5)) == (2, 5.0)
    assert (first.noted, second.noted) == ("of 0", "of 1")
    workers["w0"].group("v", "1").counter("rows").inc(100)
    report("w0")
    assert second.counters() == {"rows": 116}, "a subtask that moved has counted in both"


def test_times_of_a_subtask_that_moved_begin_anew() -> None:
    clock = ManualClock()
    whole = MetricRegistry()
    reports = MetricReports(whole, clock)

    def report(worker: str, use: TimeUse) -> tuple[float, float, float]:
        reports.add(worker, MetricsReport((ScopeReport(("v", "0"), time=use),)))
        recent = whole.time_use("v", "0")
        assert recent is not None
        return recent.read()

    assert report("w0", TimeUse(busy_ns=8_000, idle_ns=2_000)) == (800, 200, 0)
    clock.advance(500)
    assert report("w1", TimeUse(idle_ns=300, back_pressured_ns=100)) == (0, 750, 250), "not less than nothing"
    clock.advance(500)
    assert report("w1", TimeUse(busy_ns=400, idle_ns=300, back_pressured_ns=100)) == (500, 375, 125)


def test_a_histogram_that_is_reported_has_the_window_of_the_original() -> None:
    original, copy = WindowHistogram(), WindowHistogram()
    for value in range(HISTOGRAM_WINDOW + 100):
        original.update(value)
    copy.replace(original.total, original.recent())
    assert (copy.total, copy.quantile(0.0), copy.quantile(0.5)) == (
        original.total, original.quantile(0.0), original.quantile(0.5),
    )  # fmt: skip


def test_a_gauge_that_fails_says_nothing_and_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    metrics = MetricRegistry().group("v", "0", "o")
    metrics.gauge("broken", lambda: 1 // 0)
    metrics.gauge("sound", lambda: 7)
    assert metrics.gauges() == metrics.gauges() == {"broken": None, "sound": 7}
    assert [record.getMessage() for record in caplog.records] == ["the gauge 'v.0.o.broken' cannot be read"], "once"
