"""The join of two changing tables, kept up to date: Apache Flink's regular join, over batches of changes.

Both sides remember their rows. What a batch amounts to (`regular_fold`) is joined with what the other side remembers: a row that is
added gives its pairs, a row that is taken away takes back those that it gave. Where rows without match come out (outer, semi and anti
joins) the number of matches of each row is kept, never a mere flag, and a change is sent when it leaves or reaches 0 over the whole
batch. Nothing is taken back that was not sent. Changes come out in an order that keeps every prefix of them valid, for readers by any
key of the result as well: rows padded with NULLs go first when they give way, and come last when they take a place.

An update that leaves a row's key as it is gives −U/+U pairs, one for each match; all other changes are +I and −D. With a time to
live, which each side has for itself, a row is forgotten so long after it, or its number of matches, was written; what was sent for it
stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.semantics import JoinKind
from flowrun.operators.base import AbstractOperator
from flowrun.operators.joins.condition import PairCondition, pair_chunks
from flowrun.operators.joins.factories import LEFT, RIGHT, TABLES, RegularJoinFactory
from flowrun.operators.joins.outer import padded_left, padded_right
from flowrun.operators.joins.regular_pairs import JoinedPairs, MatchCounts, Matching, count_matches, pair_schema
from flowrun.operators.joins.regular_side import RegularSide, SideChanges
from flowrun.operators.joins.unmatched import unmatched_counters
from flowrun.operators.keyed.hash_lists import SortedTags
from flowrun.operators.keyed.key_rows import NUM_RECORDS_EXPIRED, NUM_STATE_ROWS
from flowrun.operators.timed.event_rows import NULL_KEY_RECORDS_DROPPED


@dataclass(slots=True)
class _Moves:
    """Rows that come or go because they lost their last match, or found the first one, in order of their coming."""

    gone: list[pa.RecordBatch] = field(default_factory=list)
    come: list[pa.RecordBatch] = field(default_factory=list)


class RegularJoinOperator(AbstractOperator):
    """Joins by key; see the module."""

    inputs = 2

    def __init__(self, factory: RegularJoinFactory) -> None:
        self._factory = factory
        self._kind = factory.kind
        self._condition = PairCondition(factory.condition, factory.name, factory.errors)
        self._schema = factory.output_schema.arrow
        self._pair_schema = pair_schema(factory.schemas) if factory.kind.left_only else self._schema
        self._now = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        metrics = context.metrics
        null_keys = metrics.counter(NULL_KEY_RECORDS_DROPPED)
        self._sides = tuple(RegularSide(spec, context.max_parallelism, null_keys) for spec in self._factory.sides)
        self._unmatched = unmatched_counters(metrics, on_arrival=True)
        metrics.gauge(NUM_RECORDS_EXPIRED, lambda: sum(side.expired for side in self._sides))
        metrics.gauge(NUM_STATE_ROWS, lambda: sum(len(side) for side in self._sides))

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back both sides' rows."""
        if restored is not None:
            for side, name in zip(self._sides, TABLES, strict=True):
                side.restore(restored.keyed.get(name))

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """What changed of both sides."""
        tables = {name: side.snapshot() for side, name in zip(self._sides, TABLES, strict=True)}
        return OperatorSnapshot(segmented=tables)

    def open(self) -> None:
        """Compile the condition."""
        self._condition.open(self.context, self.output)

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Join what the rows amount to with what the other side remembers, then remember it."""
        own, other = self._sides[input_index], self._sides[1 - input_index]
        if any(self._factory.ttl_ms):
            self._now = max(self._now, self.context.processing_time.now_ms())
            own.expire(self._now)
            other.expire(self._now)
        changes = own.changes(batch, self._now)
        if len(changes):
            tags = own.tags(changes)
            counts = self._join(changes, tags, own, other, input_index)
            own.apply(changes, tags, counts.own, self._now)
            if counts.numbers is not None and counts.more is not None:
                other.add_matches(counts.numbers, counts.more, self._now)
        own.compact()
        other.compact()

    def _join(
        self, changes: SideChanges, tags: SortedTags, own: RegularSide, other: RegularSide, index: int
    ) -> MatchCounts:
        """Send what changes; gives how the numbers of matches change."""
        kind = self._kind
        matching = Matching(
            changes,
            tags,
            own,
            other,
            self._condition,
            self._pair_schema,
            swapped=index == RIGHT,
            # of rows that go away nobody needs the pairs if only their own number of matches counts
            added_only=kind.left_only and index == LEFT,
            makes_rows=not (kind.left_only and self._condition.is_trivial),
        )
        counts = count_matches(matching) if own.spec.counts or other.spec.counts else MatchCounts()
        if counts.own is not None:
            self._count_unmatched(changes, counts.own > 0, index)
        if kind.left_only:
            if index == LEFT:
                self._emit_own(changes, self._shown(changes, own, counts), index)
            else:
                self._emit_moves(self._moves(other, counts, kind is JoinKind.ANTI))
            return counts
        moves = self._moves(other, counts, True) if kind.keeps[1 - index] else None
        alone = self._alone(changes, own, counts) if kind.keeps[index] else None
        if moves is not None:
            self._emit_padded(moves.gone, RowKind.DELETE, 1 - index)
        if alone is not None:
            self._emit_own(changes, alone & ~changes.added & ~_followed(changes, alone), index)
        found = np.zeros(len(changes), np.bool_) if counts.own is None else None
        for pairs in matching:
            if found is not None:
                found[pairs.probe] = True
            self._emit_pairs(pairs)
        if found is not None:
            self._count_unmatched(changes, found, index)
        if alone is not None:
            self._emit_own(changes, alone & (changes.added | _followed(changes, alone)), index)
        if moves is not None:
            self._emit_padded(moves.come, RowKind.INSERT, 1 - index)
        return counts

    # ---- rows without match

    def _count_unmatched(self, changes: SideChanges, found: Bools, index: int) -> None:
        """Count the rows that came and for which no pair was found."""
        alone = ~found if changes.adds is None else changes.adds & ~found
        self._unmatched[index].inc(int(np.count_nonzero(alone)))

    def _alone(self, changes: SideChanges, own: RegularSide, counts: MatchCounts) -> Bools:
        """For each changed row whether it has (if it goes away: had) no match."""
        assert counts.own is not None
        matches = counts.own
        if changes.adds is not None:
            assert changes.numbers is not None
            matches = matches.copy()
            gone = ~changes.adds
            matches[gone] = own.matches(changes.numbers[gone])
        alone: Bools = matches == 0
        return alone

    def _shown(self, changes: SideChanges, own: RegularSide, counts: MatchCounts) -> Bools:
        """For each changed left row of a semi or anti join whether it is (or was) in the result."""
        alone = self._alone(changes, own, counts)
        return alone if self._kind is JoinKind.ANTI else ~alone

    def _moves(self, other: RegularSide, counts: MatchCounts, shown_alone: bool) -> _Moves:
        """Rows of the other side that come or go; `shown_alone`: rows are in the result while they have no match, else while they do."""
        moves = _Moves()
        if counts.numbers is None or counts.more is None:
            return moves
        before = other.matches(counts.numbers)
        after = before + counts.more
        matched = counts.numbers[(before == 0) & (after > 0)]
        lonely = counts.numbers[(before > 0) & (after == 0)]
        gone, come = (matched, lonely) if shown_alone else (lonely, matched)
        moves.gone = [other.store.take(gone[part]) for part in pair_chunks(len(gone))]
        moves.come = [other.store.take(come[part]) for part in pair_chunks(len(come))]
        return moves

    def _emit_moves(self, moves: _Moves) -> None:
        """Left rows of a semi or anti join that come or go."""
        for rows in moves.gone:
            self.output.emit(RecordBatch(self._named(rows), row_kinds=_all(RowKind.DELETE, rows.num_rows)))
        for rows in moves.come:
            self.output.emit(RecordBatch(self._named(rows)))

    def _emit_padded(self, batches: list[pa.RecordBatch], kind: RowKind, index: int) -> None:
        for rows in batches:
            kinds = None if kind is RowKind.INSERT else _all(kind, rows.num_rows)
            self.output.emit(RecordBatch(self._padded(rows, index), row_kinds=kinds))

    def _emit_own(self, changes: SideChanges, chosen: Bools, index: int) -> None:
        """Changed rows that are in the result by themselves: padded, or those of a semi or anti join."""
        positions = np.flatnonzero(chosen)
        if not len(positions):
            return
        rows = changes.rows if len(positions) == len(changes) else changes.rows.take(pa.array(positions))
        kinds = None
        if changes.adds is not None:
            assert changes.follows is not None
            follows = changes.follows[positions] & np.append(False, np.diff(positions) == 1)
            kinds = row_kinds(changes.adds[positions], follows)
        rows = self._named(rows) if self._kind.left_only else self._padded(rows, index)
        self.output.emit(RecordBatch(rows, row_kinds=kinds))

    def _named(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._schema)

    def _padded(self, rows: pa.RecordBatch, index: int) -> pa.RecordBatch:
        return padded_right(rows, self._schema) if index == LEFT else padded_left(rows, self._schema)

    # ---- pairs

    def _emit_pairs(self, pairs: JoinedPairs) -> None:
        assert pairs.rows is not None
        kinds = None if pairs.adds is None else row_kinds(pairs.adds, pairs.follows)
        self.output.emit(RecordBatch(pairs.rows, row_kinds=kinds))


def _followed(changes: SideChanges, chosen: Bools) -> Bools:
    """For each changed row whether the next one is its new form, and both are chosen."""
    followed = np.zeros(len(changes), np.bool_)
    if changes.follows is not None:
        followed[:-1] = changes.follows[1:] & chosen[1:] & chosen[:-1]
    return followed


def row_kinds(adds: Bools, follows: Bools | None) -> pa.Array | None:
    """Kinds of changes: +I and −D, but −U and +U for a row and the new form that `follows` it. None: all are +I.

    >>> [RowKind(k).symbol for k in row_kinds(np.array([False, True, True]), np.array([False, True, False])).to_pylist()]
    ['-U', '+U', '+I']
    """
    if adds.all():
        return None
    kinds = np.where(adds, np.int8(RowKind.INSERT), np.int8(RowKind.DELETE))
    if follows is not None and follows.any():
        kinds[follows] = RowKind.UPDATE_AFTER
        kinds[:-1][follows[1:]] = RowKind.UPDATE_BEFORE
    return pa.array(kinds)


def _all(kind: RowKind, rows: int) -> pa.Array:
    return pa.array(np.full(rows, int(kind), np.int8))
