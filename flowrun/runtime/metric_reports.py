"""The metrics of a job whose subtasks run in several processes: reports of each, put together in the job master's process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import field

from flowrun.core.clock import Clock
from flowrun.core.recent_logs import LogLine
from flowrun.core.record import record
from flowrun.runtime.metrics import MetricRegistry, TimeUse

Scope = tuple[str, ...]


@record
class ScopeReport:
    """The present values of the metrics of one scope.

    Attributes:
        scope: such as vertex and subtask.
        counters: by name; they only grow while the process lives.
        gauges: by name.
        histograms: by name: how many values there were, and the recent ones.
        noted: what users are told at the end of the job.
        time: how the subtask has spent its time since its start; None: the scope is no subtask.
        rows: the last ones of each exchange that somebody looks at, as JSON texts.
    """

    scope: Scope
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float | int | None] = field(default_factory=dict)
    histograms: Mapping[str, tuple[int, tuple[float, ...]]] = field(default_factory=dict)
    noted: str | None = None
    time: TimeUse | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@record
class MetricsReport:
    """All metrics of one job in one process.

    Attributes:
        scopes: of the job's subtasks and operators.
        logs: what the process has logged since the last report.
    """

    scopes: tuple[ScopeReport, ...] = ()
    logs: tuple[LogLine, ...] = ()


def read_report(registry: MetricRegistry) -> MetricsReport:
    """What the metrics are now. Any thread."""
    scopes = []
    for group in registry.under():
        use = registry.time_use(*group.scope)
        scopes.append(
            ScopeReport(
                group.scope,
                group.counters(),
                group.gauges(),
                {name: (h.total, h.recent()) for name, h in group.histograms().items() if h.total},
                group.noted,
                None if use is None else use.total(),
                group.sampled_rows(),
            )
        )
    return MetricsReport(tuple(scopes))


class MetricReports:
    """Puts the reports of all workers into one registry, as if every subtask ran in this process. Thread-safe.

    A counter is the sum over the workers that a subtask has run in. Gauges, histograms and times are those of the one that reported
    last.

    Args:
        registry: of the job.
        clock: of this process.
    """

    def __init__(self, registry: MetricRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[tuple[Scope, str], dict[str, int]] = {}
        self._gauges: dict[tuple[Scope, str], float | int | None] = {}
        self._reported: dict[Scope, frozenset[str]] = {}
        """Names of the gauges of the last report: one that is missing in the next, such as that of a split that was read, is gone."""
        self._times: dict[Scope, TimeUse] = {}

    def add(self, worker: str, report: MetricsReport) -> None:
        """A worker tells how the metrics are there."""
        with self._lock:
            for scope in report.scopes:
                self._add(worker, scope)

    def _add(self, worker: str, report: ScopeReport) -> None:
        group = self._registry.group(*report.scope)
        for name, count in report.counters.items():
            counts = self._counts.setdefault((report.scope, name), {})
            group.counter(name).inc(count - counts.get(worker, 0))
            counts[worker] = count
        for name in self._reported.get(report.scope, frozenset()) - report.gauges.keys():
            group.forget_gauge(name)
            del self._gauges[report.scope, name]
        self._reported[report.scope] = frozenset(report.gauges)
        for name, value in report.gauges.items():
            key = (report.scope, name)
            if key not in self._gauges:
                group.gauge(name, lambda key=key: self._gauges.get(key))  # type: ignore[misc]
            self._gauges[key] = value
        for name, (total, recent) in report.histograms.items():
            group.histogram(name).replace(total, recent)
        group.tell_rows(report.rows)
        if report.noted is not None:
            group.note(report.noted)
        if report.time is not None:
            scope, before = report.scope, self._times.get(report.scope)
            self._times[scope] = report.time
            if before is None or report.time.is_before(before):  # the subtask began again
                self._registry.report_time(self._clock, lambda: self._times[scope], *scope)
