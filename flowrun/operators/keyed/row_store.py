"""Rows that a keyed operator remembers: appended, found by key or by equality, counted, removed, and snapshotted by their changes.

The state of joins, ranking, OVER and pattern matching. A row is known by its number until `compact`. Finding the rows of a batch's keys
costs in proportion to the batch and to what it finds, whatever the store holds (see `hash_lists`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, SegmentedTable, keyed_schema
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.hash_lists import HashLists, Pairs, SortedTags
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.keyed.state_columns import CapturedEntries, StateColumn
from flowrun.state.backend.upsert_log import UpsertLog
from flowrun.state.key_groups import hashable_columns, key_groups_or_zero

ROW_COLUMN = "__row"
"""Name of the BIGINT state column that tells rows of one key apart and orders them by arrival."""

_SPARE = 64 * 1024
_INDEXED_AT_A_TIME = 1024 * 1024
_ROWS_AT_ONCE = 128 * 1024


def row_store_schema(schema: Schema, keys: Sequence[int], counters: Sequence[str] = ()) -> pa.Schema:
    """Columns of a store's state table: key group, key columns, `ROW_COLUMN`, the other columns, counters (BIGINT)."""
    fields = [f.with_name(n) for f, n in zip(schema.arrow, state_names(schema.names, counters), strict=True)]
    others = [f for i, f in enumerate(fields) if i not in keys]
    numbers = [pa.field(ROW_COLUMN, pa.int64()), *others, *(pa.field(c, pa.int64()) for c in counters)]
    return keyed_schema([fields[k] for k in stored_keys(keys)], numbers)


def stored_keys(keys: Sequence[int]) -> tuple[int, ...]:
    """The key columns that a state table has: a column that is used for several keys of a join is there once.

    >>> stored_keys((2, 0, 2))
    (2, 0)
    """
    return tuple(dict.fromkeys(keys))


def state_names(names: Sequence[str], counters: Sequence[str] = ()) -> list[str]:
    """What columns are called in the state table: by their names, but for those that the table itself uses.

    >>> state_names(["id", "__row", "__row_"], ["__matches"])
    ['id', '__row__', '__row_']
    """
    taken = {KEY_GROUP_COLUMN, DELETED_COLUMN, ROW_COLUMN, *counters}
    given = set(names)
    free = []
    for name in names:
        called = name
        while called in taken or (called != name and called in given):
            called += "_"
        free.append(called)
    return free


@record
class Found:
    """Pairs of probing and remembered rows, and the remembered row of each unless that was not asked for, or they are many."""

    pairs: Pairs
    rows: pa.RecordBatch | None = None


