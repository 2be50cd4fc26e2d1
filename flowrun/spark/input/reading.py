"""Reads a connector's source without the streaming runtime: the driver finds its splits, and any process reads each of them to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flowrun.api.operator import InputStatus, TimerHandle
from flowrun.api.source import Boundedness, HandsOutAtOnce, ReaderContext, Source, Split
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.errors import ConnectorError, UnsupportedPlanError
from flowrun.operators.connector_errors import named
from flowrun.runtime.metrics import ScopedMetrics

BATCH_ROWS = 65_536


def find_splits(source: Source, place: str) -> list[Split]:
    """All splits of a bounded source, in the order in which they are read. It blocks on I/O.

    Raises:
        UnsupportedPlanError: the source never ends.
        ConnectorError: the connector cannot list the splits, or what it is to read does not exist.
    """
    if source.boundedness is Boundedness.UNBOUNDED:
        raise UnsupportedPlanError(
            f"{place} never ends, but a batch reads its sources to their end",
            hint="bound it (datagen and nexmark: the option number-of-rows or its like), or run the pipeline as a stream",
        )
    with named(place):
        enumerator = source.create_enumerator(1, SystemClock())
        try:
            enumerator.start()
            at_once: object = enumerator
            splits: list[Split] = []
            if isinstance(at_once, HandsOutAtOnce):
                splits += at_once.take_before(None)
            while (split := enumerator.next_split(0)) is not None:
                splits.append(split)
            if not enumerator.exhausted:
                raise ConnectorError(f"{place}: the source holds splits back, though it says that it ends")
            return splits
        finally:
            enumerator.close()


def read_splits(
    source: Source, splits: Sequence[Split], place: str, batch_rows: int = BATCH_ROWS
) -> Iterator[RecordBatch]:
    """The rows of the splits, in their order. It blocks on I/O.

    Raises:
        ConnectorError: a split cannot be read.
        DataError: a record is no row of the schema, and the source's options say that this is an error.
    """
    timers = ProcessingTimers(SystemClock())
    context = ReaderContext(
        subtask=0,
        parallelism=1,
        batch_rows=batch_rows,
        clock=timers.clock,
        metrics=ScopedMetrics((place,)),
        request_split=_ignore,
        notify_available=_ignore,
        processing_time=timers,
    )
    rows = _Rows()
    with named(place):
        reader = source.create_reader(context)
    try:
        with named(place):
            reader.add_splits(splits)
            reader.notify_no_more_splits()
            reader.start()
        status = InputStatus.MORE_AVAILABLE
        while status is not InputStatus.END_OF_INPUT:
            with named(place):
                status = reader.poll(rows)
                if status is InputStatus.NOTHING_AVAILABLE:
                    timers.wait_for_next()
            yield from rows.take()
    finally:
        reader.close()


def _ignore() -> None:
    """Do nothing: splits are handed over before, and `poll` is called again in any case."""


class _Rows:
    """Collects the rows of a poll. Watermarks and idleness have no meaning in a batch."""

    def __init__(self) -> None:
        self._batches: list[RecordBatch] = []

    def emit(self, columns: RecordBatch, split_id: str) -> None:
        if columns.num_rows:
            self._batches.append(columns)

    def emit_watermark(self, timestamp_ms: int, split_id: str) -> None:
        """Ignore it: a batch has all rows at its end."""

    def advance(self, timestamp_ms: int, split_id: str) -> None:
        """Ignore it, too."""

    def mark_idle(self, split_id: str) -> None:
        """Ignore it: nothing waits for a split."""

    def take(self) -> list[RecordBatch]:
        taken, self._batches = self._batches, []
        return taken


@dataclass(slots=True)
class _Timer:
    due_ms: int
    callback: Callable[[int], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class ProcessingTimers:
    """Processing time for a reader in one thread: callbacks run when the thread waits for them."""

    _SHORTEST_WAIT_S = 0.001

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._timers: list[_Timer] = []

    def now_ms(self) -> int:
        """The time of the clock, in ms since the epoch."""
        return self.clock.now_ms()

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> TimerHandle:
        """Call `callback` in `wait_for_next` when it is due."""
        timer = _Timer(timestamp_ms, callback)
        self._timers.append(timer)
        return timer

    def wait_for_next(self) -> None:
        """Sleep until the next callback is due, and run all that are due; without callbacks sleep for a short time."""
        waiting = [t for t in self._timers if not t.cancelled]
        due = min((t.due_ms for t in waiting), default=0)
        time.sleep(max((due - self.now_ms()) / 1000, self._SHORTEST_WAIT_S))
        now = self.now_ms()
        self._timers = [t for t in waiting if t.due_ms > now]
        for timer in waiting:
            if timer.due_ms <= now:
                timer.callback(timer.due_ms)


def grouped(splits: Sequence[Split], groups: int) -> list[tuple[Split, ...]]:
    """The splits in at most `groups` groups of consecutive splits, of nearly equal length.

    >>> parts = grouped([Split(str(i), {}) for i in range(5)], 2)
    >>> [[s.split_id for s in part] for part in parts]
    [['0', '1'], ['2', '3', '4']]
    """
    count = min(groups, len(splits))
    edges = [len(splits) * i // count for i in range(count + 1)] if count else [0]
    return [tuple(splits[a:b]) for a, b in pairwise(edges)]
