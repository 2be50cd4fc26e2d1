"""Metrics as operators and functions see them, in named groups, and the subtask whose metrics they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Counter(Protocol):
    """A number that only grows; written by one thread, read by any."""

    @property
    def count(self) -> int: ...

    def inc(self, n: int = 1) -> None: ...


class Histogram(Protocol):
    """A distribution over the recent values."""

    def update(self, value: float) -> None: ...

    def quantile(self, q: float) -> float:
        """The q-quantile, 0 ≤ q ≤ 1; NaN while empty."""
        ...


class MetricGroup(Protocol):
    """Metrics of one scope (job, vertex, subtask, operator). The same name gives the same metric."""

    def counter(self, name: str) -> Counter: ...

    def gauge(self, name: str, read: Callable[[], float | int | None]) -> None:
        """Register a value that is read on demand, from any thread."""
        ...

    def gauge_family(self, name: str, read: Callable[[], Mapping[str, float | int | None]]) -> None:
        """Register values of which it is known only when they are read which there are, from any thread: each is `name.key`."""
        ...

    def histogram(self, name: str) -> Histogram: ...

    def note(self, text: str) -> None:
        """Tell users of something, once, at the end of the job; of several notes of a scope the first counts."""
        ...


class SubtaskContext(Protocol):
    """What a function may know of the subtask that runs it."""

    @property
    def subtask(self) -> int:
        """Number of the subtask, from 0."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of subtasks."""
        ...

    @property
    def metrics(self) -> MetricGroup:
        """Where the function may count."""
        ...
