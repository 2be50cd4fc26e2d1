"""Sources whose rows are computed from their row numbers. Their splits are blocks of consecutive row numbers.

A subtask asks for a block when it has none, so that blocks are spread evenly and event time advances together in all subtasks. A row is a
pure function of its number: a restart at another parallelism, or with another batch size, gives the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import pyarrow as pa

from flowrun.api.operator import InputStatus, TimerHandle
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceOutput,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, members

_FAST_BLOCK_ROWS = 1 << 18
_PACE_MS = 10
_ROW = integer()
_ORIGIN = integer(-(2**63))


class RowGenerator(Protocol):
    """Computes rows. Each reader has its own generator, which is called by one thread."""

    def rows(self, start: int, count: int) -> pa.RecordBatch:
        """Rows `start` … `start + count − 1`."""
        ...

    def watermark(self, row: int) -> int:
        """An event time in ms that is before those of row `row` and of all rows behind it."""
        ...


class GeneratorFactory(Protocol):
    """A picklable recipe for a `RowGenerator`."""

    @property
    def schema(self) -> Schema: ...

    def create(self, origin_ms: int) -> RowGenerator:
        """A generator of rows; `origin_ms` is the time at which the job first started, which columns of times count from."""
        ...


@record
class GeneratedSource:
    """A source over row numbers.

    Attributes:
        factory: makes the generators of the readers.
        total_rows: how many rows the whole job gets; None: the source has no end.
        rows_per_second: how many rows the whole job gets per second; None: as many as possible.
        watermarks: whether readers send watermarks of their own.
    """

    factory: GeneratorFactory
    total_rows: int | None = None
    rows_per_second: int | None = None
    watermarks: bool = False

    @property
    def schema(self) -> Schema:
        """Columns of the generated rows."""
        return self.factory.schema

    @property
    def boundedness(self) -> Boundedness:
        """Bounded when the number of rows is given."""
        return Boundedness.UNBOUNDED if self.total_rows is None else Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Rows are a function of their number, so a replay is exact."""
        return Delivery.EXACTLY_ONCE

    def estimated_rows(self) -> int | None:
        """The exact number of rows, if it is given."""
        return self.total_rows

    @property
    def position_shape(self) -> Shape:
        """A range of row numbers, and the time at which the job first started."""
        return members({"next": _ROW, "stop": _ROW, "origin_ms": _ORIGIN})

    @property
    def enumerator_shape(self) -> Shape:
        """The first row number that was not handed out, and the blocks that came back."""
        return members({"next": _ROW, "origin_ms": _ORIGIN, "returned": split_list(self.position_shape)})

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator that hands out blocks of row numbers in order."""
        return _BlockEnumerator(self.total_rows, self._block_rows(parallelism), clock, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader that generates the rows of its blocks."""
        pace = None if self.rows_per_second is None else self.rows_per_second / context.parallelism
        return _GeneratingReader(self.factory, pace, context, watermarks=self.watermarks)

    def _block_rows(self, parallelism: int) -> int:
        if self.rows_per_second is None:
            return _FAST_BLOCK_ROWS
        return max(1, min(_FAST_BLOCK_ROWS, self.rows_per_second // parallelism))


class _BlockEnumerator:
    def __init__(self, total: int | None, block: int, clock: Clock, restored: JsonValue) -> None:
        self._total = total
        self._block = block
        self._returned: list[Split] = []
        self._next = 0
        self._origin_ms = clock.now_ms()
        if restored is not None:
            state = cast(dict[str, Any], restored)
            self._next = state["next"]
            self._origin_ms = state["origin_ms"]
            self._returned = [Split(s["id"], s["position"]) for s in state["returned"]]

    def start(self) -> None:
        """Nothing to look at."""

    def next_split(self, subtask: int) -> Split | None:
        """The next block of row numbers."""
        if self._returned:
            return self._returned.pop(0)
        if self._next_is_past_the_end():
            return None
        start = self._next
        stop = start + self._block if self._total is None else min(start + self._block, self._total)
        self._next = stop
        return Split(f"rows-{start}", {"next": start, "stop": stop, "origin_ms": self._origin_ms})

    def _next_is_past_the_end(self) -> bool:
        return self._total is not None and self._next >= self._total

    @property
    def exhausted(self) -> bool:
        """Whether every row number was handed out."""
        return not self._returned and self._next_is_past_the_end()

    @property
    def discovery_interval_ms(self) -> int | None:
        """None: row numbers need no discovery."""
        return None

    def discover(self) -> None:
        """Nothing to look at."""

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take blocks that are to be handed out first."""
        self._returned = sorted([*self._returned, *splits], key=_first_row)

    def snapshot(self) -> JsonValue:
        """The first row number that was not handed out, the blocks that came back, and the time at which the job first started."""
        returned: list[JsonValue] = [{"id": s.split_id, "position": dict(s.position)} for s in self._returned]
        return {"next": self._next, "origin_ms": self._origin_ms, "returned": returned}

    def close(self) -> None:
        """Nothing to release."""


class _GeneratingReader:
    def __init__(
        self, factory: GeneratorFactory, rows_per_second: float | None, context: ReaderContext, *, watermarks: bool
    ) -> None:
        self._factory = factory
        self._rate = rows_per_second
        self._context = context
        self._watermarks = watermarks
        self._splits: list[Split] = []
        self._generator: RowGenerator | None = None
        self._next = self._stop = self._origin_ms = 0
        self._split_id = ""
        self._no_more = False
        self._asked = False
        self._timer: TimerHandle | None = None
        self._began_ns = 0
        self._emitted = 0

    def start(self) -> None:
        """Ask for the first block unless some were restored."""
        self._began_ns = self._context.clock.monotonic_ns()
        if not self._splits:
            self._ask()

    def _ask(self) -> None:
        if not self._asked and not self._no_more:
            self._asked = True
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        """Generate one batch of as many rows as the rate allows now."""
        if self._next >= self._stop and not self._take_block():
            return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
        due = self._rows_due()
        wanted = min(self._stop - self._next, self._context.batch_rows)
        if due < min(wanted, self._rows_a_pace()):
            self._wake_later()
            return InputStatus.NOTHING_AVAILABLE
        count = min(wanted, due)
        assert self._generator is not None
        output.emit(RecordBatch(self._generator.rows(self._next, count)), self._split_id)
        self._next += count
        self._emitted += count
        if (
            self._watermarks
        ):  # a subtask gets its blocks in order, also after a restart: no row of the next block is late
            output.emit_watermark(self._generator.watermark(self._next), self._split_id)
        if self._next >= self._stop and not self._splits:
            self._ask()
        return InputStatus.MORE_AVAILABLE

    def _take_block(self) -> bool:
        if not self._splits:
            self._ask()
            return False
        split = self._splits.pop(0)
        position = cast(dict[str, int], split.position)
        self._split_id = split.split_id
        self._next, self._stop = position["next"], position["stop"]
        if self._generator is None or position["origin_ms"] != self._origin_ms:
            self._origin_ms = position["origin_ms"]
            self._generator = self._factory.create(self._origin_ms)
        return True

    def _rows_a_pace(self) -> int:
        """How many rows make a batch worthwhile: those that fall due between two wake-ups."""
        return 1 if self._rate is None else max(1, int(self._rate * _PACE_MS / 1000))

    def _rows_due(self) -> int:
        if self._rate is None:
            return self._context.batch_rows
        elapsed_s = (self._context.clock.monotonic_ns() - self._began_ns) / 1e9
        due = int(elapsed_s * self._rate) + 1 - self._emitted
        if due > self._rate:  # after a long pause: at most one second is made up for, as in Flink's rate limiter
            self._emitted += due - int(self._rate)
            due = int(self._rate)
        return due

    def _wake_later(self) -> None:
        if self._timer is None:
            service = self._context.processing_time
            wait_ms = max(_PACE_MS, int(1000 / self._rate) if self._rate else 0)
            self._timer = service.register(service.now_ms() + wait_ms, self._wake)

    def _wake(self, timestamp_ms: int) -> None:
        self._timer = None
        self._context.notify_available()

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take blocks whose rows are to be generated."""
        self._asked = False
        # the blocks may be of several subtasks of before: out of order, the rows of one would be late behind those of another
        self._splits = sorted([*self._splits, *splits], key=_first_row)

    def notify_no_more_splits(self) -> None:
        """Take note that the last block was handed out."""
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        """What is left of the current block, and the blocks not begun."""
        current = []
        if self._next < self._stop:
            position: dict[str, JsonValue] = {"next": self._next, "stop": self._stop, "origin_ms": self._origin_ms}
            current = [Split(self._split_id, position)]
        return [*current, *self._splits]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing outside to tell."""

    def close(self) -> None:
        """Cancel the pace timer."""
        if self._timer is not None:
            self._timer.cancel()


def _first_row(split: Split) -> int:
    return cast(int, split.position["next"])
