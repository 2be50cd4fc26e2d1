"""The groups of one subtask: what is kept of each, how a batch changes it, and what the aggregates amount to before and after.

Everything that a batch costs depends on the batch and on the groups that it touches, not on how many groups there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Bools, Integers, Words
from flowrun.core.record import record
from flowrun.errors import DataError
from flowrun.operators.aggregation.user_aggregates import UserFolding
from flowrun.operators.keyed.equality import columns_equal
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.updating.accumulators import Accumulator, KeptValue, LoggedValue, accumulator_of
from flowrun.operators.updating.group_feeds import GroupFeed, ListRows
from flowrun.operators.updating.group_layout import GROUPS, ROWS, TOUCHED, GroupLayout, GroupUse, SetCounter, ValueList
from flowrun.operators.updating.slot_table import RowsOf, SlotTable
from flowrun.operators.updating.value_lists import NOWHERE, ValueListTable
from flowrun.operators.updating.value_sets import Appearances, ValueSetTable
from flowrun.state.key_groups import key_groups_or_zero

_ROWS = 0
_TOUCHED = 1
_RESTORED_ROWS = 1 << 20


@record
class GroupChanges:
    """What a batch did to the groups that it touched, in the order in which it touched them first.

    Attributes:
        keys: key columns of the groups.
        had: whether a group had rows before.
        before: results of the groups that had.
        has: whether a group has rows now.
        after: results of the groups that have.
        dropped: rows that were taken away from groups, sets or lists that did not hold them.
    """

    keys: list[pa.Array]
    had: Bools
    before: list[pa.Array]
    has: Bools
    after: list[pa.Array]
    dropped: int


class GroupState:
    """State of a group aggregation. Not thread-safe.

    Args:
        ttl_ms: groups that were not touched for so long are as if they had never been; 0: never.
    """

    def __init__(self, layout: GroupLayout, max_parallelism: int, ttl_ms: int = 0) -> None:
        self._layout = layout
        self._max_parallelism = max_parallelism
        self._ttl_ms = ttl_ms
        self.expired = 0
        """How many groups were forgotten because their time to live was over."""
        self._schemas = layout.state_schemas()
        kept = [*(c.column for c in layout.columns), *(u.column for u in layout.users)]
        self._accumulators: tuple[Accumulator, ...] = tuple(map(accumulator_of, kept))
        self._foldings = [UserFolding(u.user) for u in layout.users]
        self._places: list[slice] = []
        initial = [0, 0]
        for accumulator in self._accumulators:
            self._places.append(slice(len(initial), len(initial) + len(accumulator.initial)))
            initial += accumulator.initial
        self._ends_at = len(initial)
        initial += [NOWHERE] * len(layout.ends)
        key_names = [f.name for f in layout.state_keys]
        self._groups = SlotTable(KeySlots(layout.key_codec), initial, self._schemas[GROUPS], key_names)
        self._purges = layout.retracting or ttl_ms > 0
        self._sets = [
            ValueSetTable(
                codec,
                len(s.filters),
                self._schemas[s.name],
                len(layout.keys),
                max_parallelism,
                retracting=layout.retracting,
                searchable=self._purges,
                ordered=number in layout.ordered_sets,
            )
            for number, (s, codec) in enumerate(zip(layout.sets, layout.set_codecs, strict=True))
        ]
        self._lists = [
            ValueListTable(layout.list_schema(i), max_parallelism, retracting=layout.retracting)
            for i in range(len(layout.lists))
        ]

    def __len__(self) -> int:
        """Number of groups that have rows."""
        return self._groups.live

    def keys_of(self, slots: Integers) -> list[pa.Array]:
        """The key columns of some groups."""
        return self._groups.keys.keys_of(slots)

    # ---- a batch

    def apply(self, feed: GroupFeed, now_ms: int = 0) -> GroupChanges:
        """Fold a batch in. `now_ms`: the time at which groups count as touched.

        Raises:
            DataError: a sum overflows; names the aggregate and, where it does not fit the type of the result, the group's last row.
        """
        located = self._groups.locate(feed.keys(), feed.num_rows)
        slots, ids = located.slots, located.local
        keys = self._groups.keys.keys_in(located)
        old = self._groups.words.get(slots)
        had = self._groups.is_alive(slots)
        if self._ttl_ms:
            expired = had & (old[:, _TOUCHED] + self._ttl_ms <= now_ms)
            if expired.any():
                self.forget(slots[expired])
                self.expired += int(np.count_nonzero(expired))
                old[expired] = self._groups.words.fill
                had &= ~expired
        # What lists held is gone once the batch is folded in. Other results follow from words: those before and after are computed at once.
        before = self._results(filtered(keys, had), _chosen(old, had)) if self._layout.lists else None
        rows = old[:, _ROWS] + feed.rows(ids, len(slots))
        has = rows > 0
        # what is taken from a group without rows was never added: as in Flink, nothing comes of it
        dropped = -int(rows[rows < 0].sum())
        new, missing = self._folded(feed, slots, ids, keys, old)
        new[:, _ROWS] = np.maximum(rows, 0)
        new[:, _TOUCHED] = now_ms
        if not has.all():
            new[~has] = self._groups.words.fill
            self._purge(slots[~has])
        self._groups.put(slots, old, new)
        self._groups.set_alive(slots, has)
        if before is None:
            with _naming_rows(ids, had, has):
                results = self._results([], np.concatenate((_chosen(old, had), _chosen(new, has))))
            count = int(np.count_nonzero(had))
            before, after = [r.slice(0, count) for r in results], [r.slice(count) for r in results]
        else:
            with _naming_rows(ids, has):
                after = self._results(filtered(keys, has), _chosen(new, has))
        return GroupChanges(keys, had, before, has, after, dropped + missing)

    def _folded(
        self, feed: GroupFeed, slots: Integers, ids: Integers, keys: Sequence[pa.Array], old: Words
    ) -> tuple[Words, int]:
        """The words of the groups with the batch folded in, and how much was missing."""
        new = old.copy()
        fed_with_rows = 0
        for column, accumulator, place in zip(self._layout.columns, self._accumulators, self._places, strict=False):
            if column.source is None:
                new[:, place] = feed.fold(fed_with_rows, accumulator, old[:, place], ids)
                fed_with_rows += 1
        missing = 0
        appearances: list[list[Appearances]] = []
        for number, values in enumerate(self._sets):
            moved, less = values.apply(slots, feed.set_rows(number, ids))
            appearances.append(moved)
            missing += less
        for column, accumulator, place in zip(self._layout.columns, self._accumulators, self._places, strict=False):
            if column.source is not None:
                moves = appearances[column.source.set][column.source.counter]
                new[:, place] = self._followed(accumulator, moves, old[:, place], slots, column.source)
        for number, listed in enumerate(self._layout.lists):
            missing += self._list(number, self._list_rows(listed, feed, ids, appearances), keys, new)
        for number, user in enumerate(self._layout.users):
            self._user(number, self._list_rows(user.feed, feed, ids, appearances), new)
        return new, missing

    def _followed(
        self, accumulator: Accumulator, moves: Appearances, words: Words, slots: Integers, source: SetCounter
    ) -> Words:
        """The words of an accumulator that is fed with the values of a set."""
        joined, left = moves.parts()
        total = len(words)
        if joined is not None:
            words = accumulator.add(words, accumulator.lift(joined.reader(), joined.ids, total))
        if left is None:
            return words
        if not isinstance(accumulator, KeptValue):
            return accumulator.subtract(words, accumulator.lift(left.reader(), left.ids, total))
        # only groups whose extreme has vanished are looked up again
        lost = np.unique(left.ids[columns_equal(accumulator.result(words[left.ids]), left.values)])
        if len(lost):
            owners, values = self._sets[source.set].of_groups(slots[lost], source.counter)
            words = words.copy()
            words[lost] = accumulator.words_of(accumulator.reduce(values, owners, len(lost))[0])
        return words

    def _list(self, number: int, rows: ListRows, keys: Sequence[pa.Array], new: Words) -> int:
        """Let values join and leave a list; gives how many should have left that were not there."""
        table = self._lists[number]
        groups, numbers, missing = table.apply(_taken(keys, rows.ids), rows)
        for at, end in enumerate(self._layout.ends, self._ends_at):
            if end.list != number:
                continue
            pointer = new[:, at]
            if end.last:
                pointer[groups] = numbers  # of several assignments to one place the last one stays
            else:
                empty = pointer[groups] == NOWHERE
                pointer[groups[empty][::-1]] = numbers[empty][::-1]
            stale = np.flatnonzero((pointer != NOWHERE) & ~table.is_live(pointer))
            if len(stale):
                pointer[stale] = table.end(_taken(keys, stale), len(stale), last=end.last)
        return missing

    @staticmethod
    def _list_rows(
        values: ValueList, feed: GroupFeed, ids: Integers, appearances: Sequence[Sequence[Appearances]]
    ) -> ListRows:
        if values.source is None:
            return feed.list_rows(values, ids)
        moves = appearances[values.source.set][values.source.counter]
        if values.keeps_nulls or not moves.values.null_count:
            return ListRows(moves.ids, moves.values, moves.joins)
        known = moves.values.is_valid()
        mask = known.to_numpy(zero_copy_only=False)
        return ListRows(moves.ids[mask], moves.values.filter(known), None if moves.joins is None else moves.joins[mask])

    def _user(self, number: int, rows: ListRows, new: Words) -> None:
        """Fold rows into the accumulators of a user's aggregate."""
        if not len(rows.ids):
            return
        at = len(self._layout.columns) + number
        kept, place = self._accumulators[at], self._places[at]
        touched = np.unique(rows.ids)
        words = new[touched, place]
        before = kept.result(words).to_pylist()
        folded = self._foldings[number].folded(before, np.searchsorted(touched, rows.ids), rows.values, rows.joins)
        new[touched, place] = kept.add(words, [pa.array(folded, pa.binary())])

    # ---- results

    def _results(self, keys: Sequence[pa.Array], words: Words) -> list[pa.Array]:
        """The aggregates of some groups. Their keys are looked at only if there are lists."""
        return [self._result(use, keys, words) for use in self._layout.uses]

    def _result(self, use: GroupUse, keys: Sequence[pa.Array], words: Words) -> pa.Array:
        kernel = use.aggregate.kernel
        if use.user is not None:
            at = len(self._layout.columns) + use.user
            return self._foldings[use.user].results(
                self._accumulators[at].result(words[:, self._places[at]]).to_pylist()
            )
        if use.list is not None:
            assert kernel.collect is not None
            return kernel.collect(self._lists[use.list].lists(keys, len(words)), kernel.result)
        assert kernel.finish is not None
        if use.end is not None:
            columns = [self._end_values(use.end, words[:, self._ends_at + use.end])]
        else:
            columns = [self._accumulators[c].result(words[:, self._places[c]]) for c in use.columns]
        return kernel.finish(columns, kernel.result)

    def _end_values(self, end: int, pointer: Integers) -> pa.Array:
        """The values that pointers point to; NULL for none."""
        known = pointer != NOWHERE
        values = self._lists[self._layout.ends[end].list].values(pointer[known])
        if known.all():
            return values
        return values.take(pa.array(np.cumsum(known) - 1, mask=~known))

    # ---- forgetting

    def forget(self, slots: Integers) -> None:
        """Forget some groups, as if they had never been."""
        old = self._groups.words.get(slots)
        self._groups.put(slots, old, np.broadcast_to(self._groups.words.fill, old.shape))
        self._groups.set_alive(slots, np.zeros(len(slots), np.bool_))
        self._purge(slots)

    def forget_expired(self, now_ms: int) -> None:
        """Forget the groups whose time to live is over."""
        alive = self._groups.alive()
        touched = self._groups.words.values[alive, _TOUCHED]
        expired = alive[touched + self._ttl_ms <= now_ms]
        if len(expired):
            self.forget(expired)
            self.expired += len(expired)

    def _purge(self, slots: Integers) -> None:
        for values in self._sets:
            values.purge(slots)
        if self._lists:
            keys = self.keys_of(slots)
            for values_list in self._lists:
                values_list.purge(keys, len(slots))

    def compact(self) -> None:
        """Let go of what nobody needs any more where it is most of what is stored. Between batches."""
        group_keys = self._groups.keys.view()
        moved = None
        if self._groups.is_wasteful:
            self._groups.settle(self._group_rows())
            moved = self._groups.forget_dead()
        for values in self._sets:
            if moved is not None or values.is_wasteful:
                values.compact(group_keys, moved)
        words, count = self._groups.words, len(self._groups)
        for accumulator, place in zip(self._accumulators, self._places, strict=True):
            if isinstance(accumulator, LoggedValue) and accumulator.is_wasteful(self._groups.live):
                words.own()[:count, place.start] = accumulator.compacted(words.values[:count, place.start])
        for number, table in enumerate(self._lists):
            renumbered = table.compact()
            for at, end in enumerate(self._layout.ends, self._ends_at):
                if renumbered is not None and end.list == number:
                    pointer = words.values[:count, at]
                    words.own()[:count, at] = np.where(pointer == NOWHERE, NOWHERE, renumbered[pointer])

    # ---- snapshots

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """The state tables: what changed since the last snapshot becomes a segment of each."""
        group_keys = self._groups.keys.view()
        tables = {GROUPS: self._groups.snapshot(self._group_rows())}
        for values, described in zip(self._sets, self._layout.sets, strict=True):
            tables[described.name] = values.snapshot(group_keys)
        for values_list, listed in zip(self._lists, self._layout.lists, strict=True):
            tables[listed.name] = values_list.snapshot()
        return tables

    def _group_rows(self) -> RowsOf:
        kept = tuple(a.captured() for a in self._accumulators)
        return partial(_state_rows, kept, tuple(self._places), self._max_parallelism, self._ttl_ms > 0)

    def restore(self, snapshot: OperatorSnapshot, now_ms: int) -> None:
        """Take back state tables. Groups from a time without a time to live begin theirs now."""
        for batch in self._batches(snapshot, GROUPS):
            self._restore_groups(batch, now_ms)
        for values, described in zip(self._sets, self._layout.sets, strict=True):
            for batch in self._batches(snapshot, described.name):
                located = self._groups.locate(self._keys_in(batch), batch.num_rows)
                values.restore(located.of_rows, batch)
        for values_list, listed in zip(self._lists, self._layout.lists, strict=True):
            table = snapshot.keyed.get(listed.name)
            if table is not None:
                values_list.restore(table)
        alive = self._groups.alive()
        for at, end in enumerate(self._layout.ends, self._ends_at):
            pointer = np.full(len(self._groups), NOWHERE, np.int64)
            pointer[alive] = self._lists[end.list].end(self.keys_of(alive), len(alive), last=end.last)
            self._groups.words.own()[: len(pointer), at] = pointer

    def _restore_groups(self, batch: pa.RecordBatch, now_ms: int) -> None:
        slots = self._groups.locate(self._keys_in(batch), batch.num_rows).slots
        old = self._groups.words.get(slots)
        new = old.copy()
        new[:, _ROWS] = batch.column(ROWS).to_numpy()
        new[:, _TOUCHED] = pc.fill_null(batch.column(TOUCHED), now_ms).to_numpy()
        for accumulator, place in zip(self._accumulators, self._places, strict=True):
            new[:, place] = accumulator.add(old[:, place], [batch.column(f.name) for f in accumulator.fields])
        self._groups.put(slots, old, new)
        self._groups.set_alive(slots, np.ones(len(slots), np.bool_))

    def _keys_in(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return list(batch.columns[1 : 1 + len(self._layout.keys)])

    def _batches(self, snapshot: OperatorSnapshot, name: str) -> list[pa.RecordBatch]:
        table = snapshot.keyed.get(name)
        if table is None or not table.num_rows:
            return []
        ordered = table.select(self._schemas[name].names)
        return [_whole(part) for part in _parts(ordered)]


@contextmanager
def _naming_rows(ids: Integers, *masks: Bools) -> Iterator[None]:
    """Have an error that names a result name the last row of its group. Results are those of the groups of each mask, in turn."""
    try:
        yield
    except DataError as error:
        if error.row is not None:
            group = np.concatenate([np.flatnonzero(mask) for mask in masks])[error.row]
            error.row = int(np.flatnonzero(ids == group)[-1])
        raise


def _chosen(words: Words, mask: Bools) -> Words:
    return words if mask.all() else words[mask]


def filtered(columns: Sequence[pa.Array], chosen: Bools) -> list[pa.Array]:
    """The chosen rows of some columns."""
    return list(columns) if chosen.all() else [c.filter(pa.array(chosen)) for c in columns]


def _taken(keys: Sequence[pa.Array], positions: Integers) -> list[pa.Array]:
    places = pa.array(positions)
    return [k.take(places) for k in keys]


def _parts(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, _RESTORED_ROWS) for start in range(0, table.num_rows, _RESTORED_ROWS)]


def _whole(table: pa.Table) -> pa.RecordBatch:
    batches = table.to_batches()
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _state_rows(
    accumulators: Sequence[Accumulator],
    places: Sequence[slice],
    max_parallelism: int,
    timed: bool,
    keys: KeyList,
    slots: Integers,
    words: Words,
) -> list[pa.Array]:
    """The rows of the table of groups, without the mark of deleted ones."""
    columns = keys.keys_of(slots)
    numbers = key_groups_or_zero(columns, len(slots), max_parallelism)
    touched = pa.array(np.ascontiguousarray(words[:, _TOUCHED])) if timed else pa.nulls(len(slots), pa.int64())
    partials = [p for a, place in zip(accumulators, places, strict=True) for p in a.partials(words[:, place])]
    return [pa.array(numbers), *columns, pa.array(np.ascontiguousarray(words[:, _ROWS])), touched, *partials]