class RowStore:
    """Rows of one schema by key. Not thread-safe; snapshots are written by other threads from what does not change.

    Args:
        schema: of the rows.
        keys: positions of the key columns; none: all rows have one key. Keys must be of types that can be hashed. A column may come
            more than once: `a.x = b.y AND a.x = b.z`.
        max_parallelism: number of key groups.
        counters: names of mutable BIGINT columns of each row, e.g. a number of matches or a time.
        null_safe: for each key, whether `find` lets NULL equal NULL; None: for none.
        by_row: rows will be found by equality (`find_equal`): have a second index for that at once, not from the first time on.
        by_key: rows can be found by their keys (`find`); else the caller has an index of its own.
    """

    def __init__(
        self,
        schema: Schema,
        keys: Sequence[int],
        max_parallelism: int,
        *,
        counters: Sequence[str] = (),
        null_safe: Sequence[bool] | None = None,
        by_row: bool = False,
        by_key: bool = True,
    ) -> None:
        self._schema = schema
        self._keys = tuple(keys)
        self._stored_keys = stored_keys(keys)
        self._null_safe = tuple(null_safe) if null_safe else (False,) * len(self._keys)
        self._max_parallelism = max_parallelism
        self._counters = tuple(counters)
        self._state_schema = row_store_schema(schema, keys, counters)
        self._log_schema = self._state_schema.append(pa.field(DELETED_COLUMN, pa.bool_()))
        self._hashed_columns = hashable_columns(schema.arrow)
        self._by_row: HashLists | None = HashLists() if by_row else None
        self._indexes_keys = by_key
        self._live = 0
        self._clear()
        self._changes = UpsertLog(
            self._log_schema, (*self._state_schema.names[1 : 1 + len(self._stored_keys)], ROW_COLUMN)
        )

    def _clear(self) -> None:
        self._rows = RowLog()
        self._count = 0
        self._by_key = HashLists()
        self._ids: Integers | None = None  # what each row is called in the state table; None: by its number
        self._alive = StateColumn(np.bool_(False))
        self._dirty: Bools = np.zeros(0, np.bool_)
        self._known = 0  # rows below this number were there when the last snapshot was taken
        self._values = {c: StateColumn(np.int64(0)) for c in self._counters}
        self._next_id = 0

    def __len__(self) -> int:
        """Number of rows that are remembered."""
        return self._live

    # ---- rows

    def append(self, rows: pa.RecordBatch, **counters: Integers | int) -> Integers:
        """Remember rows; gives their numbers, which are consecutive. Counters that are not given are 0."""
        tags = None
        if self._indexes_keys and rows.num_rows:
            tags = SortedTags.of_columns([rows.column(k) for k in self._keys], rows.num_rows)
        return self.append_tagged(rows, tags, counters)

    def append_tagged(
        self, rows: pa.RecordBatch, tags: SortedTags | None, counters: Mapping[str, Integers | int]
    ) -> Integers:
        """Remember rows as `append` does, by tags over their keys that are known; None: they are not found by keys."""
        added = rows.num_rows
        numbers = np.arange(self._count, self._count + added)
        if not added:
            return numbers
        self._rows.append(rows)
        self._count += added
        self._make_room()
        if self._ids is not None:
            self._ids[numbers] = np.arange(self._next_id, self._next_id + added)
        self._next_id += added
        start = self._count - added
        self._alive.begin(start, self._count, True)
        self._dirty[start : self._count] = True
        for name, values in counters.items():
            self._values[name].begin(start, self._count, values)
        self._live += added
        if tags is not None:
            self._by_key.add(tags, numbers, self._forgetting)
        if self._by_row is not None:
            whole = SortedTags.of_columns([rows.column(i) for i in self._hashed_columns], added)
            self._by_row.add(whole, numbers, self._forgetting)
        return numbers

    def find(self, keys: Sequence[pa.Array], rows: int) -> Pairs:
        """The remembered rows of the same key as each of `rows` probing rows, oldest first. `keys` are their key columns."""
        return self._verified(self._by_key.find(SortedTags.of_columns(keys, rows)), keys, False).pairs

    def find_in_parts(
        self,
        keys: Sequence[pa.Array],
        tags: SortedTags,
        most: int,
        *,
        together: Bools | None = None,
        with_rows: bool = False,
    ) -> Iterator[Found]:
        """What `find` gives, for some probing rows at a time; the store must not change meanwhile.

        Args:
            keys: key columns of the probing rows.
            tags: over these columns.
            most: about as many pairs are made at a time, unless one row alone finds more.
            together: for each probing row whether it must be in one part with the row before it.
            with_rows: give the rows, too, where they are few.
        """
        starts, lengths = self._by_key.located(tags)
        ends = np.cumsum(lengths)
        start = 0
        while start < len(tags):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            while together is not None and stop < len(tags) and together[stop]:
                stop += 1
            if int(ends[stop - 1]) > before:
                pairs = self._by_key.listed(starts[start:stop], lengths[start:stop])
                pairs = Pairs(pairs.probe + start if start else pairs.probe, pairs.numbers)
                found = self._verified(pairs, keys, with_rows and len(pairs) <= _ROWS_AT_ONCE)
                if len(found.pairs):
                    yield found
            start = stop

    def _verified(self, pairs: Pairs, keys: Sequence[pa.Array], with_rows: bool) -> Found:
        """The pairs whose rows are remembered and whose keys are equal, not only their tags."""
        pairs = self._remembered(pairs)
        for key, null_safe in zip(keys, self._null_safe, strict=True):
            if key.null_count and not null_safe:
                pairs = pairs.where(key.is_valid().to_numpy(zero_copy_only=False)[pairs.probe])
        if not len(pairs):
            return Found(pairs)
        rows = self._rows.take(pairs.numbers) if with_rows else None
        stored = self._rows.take_columns(pairs.numbers, self._keys) if rows is None else rows.select(self._keys).columns
        probing = [k.take(pa.array(pairs.probe)) for k in keys]
        same = rows_equal(stored, probing, len(pairs))
        if not same.all():
            pairs = pairs.where(same)
            rows = None if rows is None else rows.filter(pa.array(same))
        return Found(pairs, rows)

    def _remembered(self, pairs: Pairs) -> Pairs:
        """The pairs whose rows are not forgotten."""
        return pairs if self._forgetting is None else pairs.where(self._alive.get(pairs.numbers))

    @property
    def _forgetting(self) -> Bools | None:
        """By number, which rows are remembered; None: all are."""
        return None if self._live == self._count else self._alive.values

    def find_equal(self, rows: pa.RecordBatch) -> Integers:
        """For each row the number of a remembered row that equals it, −1 if there is none (left); each is given once.

        Of equal remembered rows the oldest is given to the first. The first call reads the whole store unless it is `by_row`.
        """
        if self._by_row is None:
            self._by_row = self._indexed(self._hashed_columns)
        found = np.full(rows.num_rows, -1, np.int64)
        pairs = self._by_row.find(SortedTags.of_columns([rows.column(i) for i in self._hashed_columns], rows.num_rows))
        pairs = self._remembered(pairs)
        if not len(pairs):
            return found
        stored = self._rows.take(pairs.numbers).columns
        wanted = [column.take(pa.array(pairs.probe)) for column in rows.columns]
        pairs = pairs.where(rows_equal(stored, wanted, len(pairs)))
        return _each_once(pairs, found)

    def take(self, numbers: Integers) -> pa.RecordBatch:
        """The rows of these numbers, in that order."""
        if not self._count:
            return pa.RecordBatch.from_pylist([], self._schema.arrow)
        return self._rows.take(numbers)

    def take_columns(self, numbers: Integers, columns: Sequence[int]) -> list[pa.Array]:
        """Some columns of the rows of these numbers."""
        if not self._count:
            return [pa.array([], self._schema.types[c].arrow) for c in columns]
        return self._rows.take_columns(numbers, columns)

    def remove(self, numbers: Integers) -> None:
        """Forget rows; each must be remembered and be given once."""
        self._alive.put(numbers, False)
        self._dirty[numbers] = True
        self._live -= len(numbers)

    def live(self) -> Integers:
        """The numbers of all remembered rows, oldest first. Reads the whole store's marks: not for every batch."""
        return np.flatnonzero(self._alive.values[: self._count])

    def is_live(self, numbers: Integers) -> Bools:
        """Whether rows are still remembered."""
        return self._alive.get(numbers)

    def counter(self, name: str) -> Integers:
        """A counter by row number: a view to be read at once."""
        return self._values[name].values

    def put(self, name: str, numbers: Integers, values: Integers | int) -> None:
        """Change a counter of distinct rows."""
        self._values[name].put(numbers, values)
        self._dirty[numbers] = True

    def compact(self) -> Integers | None:
        """Let go of forgotten rows if they are most of what is stored; gives the new number of each old one (−1: forgotten), or None.

        Changes all numbers: call it only where the caller holds none, or moves them.
        """
        if self._count <= 2 * self._live + _SPARE:
            return None
        self._settle_dead()
        kept = self.live()
        moved = np.full(self._count, -1, np.int64)
        moved[kept] = np.arange(len(kept))
        self._rows.keep(kept)
        self._count = len(kept)
        self._ids = kept if self._ids is None else self._ids[kept]
        self._dirty = self._dirty[kept]
        for column in self._columns():
            column.keep(kept)
        if self._indexes_keys:
            self._by_key = self._indexed(self._keys)
        if self._by_row is not None:
            self._by_row = self._indexed(self._hashed_columns)
        return moved

    def _indexed(self, columns: Sequence[int]) -> HashLists:
        """An index of what is remembered by some columns."""
        index = HashLists()
        live = self.live()
        for start in range(0, len(live), _INDEXED_AT_A_TIME):
            numbers = live[start : start + _INDEXED_AT_A_TIME]
            index.add(SortedTags.of_columns(self._rows.take_columns(numbers, columns), len(numbers)), numbers)
        return index

    # ---- snapshots

    @property
    def state_schema(self) -> pa.Schema:
        """Columns of the state table."""
        return self._state_schema

    def snapshot_table(self) -> SegmentedTable:
        """The state table: what changed since the last call becomes a segment, whose rows are gathered when it is written."""
        chosen = self._dirty
        chosen[self._known : self._count] &= self._alive.values[
            self._known : self._count
        ]  # what came and went meanwhile
        self._capture(chosen[: self._count])
        self._dirty = np.zeros(len(self._alive), np.bool_)
        self._known = self._count
        return self._changes.table(self._live)

    def restore(self, table: pa.Table) -> Integers:
        """Take back rows of a state table, in any order, into an empty store; gives their numbers (0, 1, … in order of arrival)."""
        table = table.take(pa.array(np.argsort(table[ROW_COLUMN].to_numpy(), kind="stable"))).combine_chunks()
        columns = [table[name] for name in state_names(self._schema.names, self._counters)]
        rows = pa.Table.from_arrays(columns, schema=self._schema.arrow).to_batches()
        if not rows:
            return np.zeros(0, np.int64)
        counters = {c: table[c].to_numpy() for c in self._counters}
        return self.append(rows[0] if len(rows) == 1 else pa.concat_batches(rows), **counters)

    def _settle_dead(self) -> None:
        """Put tombstones of rows that were forgotten since the last snapshot into the log, before their numbers go."""
        dead = np.zeros(self._count, np.bool_)
        known = slice(0, self._known)
        np.logical_and(self._dirty[known], ~self._alive.values[known], out=dead[known])
        self._capture(dead)
        self._known = int(np.count_nonzero(self._alive.values[known]))

    def _capture(self, chosen: Bools) -> None:
        """A segment of the chosen rows: the live ones as they are now, tombstones for the others. `chosen` does not change any more."""
        captured = CapturedEntries(self._columns(), chosen)
        self._changes.append(captured.count, partial(self._segment, self._rows.view(), captured, self._ids))

    def _columns(self) -> list[StateColumn]:
        """What is known of rows and may change."""
        return [self._alive, *self._values.values()]

    def _segment(self, rows: RowLog, captured: CapturedEntries, ids: Integers | None) -> pa.Table:
        numbers, (alive, *values) = captured.read()
        taken = rows.take(numbers)
        groups = key_groups_or_zero([taken.column(k) for k in self._keys], len(numbers), self._max_parallelism)
        others = [c for i, c in enumerate(taken.columns) if i not in self._keys]
        columns = [
            pa.array(groups),
            *(taken.column(k) for k in self._stored_keys),
            pa.array(numbers if ids is None else ids[numbers]),
            *others,
            *map(pa.array, values),
            pa.array(~alive),
        ]
        return pa.Table.from_arrays(columns, schema=self._log_schema)

    def _make_room(self) -> None:
        size = self._count
        for column in self._columns():
            column.reserve(size)
        self._dirty = extended(self._dirty, size, 0)
        if self._ids is not None:
            self._ids = extended(self._ids, size, 0)


def _each_once(pairs: Pairs, found: Integers) -> Integers:
    """Deal equal remembered rows out to equal wanted ones: the n-th of the wanted gets the n-th of the remembered.

    Wanted rows that are equal found the same list, which begins with the same number: that tells which are equal.
    """
    if not len(pairs):
        return found
    starts = np.flatnonzero(np.append(True, pairs.probe[1:] != pairs.probe[:-1]))
    lengths = np.diff(np.append(starts, len(pairs)))
    leaders = pairs.numbers[starts]
    order = np.argsort(leaders, kind="stable")
    ordered = leaders[order]
    firsts = np.append(True, ordered[1:] != ordered[:-1])
    group_starts = np.flatnonzero(firsts)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(group_starts, np.diff(np.append(group_starts, len(order))))
    lucky = ranks < lengths
    found[pairs.probe[starts[lucky]]] = pairs.numbers[starts[lucky] + ranks[lucky]]
    return found
