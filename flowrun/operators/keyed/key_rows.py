"""The row of each key, for operators that remember one row a key or none: keys by slot, rows by number, and which row each slot has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.key_slots import KeySlots, LocatedKeys
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.keyed.state_arrays import extended

NOWHERE = -1
"""Number of the row of a key that has none."""
WRITTEN = "__written"
"""State column: processing time of the last write, ms."""
NUM_RECORDS_EXPIRED = "numRecordsExpired"
"""Gauge: how many rows, groups or partitions an operator has forgotten because their time to live was over."""
NUM_STATE_ROWS = "numStateRows"
"""Gauge: how many rows, groups or partitions an operator keeps that only a time to live makes it forget."""
_SPARE_SLOTS = 64 * 1024
_LEAST_BETWEEN_SWEEPS_MS = 1000


class Sweeps:
    """When all keys are looked at for those whose time to live is over: every eighth of it. Keys that come are looked at always.

    Args:
        ttl_ms: time to live, ms.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._every_ms = max(ttl_ms // 8, _LEAST_BETWEEN_SWEEPS_MS)
        self._next_ms = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether to look at all keys now; said once."""
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._every_ms
        return True


@record
class Compacted:
    """What was numbered anew.

    Attributes:
        moved: the new number of each old row, −1: forgotten. None: rows keep their numbers.
        kept: the old slots of those that are 0, 1, … now. None: keys keep their slots.
    """

    moved: Integers | None
    kept: Integers | None


class KeyRows:
    """At most one row a key; the store may hold further rows, which are no key's. Not thread-safe.

    Args:
        schema: of the rows.
        keys: positions of the key columns.
        max_parallelism: number of key groups.
        counters: mutable BIGINT columns of the rows; `WRITTEN` among them if rows have a time to live.
        ttl_ms: time to live of rows, ms; 0: they live for ever.
        slots: of the keys, where the caller uses them for more: then they are never forgotten here.

    Attributes:
        store: the rows.
        expired: how many rows were forgotten because their time to live was over.
    """

    def __init__(
        self,
        schema: Schema,
        keys: Sequence[int],
        max_parallelism: int,
        *,
        counters: Sequence[str] = (),
        ttl_ms: int = 0,
        slots: KeySlots | None = None,
    ) -> None:
        self.store = RowStore(schema, keys, max_parallelism, counters=counters, by_key=False)
        self._keys = tuple(keys)
        self._ttl_ms = ttl_ms
        self._sweeps = Sweeps(ttl_ms)
        self._owns_slots = slots is None
        self._slots = KeySlots.of(schema, keys) if slots is None else slots
        self._numbers: Integers = np.zeros(0, np.int64)  # row number of each slot
        self._held = 0
        self.expired = 0

    def __len__(self) -> int:
        """Number of keys that have a row."""
        return self._held

    @property
    def slots(self) -> int:
        """Number of slots, those without a row included."""
        return len(self._slots)

    def locate(self, columns: Sequence[pa.Array], rows: int, *, add: bool = True) -> LocatedKeys:
        """Slots of the keys of `rows` rows, as `KeySlots.locate` gives them."""
        return self._slots.locate(columns, rows, add=add)

    def numbers(self, slots: Integers) -> Integers:
        """The number of the row of each slot, `NOWHERE` if there is none."""
        self._reserve()
        numbers: Integers = self._numbers[slots]
        return numbers

    def replace(
        self, slots: Integers, rows: pa.RecordBatch, there: Bools | None = None, /, **counters: Integers | int
    ) -> Integers:
        """Put rows in the place of those of distinct slots; gives their numbers.

        Args:
            slots: whose rows are replaced.
            rows: one for each slot that has a row from now on.
            there: for each slot whether it has a row from now on; None: all have.
            counters: of the rows.
        """
        self.remove(slots)
        numbers = self.store.append(rows, **counters)
        self._numbers[slots if there is None else slots[there]] = numbers
        self._held += len(numbers)
        return numbers

    def remove(self, slots: Integers) -> None:
        """Forget the rows of distinct slots, as far as they have one."""
        old = self.numbers(slots)
        old = old[old != NOWHERE]
        self.store.remove(old)
        self._numbers[slots] = NOWHERE
        self._held -= len(old)

    def assign(self, slots: Integers, numbers: Integers) -> None:
        """Say which rows of the store, or `NOWHERE`, are those of distinct slots; the rows of before stay in the store."""
        self._held += int(np.count_nonzero(numbers != NOWHERE)) - int(np.count_nonzero(self.numbers(slots) != NOWHERE))
        self._numbers[slots] = numbers

    # ---- room

    def expire(self, slots: Integers, now_ms: int) -> bool:
        """Forget the rows of these distinct slots whose time to live is over, now and then those of all; whether any was."""
        if not self._ttl_ms:
            return False
        if self._sweeps.is_due(now_ms):
            slots = np.arange(len(self._slots))
        numbers = self.numbers(slots)
        held = np.flatnonzero(numbers != NOWHERE)
        gone = held[self.store.counter(WRITTEN)[numbers[held]] <= now_ms - self._ttl_ms]
        self.remove(slots[gone])
        self.expired += len(gone)
        return len(gone) > 0

    def compact(self) -> Compacted:
        """Let go of rows and keys that were forgotten, if they are many."""
        moved = self.store.compact()
        if moved is not None:
            there = self._numbers != NOWHERE
            self._numbers[there] = moved[self._numbers[there]]
        kept = None
        if self._owns_slots and len(self._slots) > 2 * self._held + _SPARE_SLOTS:
            self._reserve()
            kept = self._slots.forget(self._numbers[: len(self._slots)] != NOWHERE)
            self._numbers = self._numbers[kept]
        return Compacted(moved, kept)

    # ---- snapshots

    def snapshot(self) -> SegmentedTable:
        """The state table: what changed since the last call."""
        return self.store.snapshot_table()

    def restore(self, table: pa.Table) -> tuple[Integers, Integers]:
        """Take back the rows of a state table with one row a key, into an empty store; gives (slot, number) of each row."""
        numbers = self.store.restore(table)
        located = self._slots.locate(self.store.take_columns(numbers, self._keys), len(numbers))
        slots = located.of_rows
        self.assign(slots, numbers)
        return slots, numbers

    def _reserve(self) -> None:
        self._numbers = extended(self._numbers, len(self._slots), NOWHERE)
