"""The versions of the keys of a temporal join's right side: which one held at which time.

Versions that time has not reached wait in a queue; of the others only the newest of each key is kept. When time advances, only the
versions that it passes are looked at: sorted by key and time with the versions that held before, they answer for all times passed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.joins.interval_queue import TimeQueue
from flowrun.operators.joins.interval_side import TIME_COLUMN
from flowrun.operators.keyed.key_rows import NOWHERE, KeyRows
from flowrun.operators.keyed.row_store import row_store_schema

DELETES_COLUMN = "__deletes"
"""State column: 1 if the key has no row from this time on."""

COUNTERS = (TIME_COLUMN, DELETES_COLUMN)
_MAX_CODE = 1 << 62


def versions_schema(schema: Schema, keys: Sequence[int]) -> pa.Schema:
    """Columns of the state table of versions."""
    return row_store_schema(schema, keys, COUNTERS)


@record
class PassedVersions:
    """Versions for a stretch of time, in order of key and time; of equal times the one that came last is the last.

    Attributes:
        slots: number of the key of each.
        times: from when it holds, ms.
        numbers: of the rows.
        deletes: whether the key has no row then.
    """

    slots: Integers
    times: Integers
    numbers: Integers
    deletes: Bools

    def find(self, slots: Integers, times: Integers) -> tuple[Integers, Bools]:
        """For each key and time (position of the version that held, −1 if none did; whether any version of the key is here)."""
        if not len(self.slots):
            return np.full(len(slots), NOWHERE, np.int64), np.zeros(len(slots), np.bool_)
        codes, wanted = self._codes(slots, times)
        at = np.searchsorted(codes, wanted, side="right") - 1
        same = (at >= 0) & (self.slots[at] == slots)
        following = np.minimum(at + 1, len(self.slots) - 1)
        return np.where(same, at, NOWHERE), same | (self.slots[following] == slots)

    def _codes(self, slots: Integers, times: Integers) -> tuple[Integers, Integers]:
        """Key and time as one number that orders like them: of the versions, and of what is looked for."""
        first, last = int(self.times.min()), int(self.times.max())
        width = last - first + 2
        if (int(self.slots[-1]) + 1) * width < _MAX_CODE:
            # 0 is before the first version
            held, asked = self.times - first + 1, np.clip(times, first - 1, last) - first + 1
        else:
            instants = np.unique(self.times)
            width = len(instants) + 1
            held, asked = (np.searchsorted(instants, t, side="right") for t in (self.times, times))
        return self.slots * width + held, slots * width + asked


class Versions:
    """The right side's rows. Not thread-safe.

    Args:
        schema: of the right input.
        keys: positions of its key columns.
        max_parallelism: number of key groups.
    """

    def __init__(self, schema: Schema, keys: Sequence[int], max_parallelism: int) -> None:
        self._keys = tuple(keys)
        self._current = KeyRows(schema, keys, max_parallelism, counters=COUNTERS)
        self._store = self._current.store
        self._waiting = TimeQueue()

    def __len__(self) -> int:
        return len(self._store)

    def add(self, rows: pa.RecordBatch, times: Integers, deletes: Bools) -> None:
        """Rows that hold, or (`deletes`) end what holds, from their times on."""
        numbers = self._store.append(rows, **{TIME_COLUMN: times, DELETES_COLUMN: deletes.astype(np.int64)})
        self._waiting.add(times, numbers)

    def replace(self, rows: pa.RecordBatch, deletes: Bools) -> None:
        """Rows that hold, or end what holds, from now on; of each key the last one counts."""
        located = self._current.locate([rows.column(k) for k in self._keys], rows.num_rows)
        newest = np.empty(len(located.slots), np.int64)
        newest[located.local] = np.arange(rows.num_rows)  # of several assignments to one place the last one stays
        stays = ~deletes[newest]
        self._current.replace(located.slots, rows.take(pa.array(newest[stays])), stays)

    def current(self, keys: Sequence[pa.Array], rows: int) -> Integers:
        """For each key the number of the row that holds now, −1 if there is none."""
        slots = self.slots_of(keys, rows)
        held = np.full(rows, NOWHERE, np.int64)
        known = slots != NOWHERE
        held[known] = self._current.numbers(slots[known])
        return held

    def slots_of(self, keys: Sequence[pa.Array], rows: int) -> Integers:
        """Slots of keys, −1 for those of which nothing is known and for keys with NULL."""
        located = self._current.locate(keys, rows, add=False)
        return located.of_rows

    def pass_by(self, time: int) -> PassedVersions:
        """The versions that hold before and become valid up to `time` (ms), of keys for which any does; call `settle` with them."""
        numbers = self._waiting.pop(time)
        columns = self._store.take_columns(numbers, self._keys)
        located = self._current.locate(columns, len(numbers))
        slots = located.of_rows
        touched = located.slots
        before = self._current.numbers(touched)
        held = before != NOWHERE
        slots = np.concatenate([touched[held], slots])
        numbers = np.concatenate([before[held], numbers])
        times = self._store.counter(TIME_COLUMN)[numbers]
        order = np.lexsort((times, slots))  # stable: by arrival where times are equal
        slots, numbers = slots[order], numbers[order]
        return PassedVersions(slots, times[order], numbers, self._store.counter(DELETES_COLUMN)[numbers] == 1)

    def as_of(self, passed: PassedVersions, slots: Integers, times: Integers) -> Integers:
        """For each key and time, not after those passed, the number of the row that held, −1 if none did. Slot −1 is no key."""
        held = np.full(len(slots), NOWHERE, np.int64)
        at, touched = passed.find(slots, times)
        found = np.flatnonzero(at != NOWHERE)
        found = found[~passed.deletes[at[found]]]
        held[found] = passed.numbers[at[found]]
        others = np.flatnonzero(~touched & (slots != NOWHERE))
        numbers = self._current.numbers(slots[others])
        known = numbers != NOWHERE
        others, numbers = others[known], numbers[known]
        since = self._store.counter(TIME_COLUMN)[numbers] <= times[others]
        held[others[since]] = numbers[since]
        return held

    def settle(self, passed: PassedVersions) -> None:
        """Keep only the newest of the versions that were passed; keys without one are forgotten."""
        if not len(passed.slots):
            return
        last = np.append(passed.slots[1:] != passed.slots[:-1], True)
        slots = passed.slots[last]
        stays = ~passed.deletes[last]
        self._current.assign(slots, np.where(stays, passed.numbers[last], NOWHERE))
        gone = ~last | passed.deletes
        self._store.remove(passed.numbers[gone])

    def rows(self, numbers: Integers) -> pa.RecordBatch:
        """Rows by number."""
        return self._store.take(numbers)

    def compact(self) -> None:
        """Let go of what was forgotten, if it is much; numbers change."""
        moved = self._current.compact().moved
        if moved is not None:
            self._waiting.renumber(moved)

    def snapshot(self) -> SegmentedTable:
        """The state table."""
        return self._current.snapshot()

    def restore(self, table: pa.Table | None, *, timed: bool) -> None:
        """Take back a state table; `timed`: versions hold from their times on, else each key has one, which holds now."""
        if table is None or not table.num_rows:
            return
        if not timed:
            self._current.restore(table)
            return
        numbers = self._store.restore(table)
        self._waiting.add(self._store.counter(TIME_COLUMN)[: len(numbers)].copy(), numbers)
