"""Metrics of subtasks that run elsewhere: the job master's registry shows what those of the workers do."""

from __future__ import annotations

from flowrun.core.clock import ManualClock
from flowrun.runtime.metric_reports import MetricReports, MetricsReport, read_report
from flowrun.runtime.metrics import MetricRegistry, TimeUse
from flowrun.runtime.rpc.codec import decode, encode

SCOPE = ("vertex", "0")


def worker(count: int, *, watermark: int = 5) -> MetricRegistry:
    registry = MetricRegistry()
    group = registry.group(*SCOPE)
    group.counter("numRecordsIn").inc(count)
    group.gauge("currentInputWatermark", lambda: watermark)
    for value in range(count):
        group.histogram("latency_ms.s").update(value)
    return registry


def test_what_workers_report_reads_as_if_it_were_counted_here() -> None:
    clock, here = ManualClock(), MetricRegistry()
    reports, there = MetricReports(here, clock), worker(100)
    there.group(*SCOPE).note("rows were late")
    account = there.account_time(clock, *SCOPE)
    account.begin(back_pressured=True)
    clock.advance(250)
    account.end()
    sent = encode(read_report(there), MetricsReport)
    reports.add("w1", decode(sent, MetricsReport))
    group = here.group(*SCOPE)
    assert group.counters() == {"numRecordsIn": 100}
    assert group.gauges() == {"currentInputWatermark": 5}
    assert group.histograms()["latency_ms.s"].quantile(0.5) == 49.5
    assert group.noted == "rows were late"
    use = here.time_use(*SCOPE)
    assert use is not None
    assert use.total() == TimeUse(back_pressured_ns=250_000_000)
    there.group(*SCOPE).counter("numRecordsIn").inc(1)
    for _ in range(2):
        reports.add("w1", read_report(there))
    assert group.counters() == {"numRecordsIn": 101}, "a report that comes twice counts once"


def test_a_subtask_that_moved_goes_on_counting_where_it_was() -> None:
    here = MetricRegistry()
    reports = MetricReports(here, ManualClock())
    reports.add("w1", read_report(worker(100)))
    reports.add("w2", read_report(worker(7, watermark=9)))
    reports.add("w2", read_report(worker(8, watermark=11)))
    group = here.group(*SCOPE)
    assert group.counters() == {"numRecordsIn": 108}
    assert group.gauges() == {"currentInputWatermark": 11}


def test_gauges_that_are_gone_there_are_gone_here() -> None:
    here, there, splits = MetricRegistry(), MetricRegistry(), {"a": 1, "b": 2}
    there.group(*SCOPE).gauge_family("split", lambda: splits)
    reports = MetricReports(here, ManualClock())
    reports.add("w1", read_report(there))
    assert here.group(*SCOPE).gauges() == {"split.a": 1, "split.b": 2}
    del splits["a"]
    splits["b"] = 3
    reports.add("w1", read_report(there))
    assert here.group(*SCOPE).gauges() == {"split.b": 3}
    assert here.group(*SCOPE).read_gauge("split.b") == 3
