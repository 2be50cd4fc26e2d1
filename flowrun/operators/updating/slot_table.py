"""A keyed table in memory: keys numbered by slots, 64-bit words for each, and a log of changes that snapshots take segments of.

A slot whose key is gone stays reserved for the key until `forget_dead`. A snapshot captures references; what is written of it is
gathered by the thread that writes (see `keyed.state_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from flowrun.api.state import DELETED_COLUMN, SegmentedTable
from flowrun.core.arrays import Bools, Integers, Words
from flowrun.operators.keyed.key_slots import KeyList, KeySlots, LocatedKeys
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.keyed.state_columns import CapturedEntries, StateColumn
from flowrun.state.backend.upsert_log import UpsertLog

RowsOf = Callable[[KeyList, Integers, Words], list[pa.Array]]
"""(keys at a moment, slots, their words) → the columns of the state table; called on the thread that writes."""

_SPARE = 64 * 1024


class SlotTable:
    """Not thread-safe. Slots are alive or not; those that are not alive have no row in the state.

    Args:
        keys: numbers the keys.
        initial: words of a slot that is not alive.
        schema: of the state table.
        key_names: its columns that tell rows apart.

    Attributes:
        words: of each slot: all of a key's numbers are in one place of the memory, those of any kind as their bits. To be changed by `put`.
    """

    def __init__(self, keys: KeySlots, initial: Sequence[int], schema: pa.Schema, key_names: Sequence[str]) -> None:
        self.keys = keys
        self.words = StateColumn(np.array(initial, np.int64))
        self.schema = schema
        self.live = 0
        self._alive = StateColumn(np.bool_(False))
        self._dirty: Bools = np.zeros(0, np.bool_)
        self._written: Bools = np.zeros(0, np.bool_)
        self._log = UpsertLog(schema.append(pa.field(DELETED_COLUMN, pa.bool_())), tuple(key_names))

    def __len__(self) -> int:
        """Number of slots, dead ones included."""
        return len(self.keys)

    def locate(self, columns: Sequence[pa.Array], rows: int) -> LocatedKeys:
        """Slots of the keys of rows; new keys get slots that are not alive yet."""
        located = self.keys.locate(columns, rows)
        count = len(self.keys)
        self.words.reserve(count)
        self._alive.reserve(count)
        self._dirty = extended(self._dirty, count, 0)
        self._written = extended(self._written, count, 0)
        return located

    def put(self, slots: Integers, before: Words, after: Words) -> None:
        """Replace the words of distinct slots. `before` is what they were, and does not change any more."""
        self.words.put(slots, after, before)
        self._dirty[slots] = True

    def is_alive(self, slots: Integers) -> Bools:
        """Which of some slots are alive."""
        return self._alive.get(slots)

    def alive(self) -> Integers:
        """All slots that are alive. Reads all marks: not for every batch."""
        return np.flatnonzero(self._alive.values[: len(self.keys)])

    def set_alive(self, slots: Integers, alive: Bools) -> None:
        """Say which of some distinct slots are alive now."""
        before = self._alive.get(slots)
        self.live += int(np.count_nonzero(alive)) - int(np.count_nonzero(before))
        self._alive.put(slots, alive, before)

    # ---- snapshots

    def snapshot(self, rows_of: RowsOf) -> SegmentedTable:
        """The state table; what changed since the last snapshot becomes a segment."""
        count = len(self.keys)
        alive, written = self._alive.values[:count], self._written[:count]
        chosen = self._dirty[:count] & (alive | written)
        captured = CapturedEntries([self.words, self._alive], chosen)
        if captured.count:
            rows = partial(_changed_rows, self._log_schema, rows_of, self.keys.view(), captured)
            self._log.append(captured.count, rows)
            self._dirty = np.zeros(len(self._dirty), np.bool_)
            written[chosen] = alive[chosen]  # a view
        return self._log.table(self.live)

    @property
    def _log_schema(self) -> pa.Schema:
        return self.schema.append(pa.field(DELETED_COLUMN, pa.bool_()))

    # ---- room

    @property
    def is_wasteful(self) -> bool:
        """Whether most slots are dead."""
        return len(self.keys) > 2 * self.live + _SPARE

    def settle(self, rows_of: RowsOf) -> None:
        """Put tombstones of dead slots that were written into the log, before their slots are forgotten."""
        count = len(self.keys)
        dead = np.flatnonzero(~self._alive.values[:count] & self._written[:count])
        if len(dead):
            rows = partial(_tombstones, self._log_schema, rows_of, self.keys.view(), dead, self.words.get(dead))
            self._log.append(len(dead), rows)
            self._written[dead] = False

    def forget_dead(self) -> Integers:
        """Forget the slots that are not alive, after `settle`; gives the new slot of each old one (−1: forgotten)."""
        count = len(self.keys)
        kept = self.keys.forget(self._alive.values[:count])
        self.take(kept)
        moved = np.full(count, -1, np.int64)
        moved[kept] = np.arange(len(kept))
        return moved

    def take(self, slots: Integers) -> None:
        """Make these slots the slots 0, 1, … of everything but the keys."""
        self.words.keep(slots)
        self._alive.keep(slots)
        self._dirty, self._written = self._dirty[slots], self._written[slots]


def _changed_rows(schema: pa.Schema, rows_of: RowsOf, keys: KeyList, captured: CapturedEntries) -> pa.Table:
    slots, (words, alive) = captured.read()
    return pa.Table.from_arrays([*rows_of(keys, slots, words), pa.array(~alive)], schema=schema)


def _tombstones(schema: pa.Schema, rows_of: RowsOf, keys: KeyList, slots: Integers, words: Words) -> pa.Table:
    columns = rows_of(keys, slots, words)
    return pa.Table.from_arrays([*columns, pa.array(np.ones(len(slots), np.bool_))], schema=schema)
