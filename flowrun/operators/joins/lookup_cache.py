"""What a lookup join remembers of an outside table: the rows of keys that were asked for, and which keys have none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.joins.lookup_options import LookupSettings
from flowrun.operators.keyed.integers import ranges
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.keyed.state_arrays import extended

_SPARE = 64 * 1024
_KEPT = 0.9


@record
class CachedRows:
    """What is known of some keys.

    Attributes:
        known: for each key whether anything is.
        counts: of each known key, in order, how many rows it has.
        rows: those rows, key by key.
    """

    known: Bools
    counts: Integers
    rows: pa.RecordBatch


class LookupCache:
    """Rows by key, limited in number of keys and in age. For the subtask's thread; is no part of snapshots.

    When there are too many keys, those that were not used for longest go, a tenth of them at once, so that making room costs little.

    Args:
        keys: the columns that are asked by.
        rows: columns of the rows.
        settings: limits.
    """

    def __init__(self, keys: Schema, rows: pa.Schema, settings: LookupSettings) -> None:
        self._settings = settings
        self._rows_schema = rows
        self._slots = KeySlots.of(keys, range(len(keys)))
        self._log = RowLog()
        self._starts: Integers = np.zeros(
            0, np.int64
        )  # where a key's rows begin in the log; −1: nothing is known of the key
        self._counts: Integers = np.zeros(0, np.int64)
        self._written: Integers = np.zeros(0, np.int64)
        self._used: Integers = np.zeros(0, np.int64)  # the call that used the key last
        self._accessed: Integers = np.zeros(0, np.int64)
        self._calls = 0
        self._keys = self._rows = 0

    def __len__(self) -> int:
        """Keys of which something is known."""
        return self._keys

    def find(self, keys: pa.RecordBatch, now_ms: int) -> CachedRows:
        """What is known of distinct keys."""
        self._calls += 1
        located = self._slots.locate(keys.columns, keys.num_rows, add=False)
        self._make_room()
        slots = located.of_rows
        known = slots >= 0
        known[known] = self._starts[slots[known]] >= 0
        held = slots[known]
        fresh = self._is_fresh(held, now_ms)
        if not fresh.all():
            self._forget(held[~fresh])
            known[np.flatnonzero(known)[~fresh]] = False
            held = held[fresh]
        self._used[held] = self._calls
        self._accessed[held] = now_ms
        counts = self._counts[held]
        return CachedRows(known, counts, self._take(ranges(self._starts[held], counts)))

    def put(self, keys: pa.RecordBatch, counts: Integers, rows: pa.RecordBatch, now_ms: int) -> None:
        """Remember the rows of distinct keys: `counts[i]` of them for key i, one key after the other."""
        starts = np.cumsum(counts) - counts + len(self._log)
        self._log.append(rows)
        chosen = np.arange(keys.num_rows) if self._settings.cache_missing else np.flatnonzero(counts)
        located = self._slots.locate([c.take(pa.array(chosen)) for c in keys.columns], len(chosen))
        self._make_room()
        slots = located.of_rows
        self._forget(slots[self._starts[slots] >= 0])
        self._starts[slots], self._counts[slots] = starts[chosen], counts[chosen]
        self._written[slots] = self._accessed[slots] = now_ms
        self._used[slots] = self._calls
        self._keys += len(slots)
        self._rows += int(counts.sum())
        self._shrink()

    def _is_fresh(self, slots: Integers, now_ms: int) -> Bools:
        settings = self._settings
        fresh = np.ones(len(slots), np.bool_)
        if settings.expire_after_write_ms is not None:
            fresh &= now_ms - self._written[slots] < settings.expire_after_write_ms
        if settings.expire_after_access_ms is not None:
            fresh &= now_ms - self._accessed[slots] < settings.expire_after_access_ms
        return fresh

    def _forget(self, slots: Integers) -> None:
        self._keys -= len(slots)
        self._rows -= int(self._counts[slots].sum())
        self._starts[slots] = -1

    def _shrink(self) -> None:
        most = self._settings.max_keys
        if most is not None and self._keys > most:
            held = np.flatnonzero(self._starts[: len(self._slots)] >= 0)
            surplus = self._keys - max(1, int(most * _KEPT))
            oldest = np.argpartition(self._used[held], surplus - 1)[:surplus]
            self._forget(held[oldest])
        if len(self._log) > 2 * self._rows + _SPARE or len(self._slots) > 2 * self._keys + _SPARE:
            self._compact()

    def _compact(self) -> None:
        kept = self._slots.forget(self._starts[: len(self._slots)] >= 0)
        starts, counts = self._starts[kept], self._counts[kept]
        self._log.keep(ranges(starts, counts))
        self._starts, self._counts = np.cumsum(counts) - counts, counts
        self._written, self._used, self._accessed = self._written[kept], self._used[kept], self._accessed[kept]

    def _take(self, positions: Integers) -> pa.RecordBatch:
        if not len(positions):
            return pa.RecordBatch.from_arrays(
                [pa.array([], f.type) for f in self._rows_schema], schema=self._rows_schema
            )
        return self._log.take(positions)

    def _make_room(self) -> None:
        size = len(self._slots)
        self._starts = extended(self._starts, size, -1)
        self._counts = extended(self._counts, size, 0)
        self._written = extended(self._written, size, 0)
        self._used = extended(self._used, size, 0)
        self._accessed = extended(self._accessed, size, 0)
