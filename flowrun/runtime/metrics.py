"""The metrics registry: counters, gauges and histograms by scope, written by one thread each and read by any."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.errors import InternalError
from flowrun.runtime.row_samples import RowSample

_log = logging.getLogger(__name__)

HISTOGRAM_WINDOW = 1024
"""How many recent values a histogram keeps."""


class SimpleCounter:
    """A number that only grows. One thread writes; under the GIL any thread may read."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    @property
    def count(self) -> int:
        """The present value."""
        return self._count

    def inc(self, n: int = 1) -> None:
        """Add `n` ≥ 0."""
        self._count += n


class WindowHistogram:
    """A distribution over the last `HISTOGRAM_WINDOW` values. One thread writes, any reads.

    >>> histogram = WindowHistogram()
    >>> for value in range(101): histogram.update(value)
    >>> histogram.quantile(0.99), histogram.total
    (99.0, 101)
    """

    __slots__ = ("_values", "total")

    def __init__(self) -> None:
        self._values = np.zeros(HISTOGRAM_WINDOW)
        self.total = 0

    def update(self, value: float) -> None:
        """Add a value; the oldest is forgotten once the window is full."""
        self._values[self.total % HISTOGRAM_WINDOW] = value
        self.total += 1

    def recent(self) -> tuple[float, ...]:
        """The values of the window, in no order."""
        return tuple(self._values[: min(self.total, HISTOGRAM_WINDOW)].tolist())

    def replace(self, total: int, recent: Sequence[float]) -> None:
        """Be what a histogram of another process is: so many values in all, of which these are in the window."""
        self._values[: len(recent)] = recent
        self.total = total

    def quantile(self, q: float) -> float:
        """The q-quantile of the window, 0 ≤ q ≤ 1, interpolated; NaN while empty."""
        size = min(self.total, HISTOGRAM_WINDOW)
        return float(np.quantile(self._values[:size], q)) if size else math.nan


Metric = SimpleCounter | WindowHistogram | Callable[[], float | int | None]
M = TypeVar("M", SimpleCounter, WindowHistogram)
T = TypeVar("T")


