"""Windows that fire together: what a window function is called with, and what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.timed.event_rows import MAX_OUTPUT_ROWS

_TIMESTAMP = pa.timestamp("ms")


@record
class Windows:
    """Windows of keys, one an entry.

    Attributes:
        keys: the key columns.
        starts: ms; `ends` likewise.
        watermark: event time as it was when they fired.
    """

    keys: Sequence[pa.Array]
    starts: Integers
    ends: Integers
    watermark: int

    def __len__(self) -> int:
        return len(self.starts)

    def between(self, start: int, stop: int) -> Windows:
        """Some of them."""
        keys = [k.slice(start, stop - start) for k in self.keys]
        return Windows(keys, self.starts[start:stop], self.ends[start:stop], self.watermark)

    @property
    def bounds(self) -> list[pa.Array]:
        """Start and end as columns."""
        return [pa.array(self.starts), pa.array(self.ends)]

    def columns(self, names: Sequence[str]) -> pa.RecordBatch:
        """The key columns and the bounds as TIMESTAMP(3), under names for all."""
        bounds = [pa.array(self.starts).view(_TIMESTAMP), pa.array(self.ends).view(_TIMESTAMP)]
        return pa.RecordBatch.from_arrays([*self.keys, *bounds], names=list(names))


@record
class FiredWindows:
    """Windows that fire, with their rows.

    Attributes:
        offsets: the rows of window i are at offsets[i] to offsets[i + 1].
        rows: all rows.
        times: event time of the results of each window; NULL on a stream without.
    """

    windows: Windows
    offsets: Integers
    rows: pa.RecordBatch
    times: pa.Array

    def between(self, start: int, stop: int) -> FiredWindows:
        """Some of them."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        return FiredWindows(
            self.windows.between(start, stop),
            self.offsets[start : stop + 1] - first,
            self.rows.slice(first, last - first),
            self.times.slice(start, stop - start),
        )


@record
class Results:
    """Rows that a function sent, and for each the position of its window."""

    columns: pa.RecordBatch
    parents: Integers


class WindowFunctionRunner(Protocol):
    """Calls one user's function of one subtask."""

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Make the states that the function declares, and take back what they held."""
        ...

    def open(self) -> None:
        """Open the function."""
        ...

    def close(self) -> None:
        """Close the function if it was opened."""
        ...

    def snapshot(self) -> dict[str, SegmentedTable]:
        """The state tables that have rows."""
        ...

    def call(self, fired: FiredWindows) -> Results:
        """What the function sends for windows that fire. Side outputs are sent here."""
        ...

    @property
    def wants_clear(self) -> bool:
        """Whether something is to be done when a window is forgotten."""
        ...

    @property
    def clears_in_turn(self) -> bool:
        """Whether that is to be done before another window fires."""
        ...

    def clear(self, windows: Windows) -> None:
        """These windows are forgotten, each once."""
        ...


def function_results(runner: WindowFunctionRunner, fired: FiredWindows) -> Iterator[RecordBatch]:
    """What a function sends for windows that fire, in batches of a bounded size."""
    results = runner.call(fired)
    times = None if fired.times.null_count else fired.times.take(pa.array(results.parents))
    whole = RecordBatch(results.columns, times)
    for start in range(0, whole.num_rows, MAX_OUTPUT_ROWS):
        yield whole if whole.num_rows <= MAX_OUTPUT_ROWS else whole.slice(start, MAX_OUTPUT_ROWS)


def newest_times(timestamps: pa.Array | None, offsets: Integers) -> pa.Array:
    """The newest event time of the rows of each window; NULL without event times.

    >>> newest_times(pa.array([5, 9, 3]), np.array([0, 2, 3])).to_pylist()
    [9, 3]
    """
    if timestamps is None or timestamps.null_count:
        return pa.nulls(len(offsets) - 1, pa.int64())
    return pa.array(np.maximum.reduceat(timestamps.to_numpy(), offsets[:-1]))


def distinct_runs(numbers: Integers) -> list[tuple[int, int]]:
    """The sequence cut into runs without a number that occurs twice: (start, stop) of each.

    >>> distinct_runs(np.array([1, 2, 1, 1, 3]))
    [(0, 2), (2, 3), (3, 5)]
    """
    if len(np.unique(numbers)) == len(numbers):
        return [(0, len(numbers))] if len(numbers) else []
    runs, start, seen = [], 0, set[int]()
    for position, number in enumerate(numbers.tolist()):
        if number in seen:
            runs.append((start, position))
            start, seen = position, set()
        seen.add(number)
    return [*runs, (start, len(numbers))]
