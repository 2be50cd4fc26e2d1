"""The different values of an argument in each group, with counts: says which values appear and vanish as rows come and go.

An entry is a (group, value) pair with a count for each filter. A count is exact over a changelog; over rows that are never retracted it
stops at 1, so that a value that is there already changes nothing.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Bools, Integers, Words
from flowrun.core.record import record
from flowrun.operators.aggregation.inputs import ArgumentReader
from flowrun.operators.aggregation.keys import KeyCodec
from flowrun.operators.aggregation.numbering import first_rows
from flowrun.operators.keyed.hash_cells import TAG_BITS
from flowrun.operators.keyed.hash_lists import HashLists, SortedTags
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.updating.group_feeds import SetRows, summed_by
from flowrun.operators.updating.slot_table import SlotTable
from flowrun.state.key_groups import key_groups_or_zero

_OWNER = 0
_SPREADING = 0x9E3779B1
"""Odd, so that multiplied by it different numbers stay different modulo 2³¹: the golden ratio spreads them evenly (Knuth)."""


@record
class Appearances:
    """Values that appear in their groups or vanish from them, in order of arrival.

    Attributes:
        ids: group of each, as the caller numbers groups.
        joins: whether it appears; None: all do.
    """

    ids: Integers
    values: pa.Array
    joins: Bools | None

    def parts(self) -> tuple[Appearances | None, Appearances | None]:
        """(those that appear, those that vanish); None: there are none."""
        if not len(self.ids):
            return None, None
        if self.joins is None:
            return self, None
        if not self.joins.any():
            return None, self
        return self._part(self.joins), self._part(~self.joins)

    def _part(self, chosen: Bools) -> Appearances:
        return Appearances(self.ids[chosen], self.values.filter(pa.array(chosen)), None)

    def reader(self) -> ArgumentReader:
        """Reads the values as every argument, in their order."""
        return ArgumentReader.over(self.values, pa.array(np.arange(len(self.ids))))


class ValueSetTable:
    """A set of values for each group. Not thread-safe.

    Args:
        codec: of (slot of the group, value).
        counters: number of counts.
        retracting: whether counts go down again.
        searchable: whether `of_groups` is asked for (what it needs is kept up to date at some cost).
        ordered: whether the order in which values appear matters, also of one that vanishes and comes again within a batch.
    """

    def __init__(
        self,
        codec: KeyCodec,
        counters: int,
        schema: pa.Schema,
        key_count: int,
        max_parallelism: int,
        *,
        retracting: bool,
        searchable: bool,
        ordered: bool = False,
    ) -> None:
        self._codec = codec
        self._counters = counters
        self._key_count = key_count
        self._max_parallelism = max_parallelism
        self._retracting = retracting
        self._ordered = ordered and retracting
        names = [*schema.names[1 : 1 + key_count], schema.names[1 + key_count]]
        self._table = SlotTable(KeySlots(codec), (0,) * (1 + counters), schema, names)
        self._by_group = HashLists() if searchable else None

    def __len__(self) -> int:
        return self._table.live

    # ---- rows

    def apply(self, groups: Integers, rows: SetRows) -> tuple[list[Appearances], int]:
        """Add counts.

        Args:
            groups: slot of each of the caller's groups.
            rows: what is added.

        Returns:
            For each counter what it makes appear or vanish, and how many rows were taken away that were not there.
        """
        if not len(rows.ids):
            nothing = Appearances(rows.ids, rows.values, None)
            return [nothing] * self._counters, 0
        entries, ids, values, deltas, local = self._located(groups, rows)
        before = self._table.words.get(entries)
        before[:, _OWNER] = groups[ids]
        old = before[:, 1:]
        counts = old + deltas
        missing = -int(counts[counts < 0].sum()) if self._retracting else 0
        np.maximum(counts, 0, out=counts)
        if not self._retracting:
            np.minimum(counts, 1, out=counts)
        changed = (counts != old).any(axis=1)
        self._put(entries, before, counts, changed)
        if self._ordered:
            numbers = range(self._counters)
            return [_in_order(ids, values, old[:, i], counts[:, i], local, rows.deltas[:, i]) for i in numbers], missing
        return [_net(ids, values, old[:, i] > 0, counts[:, i] > 0) for i in range(self._counters)], missing

    def _located(self, groups: Integers, rows: SetRows) -> tuple[Integers, Integers, pa.Array, Words, Integers]:
        """(entry, group, value, sum of what is added) of each different pair, and the pair of each row."""
        known = len(self._table)
        located = self._table.locate([pa.array(groups[rows.ids]), rows.values], len(rows.ids))
        total = len(located.slots)
        if self._by_group is not None and len(self._table) > known:
            self._index(located.slots, groups[rows.ids[first_rows(located.local, total)]], known)
        if total == len(rows.ids):
            return located.slots, rows.ids, rows.values, rows.deltas, located.local
        firsts = first_rows(located.local, total)
        deltas = summed_by(located.local, rows.deltas, total)
        return located.slots, rows.ids[firsts], rows.values.take(pa.array(firsts)), deltas, located.local

    def _index(self, entries: Integers, owners: Integers, known: int) -> None:
        assert self._by_group is not None
        new = entries >= known
        self._by_group.add(_tags(owners[new]), entries[new])

    def _put(self, entries: Integers, before: Words, counts: Words, changed: Bools) -> None:
        if not changed.all():
            entries, before, counts = entries[changed], before[changed], counts[changed]
        if len(entries):
            self._table.put(entries, before, np.column_stack([before[:, _OWNER], counts]))
            alive = np.asarray((counts > 0).any(axis=1))
            self._table.set_alive(entries, alive)

    # ---- groups

    def of_groups(self, groups: Integers, counter: int) -> tuple[Integers, pa.Array]:
        """(position of the group, value) for each value of some groups that a counter counts. Reads all entries of the groups."""
        assert self._by_group is not None
        pairs = self._by_group.find(_tags(groups))
        pairs = pairs.where(self._table.words.get(pairs.numbers)[:, 1 + counter] > 0)
        return pairs.probe, self._values(self._table.keys.view(), pairs.numbers)

    def purge(self, groups: Integers) -> None:
        """Forget all values of some groups."""
        assert self._by_group is not None
        pairs = self._by_group.find(_tags(groups))
        pairs = pairs.where(self._table.is_alive(pairs.numbers))
        if len(pairs):
            before = self._table.words.get(pairs.numbers)
            counts = np.zeros((len(pairs), self._counters), np.int64)
            self._put(pairs.numbers, before, counts, np.ones(len(pairs), np.bool_))

    @property
    def is_wasteful(self) -> bool:
        """Whether most entries have no counts any more."""
        return self._table.is_wasteful

    def compact(self, group_keys: KeyList, moved: Integers | None = None) -> None:
        """Forget entries without counts; `moved` gives new slots of groups (−1: gone), if those changed."""
        self._table.settle(self._rows_of(group_keys))
        kept = self._table.alive()
        owners = self._table.words.get(kept)[:, _OWNER].copy()
        values = self._values(self._table.keys.view(), kept)
        self._table.take(kept)
        if moved is not None:
            owners = moved[owners]
            self._table.words.own()[:, _OWNER] = owners
        self._table.keys = KeySlots(self._codec)
        if len(kept):
            self._table.keys.locate([pa.array(owners), values], len(kept))
        if self._by_group is not None:
            self._by_group = HashLists()
            self._index(np.arange(len(kept)), owners, 0)

    # ---- snapshots

    def snapshot(self, group_keys: KeyList) -> SegmentedTable:
        """The state table."""
        return self._table.snapshot(self._rows_of(group_keys))

    def _rows_of(self, group_keys: KeyList) -> partial[list[pa.Array]]:
        return partial(_state_rows, group_keys, self._max_parallelism)

    def restore(self, groups: Integers, table: pa.RecordBatch) -> None:
        """Take back rows of a state table, of groups whose slots are given."""
        first = 1 + self._key_count
        counts = np.column_stack([_counts(c) for c in table.columns[first + 1 :]])
        self.apply(groups, SetRows(np.arange(len(groups)), table.column(first), counts))

    @staticmethod
    def _values(keys: KeyList, entries: Integers) -> pa.Array:
        return keys.keys_of(entries)[1]


def _net(ids: Integers, values: pa.Array, was: Bools, is_: Bools) -> Appearances:
    """What appears and vanishes by comparing before and after."""
    moved = np.flatnonzero(was != is_)
    joins = is_[moved]
    chosen = values if len(moved) == len(values) else values.take(pa.array(moved))
    return Appearances(ids[moved], chosen, None if joins.all() else joins)


def _in_order(
    ids: Integers, values: pa.Array, before: Integers, after: Integers, pairs: Integers, deltas: Integers
) -> Appearances:
    """What vanishes at some time, then what appears, in the order in which it did so last.

    Args:
        ids: group of each pair.
        values: value of each pair.
        before: its count before the rows.
        after: its count after them.
        pairs: pair of each row.
        deltas: what each row adds to the count.
    """
    order = np.argsort(pairs, kind="stable")
    owners, steps = pairs[order], deltas[order]
    sums = np.cumsum(steps)
    starts = np.searchsorted(owners, np.arange(len(ids)))
    earlier = np.append(0, sums)[starts]  # of the rows of all pairs before
    counts = before[owners] + sums - earlier[owners]
    rises = (counts > 0) & (counts - steps <= 0)
    falls = (counts <= 0) & (counts - steps > 0)
    rose = np.full(len(ids), -1, np.int64)
    rose[owners[rises]] = order[rises]  # of several assignments to one place the last one stays
    fell = np.zeros(len(ids), np.bool_)
    fell[owners[falls]] = True
    left = np.flatnonzero((before > 0) & ((after == 0) | fell))
    came = np.flatnonzero((after > 0) & ((before == 0) | fell))
    came = came[np.argsort(rose[came], kind="stable")]
    moved = np.concatenate([left, came])
    joins = np.arange(len(moved)) >= len(left)
    return Appearances(ids[moved], values.take(pa.array(moved)), None if joins.all() else joins)


def _counts(column: pa.Array) -> Integers:
    counts: Integers = column.fill_null(0).to_numpy()
    return counts


def _state_rows(
    group_keys: KeyList, max_parallelism: int, keys: KeyList, entries: Integers, words: Words
) -> list[pa.Array]:
    owners = np.ascontiguousarray(words[:, _OWNER])
    columns = group_keys.keys_of(owners)
    numbers = key_groups_or_zero(columns, len(owners), max_parallelism)
    counts = [pa.array(np.ascontiguousarray(words[:, 1 + i])) for i in range(words.shape[1] - 1)]
    return [pa.array(numbers), *columns, keys.keys_of(entries)[1], *counts]


def _tags(groups: Integers) -> SortedTags:
    """Tags of slots of groups, each of which has one of its own."""
    return SortedTags.of(groups * _SPREADING & (1 << TAG_BITS) - 1)