class ScopedMetrics:
    """The metrics of one scope, e.g. one operator of one subtask. The same name gives the same metric."""

    def __init__(self, scope: tuple[str, ...]) -> None:
        self.scope = scope
        self._metrics: dict[str, Metric] = {}
        self._families: dict[str, Callable[[], Mapping[str, float | int | None]]] = {}
        self._broken: set[str] = set()
        self._samples: dict[str, RowSample] = {}
        self._told_rows: Mapping[str, tuple[str, ...]] = {}
        self.noted: str | None = None
        """What users are told at the end of the job."""

    def counter(self, name: str) -> SimpleCounter:
        """The counter of that name, new or known."""
        return self._of(name, SimpleCounter)

    def histogram(self, name: str) -> WindowHistogram:
        """The histogram of that name, new or known."""
        return self._of(name, WindowHistogram)

    def gauge(self, name: str, read: Callable[[], float | int | None]) -> None:
        """Register a value that is read on demand, from any thread; a later registration replaces it."""
        self._metrics[name] = read

    def gauge_family(self, name: str, read: Callable[[], Mapping[str, float | int | None]]) -> None:
        """Register gauges of which only `read` knows which there are, such as one a split: each is called `name.key`.

        They are read as other gauges are, and cost nothing before.
        """
        self._families[name] = read

    def forget_gauge(self, name: str) -> None:
        """There is no such gauge any more."""
        self._metrics.pop(name, None)

    def sample_rows(self, exchange: str, sample: RowSample) -> None:
        """Register who looks at the rows of an exchange when somebody asks."""
        self._samples[exchange] = sample

    def row_sample(self, exchange: str) -> RowSample | None:
        """Who looks at the rows that this subtask sends to an exchange; None: it runs in another process, or sends none there."""
        return self._samples.get(exchange)

    def tell_rows(self, rows: Mapping[str, tuple[str, ...]]) -> None:
        """The subtask runs elsewhere, where these rows were looked at."""
        self._told_rows = rows

    def sampled_rows(self) -> dict[str, tuple[str, ...]]:
        """The last rows of each exchange that is looked at, as JSON texts."""
        here = {exchange: rows for exchange, sample in list(self._samples.items()) if (rows := sample.rows())}
        return here or dict(self._told_rows)

    def note(self, text: str) -> None:
        """Tell users of something, once; later notes are dropped."""
        self.noted = self.noted or text

    def counters(self) -> dict[str, int]:
        """Values of all counters by name."""
        return {n: m.count for n, m in list(self._metrics.items()) if isinstance(m, SimpleCounter)}

    def histograms(self) -> dict[str, WindowHistogram]:
        """All histograms by name."""
        return {n: m for n, m in list(self._metrics.items()) if isinstance(m, WindowHistogram)}

    def read_gauge(self, name: str) -> float | int | None:
        """The present value of one gauge; None also if there is none of that name."""
        metric = self._metrics.get(name)
        return (
            None if metric is None or isinstance(metric, SimpleCounter | WindowHistogram) else self._read(name, metric)
        )

    def gauges(self) -> dict[str, float | int | None]:
        """Present values of all gauges by name, those of families included; None of one that fails, as those of users may."""
        gauges = [(n, m) for n, m in list(self._metrics.items()) if not isinstance(m, SimpleCounter | WindowHistogram)]
        found = {name: self._read(name, read) for name, read in gauges}
        for name, read in list(self._families.items()):
            found.update((f"{name}.{key}", value) for key, value in (self._read(name, read) or {}).items())
        return found

    def _read(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Exception:
            if name not in self._broken:  # who looks at the job looks each second
                self._broken.add(name)
                _log.exception("the gauge '%s' cannot be read", ".".join((*self.scope, name)))
            return None

    def _of(self, name: str, kind: type[M]) -> M:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics.setdefault(name, kind())
        if not isinstance(metric, kind):
            raise InternalError(
                f"metric '{'.'.join((*self.scope, name))}' is a {type(metric).__name__}, not a {kind.__name__}"
            )
        return metric


class MetricRegistry:
    """All metrics of one job, by scope. Thread-safe: scopes are only added."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], ScopedMetrics] = {}
        self._times: dict[tuple[str, ...], RecentTimeUse] = {}

    def group(self, *scope: str) -> ScopedMetrics:
        """The metrics of a scope, such as `(vertex_id, subtask, operator_id)`."""
        return self._groups.setdefault(scope, ScopedMetrics(scope))

    def account_time(self, clock: Clock, *scope: str, waits: Callable[[bool], None] = lambda _: None) -> TimeAccount:
        """A new account of how the subtask with this scope spends its time; `waits` is told of each wait, and of its end."""
        account = TimeAccount(clock, waits)
        self._times[scope] = RecentTimeUse(account.read, clock)
        return account

    def report_time(self, clock: Clock, read: Callable[[], TimeUse], *scope: str) -> None:
        """The subtask with this scope runs elsewhere: `read` gives how it has spent its time, as was told last."""
        self._times[scope] = RecentTimeUse(read, clock)

    def time_use(self, *scope: str) -> RecentTimeUse | None:
        """The recent use of a subtask's time; None before it starts."""
        return self._times.get(scope)

    def under(self, *prefix: str) -> Iterator[ScopedMetrics]:
        """All groups whose scope starts with `prefix`."""
        return (g for s, g in list(self._groups.items()) if s[: len(prefix)] == prefix)


class TimeAccount:
    """How long a subtask was idle and back-pressured; the rest of its time it was busy. In ns of `Clock.monotonic_ns`.

    The subtask's thread calls `begin` and `end` around each wait; any thread reads. A wait that still goes on counts up to now.
    """

    __slots__ = ("_clock", "_idle_ns", "_pressured_ns", "_started_ns", "_stopped_ns", "_wait", "_waits")

    def __init__(self, clock: Clock, waits: Callable[[bool], None] = lambda _: None) -> None:
        self._clock = clock
        self._waits = waits
        self._started_ns = clock.monotonic_ns()
        self._stopped_ns: int | None = None
        self._idle_ns = 0
        self._pressured_ns = 0
        self._wait: tuple[int, bool] | None = None

    def begin(self, *, back_pressured: bool) -> None:
        """A wait starts: for room downstream, or for input."""
        self._wait = (self._clock.monotonic_ns(), back_pressured)
        self._waits(True)

    def end(self) -> None:
        """The wait that `begin` announced is over."""
        if self._wait is None:
            return
        since, back_pressured = self._wait
        self._wait = None
        self._waits(False)
        waited = self._clock.monotonic_ns() - since
        if back_pressured:
            self._pressured_ns += waited
        else:
            self._idle_ns += waited

    def stop(self) -> None:
        """The subtask is over: no time counts any more."""
        self.end()
        self._stopped_ns = self._clock.monotonic_ns()

    def read(self) -> TimeUse:
        """Totals since the start."""
        wait, idle, pressured = self._wait, self._idle_ns, self._pressured_ns
        now = self._stopped_ns if self._stopped_ns is not None else self._clock.monotonic_ns()
        if wait is not None:
            since, back_pressured = wait
            idle += 0 if back_pressured else now - since
            pressured += now - since if back_pressured else 0
        return TimeUse(max(now - self._started_ns - idle - pressured, 0), idle, pressured)


@record
class TimeUse:
    """How a time span was spent, ns."""

    busy_ns: int = 0
    idle_ns: int = 0
    back_pressured_ns: int = 0

    def since(self, earlier: TimeUse) -> TimeUse:
        """What was added after `earlier`."""
        return TimeUse(
            self.busy_ns - earlier.busy_ns,
            self.idle_ns - earlier.idle_ns,
            self.back_pressured_ns - earlier.back_pressured_ns,
        )

    def is_before(self, other: TimeUse) -> bool:
        """Whether some of it is less: it does not follow after the other."""
        more = self.since(other)
        return min(more.busy_ns, more.idle_ns, more.back_pressured_ns) < 0

    def per_second(self) -> tuple[float, float, float]:
        """Busy, idle and back-pressured ms per second; all 0 for an empty span.

        >>> TimeUse(busy_ns=3, idle_ns=1).per_second()
        (750.0, 250.0, 0.0)
        """
        total = self.busy_ns + self.idle_ns + self.back_pressured_ns
        if total <= 0:
            return (0.0, 0.0, 0.0)
        return (self.busy_ns * 1e3 / total, self.idle_ns * 1e3 / total, self.back_pressured_ns * 1e3 / total)


class RecentTimeUse:
    """Busy, idle and back-pressured ms per second over about the last second. Read by one thread at a time."""

    def __init__(self, total: Callable[[], TimeUse], clock: Clock, window_ns: int = 1_000_000_000) -> None:
        self.total = total
        """Gives the use since the start."""
        self._clock = clock
        self._window_ns = window_ns
        self._samples: list[tuple[int, TimeUse]] = [(clock.monotonic_ns(), TimeUse())]

    def read(self) -> tuple[float, float, float]:
        """The present rates: against the newest sample that is at least one window old, else the oldest there is."""
        now, use = self._clock.monotonic_ns(), self.total()
        while len(self._samples) > 1 and now - self._samples[1][0] >= self._window_ns:
            self._samples.pop(0)
        earlier = self._samples[0][1]
        if now - self._samples[-1][0] >= self._window_ns // 10:
            self._samples.append((now, use))
        return use.since(earlier).per_second()
