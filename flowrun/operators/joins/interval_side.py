"""What one side of an interval join remembers: rows by key and time, and the order in which they are forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, timestamps_from_column
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.joins.interval_index import TimeIndex
from flowrun.operators.joins.interval_queue import TimeQueue
from flowrun.operators.keyed.hash_lists import Pairs
from flowrun.operators.keyed.row_store import RowStore, row_store_schema
from flowrun.state.key_groups import hash_columns

TIME_COLUMN = "__time"
"""State column: the time of a row by which it is joined, ms since the epoch."""

MATCHED_COLUMN = "__matched"
"""State column: 1 if the row was joined already, so that it does not come out as one without match."""

COUNTERS = (TIME_COLUMN, MATCHED_COLUMN)


def side_schema(schema: Schema, keys: Sequence[int]) -> pa.Schema:
    """Columns of the state table of a side."""
    return row_store_schema(schema, keys, COUNTERS)


@record
class TimedRows:
    """The rows of one batch.

    Attributes:
        columns: the rows.
        hashes: 64-bit hashes of their keys.
        times: ms; 0 where there is none.
        timed: whether a row has a time.
        matchable: whether it has one, and no NULL in its key.
    """

    columns: pa.RecordBatch
    hashes: Integers
    times: Integers
    timed: Bools
    matchable: Bools


class IntervalSide:
    """The rows of one input. Not thread-safe.

    Args:
        schema: of the input.
        keys: positions of its key columns.
        time: position of its time column.
        max_parallelism: number of key groups.
        stays_ms: how long after its own time a row can be matched.
        outer: whether rows without match come out.
    """

    def __init__(
        self,
        schema: Schema,
        keys: Sequence[int],
        time: int,
        max_parallelism: int,
        *,
        stays_ms: int,
        outer: bool,
    ) -> None:
        self.stays_ms = stays_ms
        self.outer = outer
        self._keys = tuple(keys)
        self._time = time
        self._store = RowStore(schema, keys, max_parallelism, counters=COUNTERS, by_key=False)
        self._index = TimeIndex()
        self._queue = TimeQueue()
        self._forgotten = MIN_TIMESTAMP

    def __len__(self) -> int:
        return len(self._store)

    def timed(self, batch: RecordBatch, now: int | None) -> TimedRows:
        """Rows with hashes and times: those of the time column, or all `now` (ms)."""
        count = batch.num_rows
        keys = [batch.columns.column(k) for k in self._keys]
        hashes = hash_columns(keys).view(np.int64) if keys else np.zeros(count, np.int64)
        timed = np.ones(count, np.bool_)
        if now is not None:
            times = np.full(count, now, np.int64)
        else:
            stamps = timestamps_from_column(batch.columns.column(self._time))
            if stamps.null_count:
                timed = stamps.is_valid().to_numpy(zero_copy_only=False)
                stamps = pc.fill_null(stamps, 0)
            times = stamps.to_numpy()
        matchable = timed
        for key in keys:
            if key.null_count:
                matchable = matchable & key.is_valid().to_numpy(zero_copy_only=False)
        return TimedRows(batch.columns, hashes, times, timed, matchable)

    def find(self, rows: TimedRows, low: Integers, high: Integers) -> Iterator[Pairs]:
        """Remembered rows with (probably) the key of each of `rows`, which are the other side's, and `low` ≤ time ≤ `high`."""
        low = np.maximum(low, min(self._forgotten, MAX_TIMESTAMP - 1) + 1)
        time_of = self._store.counter(TIME_COLUMN)
        if rows.matchable.all():
            yield from self._index.find(rows.hashes, low, high, time_of)
            return
        chosen = np.flatnonzero(rows.matchable)
        for pairs in self._index.find(rows.hashes[chosen], low[chosen], high[chosen], time_of):
            yield Pairs(chosen[pairs.probe], pairs.numbers)

    def remember(self, rows: TimedRows, stays: Bools, matched: Bools) -> None:
        """Keep the rows where `stays`; `matched` says which of all rows were joined."""
        columns, hashes, times = rows.columns, rows.hashes, rows.times
        if not stays.all():
            chosen = np.flatnonzero(stays)
            if not len(chosen):
                return
            columns, hashes, times, matched = (
                columns.take(pa.array(chosen)),
                hashes[chosen],
                times[chosen],
                matched[chosen],
            )
        numbers = self._store.append(columns, **{TIME_COLUMN: times, MATCHED_COLUMN: matched.astype(np.int64)})
        self._index.add(hashes, times, numbers, self._store.counter(TIME_COLUMN))
        self._queue.add(times, numbers)

    def rows(self, numbers: Integers) -> pa.RecordBatch:
        """Remembered rows, or ones that were forgotten since `compact`."""
        return self._store.take(numbers)

    def times_of(self, numbers: Integers) -> Integers:
        """Times of rows, ms."""
        times: Integers = self._store.counter(TIME_COLUMN)[numbers]
        return times

    def mark(self, numbers: Integers) -> None:
        """These rows were joined."""
        if not self.outer:
            return
        marks = self._store.counter(MATCHED_COLUMN)
        fresh = numbers[marks[numbers] == 0]
        if len(fresh):
            self._store.put(MATCHED_COLUMN, fresh, 1)

    def forget(self, bound: int) -> Integers:
        """Forget rows with time ≤ `bound` (ms); gives those that must come out without match, in order of time."""
        if bound <= self._forgotten:
            return np.zeros(0, np.int64)
        self._forgotten = bound
        numbers = self._queue.pop(bound)
        if len(numbers):
            self._store.remove(numbers)
        return numbers[self._store.counter(MATCHED_COLUMN)[numbers] == 0] if self.outer else numbers[:0]

    def compact(self) -> None:
        """Let go of what was forgotten, if it is much; numbers change."""
        moved = self._store.compact()
        if moved is not None:
            self._index.renumber(moved)
            self._queue.renumber(moved)

    def first(self) -> int | None:
        """The time of the row that is forgotten next, ms."""
        return self._queue.first()

    def snapshot(self) -> SegmentedTable:
        """The state table."""
        return self._store.snapshot_table()

    def restore(self, table: pa.Table | None) -> None:
        """Take back the rows of a state table."""
        if table is None or not table.num_rows:
            return
        numbers = self._store.restore(table)
        times = self._store.counter(TIME_COLUMN)[: len(numbers)].copy()
        keys = self._store.take_columns(numbers, self._keys)
        hashes = hash_columns(keys).view(np.int64) if keys else np.zeros(len(numbers), np.int64)
        self._index.add(hashes, times, numbers, times)
        self._queue.add(times, numbers)
