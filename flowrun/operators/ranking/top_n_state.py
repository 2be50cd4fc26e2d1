"""What top-N remembers: rows, and for each partition its head, its tail, and the code beyond which rows are of no interest.

OVER over rows that change keeps its rows so, too: all of them in heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.schema import Schema
from flowrun.core.semantics import SortKey
from flowrun.operators.keyed.key_rows import WRITTEN, Sweeps
from flowrun.operators.keyed.key_slots import KeySlots, LocatedKeys
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.ranking.order import GREATEST_CODE, RowOrder
from flowrun.operators.ranking.slot_lists import SlotLists

_SPARE_SLOTS = 64 * 1024


class TopNState:
    """The partitions of one subtask, by slot, and their rows, by number. Not thread-safe.

    Args:
        schema: of the rows.
        partition: columns whose values tell partitions apart.
        order: of the rows of a partition.
        max_parallelism: number of key groups.
        retracting: rows may be taken back.
        ttl_ms: how long a partition is kept that gets no rows, ms; 0: for ever.
        counters: further BIGINT columns that are kept beside rows.

    Attributes:
        order: of the rows; says whether `codes` suffice to compare them.
        store: the rows.
        heads: the first rows of each partition, in order.
        tails: the others, in order of arrival; may hold rows that are gone.
        tail_sizes: by slot, how many rows of the tail are there.
        thresholds: by slot, a row whose first code is greater is behind the head.
        in_head: by row number; kept only where rows may go.
    """

    def __init__(
        self,
        schema: Schema,
        partition: tuple[int, ...],
        order: Sequence[SortKey],
        max_parallelism: int,
        *,
        retracting: bool,
        ttl_ms: int,
        counters: tuple[str, ...] = (),
    ) -> None:
        self._partition = partition
        self._ttl_ms = ttl_ms
        self._retracting = retracting
        self.order = RowOrder(schema, order)
        self.store = RowStore(
            schema, partition, max_parallelism, counters=(WRITTEN, *counters), by_row=retracting, by_key=False
        )
        self.heads = SlotLists()
        self.tails = SlotLists()
        self.tail_sizes: Integers = np.zeros(0, np.int64)
        self.thresholds: Integers = np.zeros(0, np.int64)
        self.in_head: Bools = np.zeros(0, np.bool_)
        self._written: Integers = np.zeros(0, np.int64)
        self._codes: list[Integers] = [np.zeros(0, np.int64) for _ in range(self.order.width)]
        self._slots = KeySlots.of(schema, partition)
        self._checked_slots = 0
        self._sweeps = Sweeps(ttl_ms)
        self.expired = 0
        """How many partitions were forgotten because their time to live was over."""

    # ---- partitions

    def locate(self, columns: pa.RecordBatch, now: int) -> LocatedKeys:
        """The partitions of rows, without what has expired by `now` (ms)."""
        located = self._slots.locate([columns.column(k) for k in self._partition], columns.num_rows)
        self._reserve(len(self._slots))
        if self._ttl_ms:
            self._expire(located.slots, now)
        return located

    def _reserve(self, slots: int) -> None:
        self.heads.reserve(slots)
        self.tails.reserve(slots)
        self.tail_sizes = extended(self.tail_sizes, slots, 0)
        self.thresholds = extended(self.thresholds, slots, GREATEST_CODE)
        self._written = extended(self._written, slots, 0)

    def _expire(self, slots: Integers, now: int) -> None:
        if self._sweeps.is_due(now):
            slots = np.arange(len(self._slots))
        gone = slots[(self._written[slots] <= now - self._ttl_ms) & (self.heads.lengths(slots) > 0)]
        if not len(gone):
            return
        self.expired += len(gone)
        for lists in (self.heads, self.tails):
            _, numbers = lists.get(gone)
            self.store.remove(numbers[self.store.is_live(numbers)])
            lists.put(gone, np.zeros(len(gone), np.int64), np.zeros(0, np.int64))
        self.tail_sizes[gone] = 0
        self.thresholds[gone] = GREATEST_CODE

    def written(self, slots: Integers, now: int) -> None:
        """Partitions were changed."""
        self._written[slots] = now

    # ---- rows

    def add(self, rows: pa.RecordBatch, codes: Sequence[Integers], now: int, **counters: int | Integers) -> Integers:
        """Remember rows; gives their numbers."""
        numbers = self.store.append(rows, **{WRITTEN: now, **counters})
        self._keep_codes(numbers, codes)
        return numbers

    def _keep_codes(self, numbers: Integers, codes: Sequence[Integers]) -> None:
        size = int(numbers[-1]) + 1 if len(numbers) else 0
        for i, values in enumerate(codes):
            self._codes[i] = extended(self._codes[i], size, 0)
            self._codes[i][numbers] = values
        if self._retracting and len(self.in_head) < size:
            self.in_head = extended(self.in_head, size, 0)

    def sort_values(
        self, numbers: Integers, rows: pa.RecordBatch, chosen: Integers, codes: Sequence[Integers]
    ) -> list[Integers]:
        """What to sort remembered rows and then the chosen ones of `rows`, with their codes, by."""
        if self.order.exact:
            return [np.concatenate([c[numbers], new]) for c, new in zip(self._codes, codes, strict=True)]
        taken = pa.array(chosen)
        old = self.store.take_columns(numbers, self.order.columns)
        new = [rows.column(c).take(taken) for c in self.order.columns]
        return [self.order.ranks([pa.concat_arrays([a, b]) for a, b in zip(old, new, strict=True)])]

    def first_codes(self, numbers: Integers) -> Integers:
        """The first code of remembered rows."""
        codes: Integers = self._codes[0][numbers]
        return codes

    def set_thresholds(self, slots: Integers, bounded: Bools) -> None:
        """Rows behind the heads of these partitions are of no interest where `bounded`."""
        codes = np.full(len(slots), GREATEST_CODE, np.int64)
        if bounded.any():
            codes[bounded] = self._codes[0][self.heads.last(slots[bounded])]
        self.thresholds[slots] = codes

    # ---- room

    def compact(self) -> None:
        """Let go of rows and partitions that are gone, now and then. No number or slot means the same afterwards."""
        moved = self.store.compact()
        if moved is not None:
            kept = np.flatnonzero(moved >= 0)
            self._codes = [c[kept] for c in self._codes]
            if self._retracting:
                self.in_head = self.in_head[kept]
            self.heads.renumber(moved)
            self.tails.renumber(moved)
        if len(self._slots) > 2 * self._checked_slots + _SPARE_SLOTS:
            self._forget_empty()

    def _forget_empty(self) -> None:
        used = self.heads.lengths(np.arange(len(self._slots))) > 0
        if 2 * np.count_nonzero(used) < len(used):
            kept = self._slots.forget(used)
            self.heads.keep(kept)
            self.tails.keep(kept)
            self.tail_sizes = self.tail_sizes[kept]
            self.thresholds = self.thresholds[kept]
            self._written = self._written[kept]
        self._checked_slots = len(self._slots)

    # ---- restore

    def restore(self, table: pa.Table) -> tuple[Integers, Integers]:
        """Take back the rows of a state table; gives their slots and numbers, oldest first. They are in no list yet."""
        numbers = self.store.restore(table)
        columns = self.store.take_columns(numbers, [*self._partition, *self.order.columns])
        located = self._slots.locate(columns[: len(self._partition)], len(numbers))
        self._reserve(len(self._slots))
        self._keep_codes(numbers, self.order.codes(columns[len(self._partition) :], len(numbers)))
        slots = located.of_rows
        np.maximum.at(self._written, slots, self.store.counter(WRITTEN)[numbers])
        return slots, numbers
