"""What one side of a regular join remembers: its rows, how many matches each has, and when each was written last."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyarrow as pa

from flowrun.api.metrics import Counter
from flowrun.api.state import SegmentedTable
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.joins.regular_fold import cancelled, fold
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.hash_lists import SortedTags
from flowrun.operators.keyed.row_store import ROW_COLUMN, RowStore, row_store_schema
from flowrun.operators.updating.changes import added, only_adds
from flowrun.state.key_groups import hashable_columns

MATCHES_COLUMN = "__matches"
"""State column: how many rows of the other side match the row."""

WRITTEN_COLUMN = "__written"
"""State column, with a time to live: when the row or its number of matches was written last, ms since the epoch."""


@record
class SideSpec:
    """One side of a regular join.

    Attributes:
        schema: of the input.
        keys: positions of its key columns.
        null_safe: for each key whether NULL equals NULL.
        counts: matches of its rows are counted.
        keeps: rows without match come out: padded with NULLs or, in an anti join, alone.
        ttl_ms: rows are forgotten so long after they were written; 0: never.
    """

    schema: Schema
    keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    counts: bool
    keeps: bool
    ttl_ms: int

    @property
    def counters(self) -> tuple[str, ...]:
        """Names of the counters of its rows."""
        return (MATCHES_COLUMN,) * self.counts + (WRITTEN_COLUMN,) * (self.ttl_ms > 0)

    @property
    def state_schema(self) -> pa.Schema:
        """Columns of its state table."""
        return row_store_schema(self.schema, self.keys, self.counters)

    def meanings(self, side: str, other: str) -> dict[str, str]:
        """What the columns of the state table hold that the input does not have; sides by their names."""
        every = {
            MATCHES_COLUMN: f"how many rows of the {other} side match",
            WRITTEN_COLUMN: "when the row or its number of matches was written last, ms since the epoch",
        }
        return {ROW_COLUMN: f"arrival number of a row of the {side} side", **{c: every[c] for c in self.counters}}


@record
class SideChanges:
    """What a batch changes on its side, in order.

    Attributes:
        rows: that are taken away (as they were remembered) or added.
        adds: for each whether it is added; None: all are.
        numbers: of rows that are taken away; −1 for added ones.
        follows: for each whether it is the new form of the row before it, which it replaces; None: none is.
        matchable: for each whether its key can equal another; None: all can.
    """

    rows: pa.RecordBatch
    adds: Bools | None = None
    numbers: Integers | None = None
    follows: Bools | None = None
    matchable: Bools | None = None

    def __len__(self) -> int:
        rows: int = self.rows.num_rows
        return rows

    @property
    def added(self) -> Bools:
        """For each row whether it is added."""
        return np.ones(len(self), np.bool_) if self.adds is None else self.adds


class RegularSide:
    """The rows of one input. Not thread-safe.

    Args:
        spec: of the side.
        max_parallelism: number of key groups.
        null_keys: counts rows that came and are not needed, as their keys are NULL.
    """

    def __init__(self, spec: SideSpec, max_parallelism: int, null_keys: Counter) -> None:
        self.spec = spec
        self._null_keys = null_keys
        self._store = RowStore(
            spec.schema,
            spec.keys,
            max_parallelism,
            counters=spec.counters,
            null_safe=spec.null_safe,
        )
        self._hashed = hashable_columns(spec.schema.arrow)
        self._writes: deque[tuple[int, Integers]] = deque()  # (when, ms; numbers), in order of time
        self.expired = 0
        """How many rows were forgotten because their time to live was over."""

    def __len__(self) -> int:
        return len(self._store)

    @property
    def store(self) -> RowStore:
        """Its rows."""
        return self._store

    def matches(self, numbers: Integers) -> Integers:
        """How many matches some rows have."""
        found: Integers = self._store.counter(MATCHES_COLUMN)[numbers]
        return found

    # ---- what a batch changes

    def changes(self, batch: RecordBatch, now: int) -> SideChanges:
        """What a batch amounts to: removals of rows that are not remembered, and what cancels out, are left away."""
        if only_adds(batch):
            changes = SideChanges(batch.columns)
        else:
            changes = self._folded(batch, now)
        matchable = self._matchable(changes.rows)
        if matchable is None or self.spec.keeps:
            return SideChanges(changes.rows, changes.adds, changes.numbers, changes.follows, matchable)
        # A row that cannot match and does not come out without a match is never needed; it was not remembered before either.
        self._null_keys.inc(len(matchable) - int(np.count_nonzero(matchable)))
        return _some(changes, matchable)

    def _folded(self, batch: RecordBatch, now: int) -> SideChanges:
        folded = fold(batch.columns, added(batch), self._hashed)
        removed = folded.removed
        numbers = self._store.find_equal(batch.columns.take(pa.array(removed)))
        there = numbers >= 0
        removed, numbers, additions = removed[there], numbers[there], folded.added
        gone, again = cancelled(folded.groups[removed], folded.groups[additions])
        if gone.any():
            self._write(numbers[gone], now)
            removed, numbers, additions = removed[~gone], numbers[~gone], additions[~again]
        positions = np.concatenate([removed, additions])
        order = np.argsort(positions)
        positions = positions[order]
        adds = np.ones(len(positions), np.bool_)
        adds[: len(removed)] = False
        every = np.full(len(positions), -1, np.int64)
        every[: len(removed)] = numbers
        rows = pa.concat_batches([self._store.take(numbers), batch.columns.take(pa.array(additions))])
        return SideChanges(
            rows.take(pa.array(order)), adds[order], every[order], _follows(batch, positions) & adds[order]
        )

    def _matchable(self, rows: pa.RecordBatch) -> Bools | None:
        """For each row whether no key is NULL that must not be; None: so it is for all."""
        found: Bools | None = None
        for position, null_safe in zip(self.spec.keys, self.spec.null_safe, strict=True):
            key = rows.column(position)
            if key.null_count and not null_safe:
                valid = key.is_valid().to_numpy(zero_copy_only=False)
                found = valid if found is None else found & valid
        return found

    def same_keys(self, changes: SideChanges) -> Bools:
        """For each changed row whether it has the key of the row before it."""
        same = np.zeros(len(changes), np.bool_)
        if len(changes) > 1:
            keys = [changes.rows.column(k) for k in self.spec.keys]
            same[1:] = rows_equal([k[:-1] for k in keys], [k[1:] for k in keys], len(changes) - 1)
        return same

    def tags(self, changes: SideChanges) -> SortedTags:
        """What the changed rows are found by, on both sides."""
        return SortedTags.of_columns([changes.rows.column(k) for k in self.spec.keys], len(changes))

    def apply(self, changes: SideChanges, tags: SortedTags, matches: Integers | None, now: int) -> None:
        """Remember what was added, with the number of `matches` of each changed row, and forget what was taken away."""
        rows = changes.rows
        if changes.adds is not None:
            assert changes.numbers is not None
            self._store.remove(changes.numbers[~changes.adds])
            if not changes.adds.all():
                rows, tags = rows.filter(pa.array(changes.adds)), tags.where(changes.adds)
                matches = None if matches is None else matches[changes.adds]
        counters: dict[str, Integers | int] = {}
        if self.spec.counts:
            assert matches is not None
            counters[MATCHES_COLUMN] = matches
        if self.spec.ttl_ms:
            counters[WRITTEN_COLUMN] = now
        numbers = self._store.append_tagged(rows, tags, counters)
        if self.spec.ttl_ms and len(numbers):
            self._writes.append((now, numbers))

    def add_matches(self, numbers: Integers, more: Integers, now: int) -> None:
        """Change the number of matches of some (distinct) rows."""
        changed = more != 0
        numbers = numbers[changed]
        self._store.put(MATCHES_COLUMN, numbers, self.matches(numbers) + more[changed])
        self._write(numbers, now)

    # ---- time to live

    def _write(self, numbers: Integers, now: int) -> None:
        if self.spec.ttl_ms and len(numbers):
            self._store.put(WRITTEN_COLUMN, numbers, now)
            self._writes.append((now, numbers))

    def expire(self, now: int) -> None:
        """Forget the rows whose time to live is over at `now`, ms."""
        bound = now - self.spec.ttl_ms
        due = []
        while self._writes and self._writes[0][0] <= bound:
            due.append(self._writes.popleft()[1])
        if not due:
            return
        numbers = np.unique(np.concatenate(due))
        numbers = numbers[self._store.is_live(numbers)]
        expired = numbers[self._store.counter(WRITTEN_COLUMN)[numbers] <= bound]
        self._store.remove(expired)
        self.expired += len(expired)

    def compact(self) -> None:
        """Let go of what was forgotten, if it is much; numbers change."""
        moved = self._store.compact()
        if moved is not None:
            renumbered = ((when, moved[numbers]) for when, numbers in self._writes)
            self._writes = deque((when, kept) for when, n in renumbered if len(kept := n[n >= 0]))

    # ---- state

    def snapshot(self) -> SegmentedTable:
        """The state table."""
        return self._store.snapshot_table()

    def restore(self, table: pa.Table | None) -> None:
        """Take back the rows of a state table."""
        if table is None or not table.num_rows:
            return
        numbers = self._store.restore(table)
        if self.spec.ttl_ms:
            written = self._store.counter(WRITTEN_COLUMN)[numbers]
            order = np.argsort(written, kind="stable")
            for part in np.split(order, np.flatnonzero(np.diff(written[order])) + 1):
                self._writes.append((int(written[part[0]]), numbers[part]))


def _follows(batch: RecordBatch, positions: Integers) -> Bools:
    """For each of the rows of a batch at some positions whether it is +U and the row before it in the batch is there, too, and −U."""
    assert batch.row_kinds is not None
    kinds = batch.row_kinds.to_numpy()[positions]
    follows = np.zeros(len(positions), np.bool_)
    before, after = kinds[:-1] == RowKind.UPDATE_BEFORE, kinds[1:] == RowKind.UPDATE_AFTER
    follows[1:] = before & after & (np.diff(positions) == 1)
    return follows


def _some(changes: SideChanges, chosen: Bools) -> SideChanges:
    """Some of the changes."""
    if changes.adds is None:
        return SideChanges(changes.rows.filter(pa.array(chosen)))
    assert changes.numbers is not None
    assert changes.follows is not None
    follows = changes.follows.copy()
    follows[1:] &= chosen[:-1]
    return SideChanges(
        changes.rows.filter(pa.array(chosen)), changes.adds[chosen], changes.numbers[chosen], follows[chosen]
    )
