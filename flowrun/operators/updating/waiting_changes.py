"""Changes that wait for the watermark, as how many equal rows come or go: what cancels each other out is forgotten on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.equality import equal_rows
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.updating.factories import CHANGES_COUNTERS, COPIES, WATERMARK
from flowrun.state.key_groups import hashable_columns

_SPARE = 64 * 1024


@record
class Netted:
    """What changes amount to, one entry for each different row, in the order in which the rows came.

    Attributes:
        places: position of a change that holds the row: of rows that come, the one since which it is there.
        copies: how many equal rows come; below 0: go; 0: nothing happens.
    """

    places: Integers
    copies: Integers


def net_changes(groups: Integers, copies: Integers) -> Netted:
    """What changes amount to.

    Args:
        groups: for each change, in order, a number that equal rows share.
        copies: how many equal rows come with each change, or go.

    >>> netted = net_changes(np.array([7, 8, 7, 7]), np.array([1, 1, -1, 1]))
    >>> netted.places.tolist(), netted.copies.tolist()
    ([1, 3], [1, 1])
    """
    if not len(groups):
        return Netted(groups, copies)
    order = np.argsort(groups, kind="stable")
    ordered, counts = groups[order], copies[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(starts, len(order)))
    sums = np.cumsum(counts)
    sums -= np.repeat(sums[starts] - counts[starts], lengths)  # what the row's changes amount to up to here
    appears = (sums > 0) & (sums - counts <= 0)
    since = np.maximum.reduceat(np.where(appears, np.arange(len(order)), np.repeat(starts, lengths)), starts)
    places = order[since]
    by_place = np.argsort(places, kind="stable")
    return Netted(places[by_place], sums[starts + lengths - 1][by_place])


class WaitingChanges:
    """Changes by key that count once the watermark is beyond that of their sender.

    They are put together when there are twice as many as different ones, so their room follows what they amount to.

    Args:
        schema: of the rows.
        keys: positions of the key columns.
        max_parallelism: number of key groups.
    """

    def __init__(self, schema: Schema, keys: Sequence[int], max_parallelism: int) -> None:
        self._store = RowStore(schema, keys, max_parallelism, counters=CHANGES_COUNTERS, by_key=False)
        self._hashed = hashable_columns(schema.arrow)
        self._together = 0  # so many were left when they were put together last

    def __len__(self) -> int:
        return len(self._store)

    def restore(self, table: pa.Table) -> None:
        """Take back the changes of a snapshot: they wait for the same watermarks."""
        self._store.restore(table)

    def snapshot(self) -> SegmentedTable:
        """The changes that wait."""
        return self._store.snapshot_table()

    def add(self, rows: pa.RecordBatch, adds: Bools, watermarks: Integers) -> None:
        """Let changes wait.

        Args:
            rows: of the changes.
            adds: for each whether its row comes; else it goes.
            watermarks: of their senders, ms.
        """
        self._store.append(rows, **{COPIES: np.where(adds, 1, -1), WATERMARK: watermarks})
        if len(self._store) > 2 * self._together + _SPARE:
            self._put_together()

    def take_due(self, watermark: int | None) -> tuple[pa.RecordBatch, Integers]:
        """Take out the changes whose sender's watermark is below `watermark` (None: all), put together.

        Gives the different rows in the order in which they came, and how many equal rows come or go with each: never 0.
        """
        numbers = self._store.live()
        marks = self._store.counter(WATERMARK)[numbers]
        if watermark is not None:
            numbers, marks = numbers[marks < watermark], marks[marks < watermark]
        order = np.argsort(marks, kind="stable")
        numbers, marks = numbers[order], marks[order]
        # first those of each watermark, as when they are put together on the way: when that happens must not be seen
        rows = self._store.take(numbers)
        places, copies = self._netted(rows, marks, self._store.counter(COPIES)[numbers])
        rows = rows.take(pa.array(places))
        self._store.remove(numbers)
        self._store.compact()
        netted = net_changes(equal_rows(rows, self._hashed), copies)
        counts = netted.copies != 0
        return rows.take(pa.array(netted.places[counts])), netted.copies[counts]

    def _put_together(self) -> None:
        store = self._store
        numbers = store.live()
        places, copies = self._netted(
            store.take(numbers), store.counter(WATERMARK)[numbers], store.counter(COPIES)[numbers]
        )
        kept = numbers[places]
        changed = store.counter(COPIES)[kept] != copies
        store.put(COPIES, kept[changed], copies[changed])
        gone = np.ones(len(numbers), np.bool_)
        gone[np.searchsorted(numbers, kept)] = False
        store.remove(numbers[gone])
        store.compact()
        self._together = len(store)

    def _netted(self, rows: pa.RecordBatch, watermarks: Integers, copies: Integers) -> tuple[Integers, Integers]:
        """(places, copies) of what the changes of each watermark amount to, without those that amount to nothing."""
        marked = pa.RecordBatch.from_arrays(
            [*rows.columns, pa.array(watermarks)], names=[str(i) for i in range(rows.num_columns + 1)]
        )
        netted = net_changes(equal_rows(marked, (*self._hashed, rows.num_columns)), copies)
        counts = netted.copies != 0
        return netted.places[counts], netted.copies[counts]
