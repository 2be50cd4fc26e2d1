"""Top-N: the rows of each partition whose rank is within bounds, kept up to date (Apache Flink's `Rank` and `SortLimit`).

Each partition has a *head*: its first rows in order, as a list of row numbers. A batch is compared with the heads of the partitions that
it touches: one sort of those heads and of the batch's rows gives old and new ranks of all of them, and their difference is sent.

* Over rows that only come, the head is all that is kept: a row beyond `last` can never come back. Most rows of a long stream are
  dropped at once, because their code (see `order`) is beyond the code of the head's last row.
* Over rows that also go, rows beyond the head stay in the partition's unsorted *tail*. A head that shrinks below `last` is filled again
  from the tail, with room to spare in proportion to the square root of the tail, so that this is rare.

Sent for a batch, at most once a row or rank: with a rank column a −U/+U pair for each rank whose row is another one now (for RANK and
DENSE_RANK: for rows whose rank changed); without it −D for each row that left and +I for each that entered, but a pair where one row a
partition is kept of rows that only come, as Flink's `TopNFunction`s.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import RankFunction
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.key_rows import NUM_RECORDS_EXPIRED, NUM_STATE_ROWS
from flowrun.operators.ranking.factories import ROWS, RankFactory
from flowrun.operators.ranking.ranked import Ranked, changes, moves
from flowrun.operators.ranking.removals import equal_rows, find_removals
from flowrun.operators.ranking.top_n_state import TopNState
from flowrun.operators.updating.changes import only_adds
from flowrun.operators.updating.emission import emit_changes

_NONE: Integers = np.zeros(0, np.int64)
_SPARE = 8


@record
class _Arrivals:
    """Rows of a batch that may enter a head.

    Attributes:
        columns: the batch.
        rows: their positions in it.
        owners: the partition of each, as a position in the partitions that are looked at.
        codes: what the order says of each.
    """

    columns: pa.RecordBatch
    rows: Integers
    owners: Integers
    codes: list[Integers]


class RankOperator(AbstractOperator):
    """Keeps the top rows of each partition; see the module."""

    def __init__(self, factory: RankFactory) -> None:
        self._factory = factory
        self._ranking = factory.ranking
        self._first, self._last = factory.first, factory.last
        only_one = self._first == self._last == 1 and self._ranking is RankFunction.ROW_NUMBER
        self._first_only = only_one and not factory.retracting

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        factory = self._factory
        self._state = TopNState(
            factory.input_schema,
            factory.partition,
            factory.order,
            context.max_parallelism,
            retracting=factory.retracting,
            ttl_ms=factory.ttl_ms,
        )
        context.metrics.gauge(NUM_RECORDS_EXPIRED, lambda: self._state.expired)
        context.metrics.gauge(NUM_STATE_ROWS, lambda: len(self._state.store))

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows; heads are made of them anew."""
        table = None if restored is None else restored.keyed.get(ROWS)
        if table is None or table.num_rows == 0:
            return
        slots, numbers = self._state.restore(table)
        distinct, owners = np.unique(slots, return_inverse=True)
        nothing = self._state.store.take(_NONE)
        codes = [_NONE] * self._state.order.width
        values = self._state.sort_values(numbers, nothing, _NONE, codes)
        no = np.zeros(len(numbers), np.bool_)
        ranked = Ranked.of(self._ranking, owners, values, no, ~no, np.zeros(len(distinct), np.bool_))
        self._keep(distinct, ranked, numbers[ranked.order], np.ones(len(distinct), np.bool_))

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that changed since the last snapshot."""
        return OperatorSnapshot(segmented={ROWS: self._state.store.snapshot_table()})

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Bring the ranks of the partitions that the batch touches up to date and send what changed."""
        state, columns = self._state, batch.columns
        now = self.context.processing_time.now_ms()
        located = state.locate(columns, now)
        touched = np.zeros(len(located.slots), np.bool_)
        if only_adds(batch):
            rows = np.arange(batch.num_rows)
        elif self._factory.retracting:
            removals = find_removals(state.store, batch, self._factory.input_schema)
            rows = np.flatnonzero(removals.adds)
            keys = located.local[removals.rows]
            state.store.remove(removals.numbers)
            state.written(located.slots[keys], now)
            from_head = state.in_head[removals.numbers]
            touched[keys[from_head]] = True
            np.subtract.at(state.tail_sizes, located.slots[keys[~from_head]], 1)
        else:
            raise InternalError(f"operator {self.context.name}: an append-only top-N got rows that take others back")
        codes = state.order.codes([columns.column(c) for c in state.order.columns], batch.num_rows)
        codes = [c[rows] for c in codes]
        local = located.local[rows]
        promising = self._promising(codes[0], located.slots[local])
        touched[local[promising]] = True
        if self._factory.retracting and not promising.all():
            self._add_behind(
                columns, rows[~promising], located.slots[local[~promising]], [c[~promising] for c in codes]
            )
        chosen = np.flatnonzero(touched)
        if len(chosen):
            owner_of = np.cumsum(touched) - 1
            arrivals = _Arrivals(columns, rows[promising], owner_of[local[promising]], [c[promising] for c in codes])
            self._update(located.slots[chosen], arrivals, now)
        state.compact()

    def _promising(self, codes: Integers, slots: Integers) -> Bools:
        """Which rows are not surely behind the heads of their partitions."""
        thresholds = self._state.thresholds[slots]
        order = self._state.order
        if order.exact and len(order.keys) <= 1 and self._ranking is RankFunction.ROW_NUMBER:
            return codes < thresholds
        return codes <= thresholds

    def _add_behind(self, columns: pa.RecordBatch, rows: Integers, slots: Integers, codes: list[Integers]) -> None:
        """Remember rows that belong into tails."""
        state, now = self._state, self.context.processing_time.now_ms()
        numbers = state.add(columns.take(pa.array(rows)), codes, now)
        state.in_head[numbers] = False
        distinct, owners, counts = np.unique(slots, return_inverse=True, return_counts=True)
        state.tails.extend(distinct, counts, numbers[np.argsort(owners, kind="stable")])
        state.tail_sizes[distinct] += counts
        state.written(distinct, now)

    def _update(self, slots: Integers, arrivals: _Arrivals, now: int) -> None:
        """Rank the heads of some partitions with what arrived in them, send the changes and keep the new heads."""
        state = self._state
        owners, old = state.heads.get(slots)
        lost = ~state.store.is_live(old)
        size = state.heads.lengths(slots) - np.bincount(owners[lost], minlength=len(slots))
        has_tail = state.tail_sizes[slots] > 0
        refill = has_tail & (size < self._last)
        while True:
            tail_owners, tail = self._tails(slots, refill)
            all_owners = np.concatenate([owners, tail_owners, arrivals.owners])
            numbers = np.concatenate([old, tail])
            values = state.sort_values(numbers, arrivals.columns, arrivals.rows, arrivals.codes)
            was = np.arange(len(all_owners)) < len(old)
            alive = np.ones(len(all_owners), np.bool_)
            alive[: len(old)] = ~lost
            ranked = Ranked.of(self._ranking, all_owners, values, was, alive, has_tail & ~refill)
            short = has_tail & ~refill & (ranked.depth(len(slots), self._ranking) < self._last)
            if not short.any():
                break
            refill |= short
        numbers = self._remember(arrivals, numbers, ranked, now)
        self._send(ranked, numbers)
        self._keep(slots, ranked, numbers, refill)
        state.written(slots, now)

    def _tails(self, slots: Integers, refill: Bools) -> tuple[Integers, Integers]:
        """(position in `slots`, row number) of the tails of some partitions, in order of arrival."""
        if not refill.any():
            return _NONE, _NONE
        chosen = np.flatnonzero(refill)
        owners, numbers = self._state.tails.get(slots[chosen])
        there = self._state.store.is_live(numbers)
        owners, numbers = owners[there], numbers[there]
        order = np.argsort(numbers, kind="stable")
        return chosen[owners[order]], numbers[order]

    def _remember(self, arrivals: _Arrivals, known: Integers, ranked: Ranked, now: int) -> Integers:
        """Row numbers in the order of `ranked`; −1 for rows that nobody needs. Rows that arrived are remembered if they are needed."""
        needed = np.ones(len(arrivals.rows), np.bool_)
        if not self._factory.retracting:
            by_row = np.empty(len(ranked.order), np.int64)
            by_row[ranked.order] = ranked.new
            needed = by_row[len(known) :] <= self._last
        numbers = np.full(len(arrivals.rows), -1, np.int64)
        rows = arrivals.columns.take(pa.array(arrivals.rows[needed]))
        numbers[needed] = self._state.add(rows, [c[needed] for c in arrivals.codes], now)
        sorted_numbers: Integers = np.concatenate([known, numbers])[ranked.order]
        return sorted_numbers

    def _keep(self, slots: Integers, ranked: Ranked, numbers: Integers, refilled: Bools) -> None:
        """Make the new heads and tails of some partitions. `refilled`: all rows of the partition are among the ranked ones."""
        state, owners = self._state, ranked.owners
        here = ranked.new > 0
        if not self._factory.retracting:
            kept = here & (ranked.new <= self._last)
            state.store.remove(numbers[~kept & (numbers >= 0)])
            state.heads.put(slots, np.bincount(owners[kept], minlength=len(slots)), numbers[kept])
            full = Ranked(ranked.order, owners, ranked.ties, ranked.old, np.where(kept, ranked.new, 0))
            state.set_thresholds(slots, full.depth(len(slots), self._ranking) >= self._last)
            return
        live = state.store.is_live(numbers)
        spare = self._last + _SPARE + 4 * np.sqrt(state.tail_sizes[slots]).astype(np.int64)
        sizes = np.bincount(owners[here], minlength=len(slots))
        limits = np.where(sizes > 2 * spare, spare, sizes)
        kept = here & (ranked.new <= limits[owners])
        behind = live & ~kept
        state.in_head[numbers[kept]] = True
        state.in_head[numbers[behind]] = False
        state.heads.put(slots, np.bincount(owners[kept], minlength=len(slots)), numbers[kept])
        counts = np.bincount(owners[behind], minlength=len(slots))
        state.tails.put(slots[refilled], counts[refilled], numbers[behind & refilled[owners]])
        state.tails.extend(slots[~refilled], counts[~refilled], numbers[behind & ~refilled[owners]])
        state.tail_sizes[slots] = np.where(refilled, 0, state.tail_sizes[slots]) + counts
        state.set_thresholds(slots, state.tail_sizes[slots] > 0)

    def _send(self, ranked: Ranked, numbers: Integers) -> None:
        numbered, store = self._factory.rank_column, self._state.store
        left, entered = moves(ranked, self._first, self._last, numbered=numbered)
        left, entered = self._without_equal(ranked, left, entered, numbers)
        changed, kinds, rank = changes(ranked, left, entered, in_pairs=numbered or self._first_only)
        schema = self._factory.output_schema.arrow

        def rows(start: int, stop: int) -> RecordBatch:
            columns = list(store.take(numbers[changed[start:stop]]).columns)
            if numbered:
                columns.append(pa.array(rank[start:stop]))
            return RecordBatch(pa.RecordBatch.from_arrays(columns, schema=schema))

        emit_changes(self.output, kinds, rows)

    def _without_equal(
        self, ranked: Ranked, left: Integers, entered: Integers, numbers: Integers
    ) -> tuple[Integers, Integers]:
        """Without rows that left and came back, or made place for equal ones."""
        was, now = ranked.ties[left], ranked.ties[entered]
        if self._factory.rank_column:  # a row that moved down is no candidate: its rank is another one
            width = len(ranked.order) + 1
            was, now = was * width + ranked.old[left], now * width + ranked.new[entered]
        gone, come = np.flatnonzero(np.isin(was, now)), np.flatnonzero(np.isin(now, was))
        if not len(gone):
            return left, entered
        before = self._state.store.take(numbers[left[gone]])
        after = self._state.store.take(numbers[entered[come]])
        schema = self._factory.output_schema
        if self._factory.rank_column:
            before = _with_rank(before, ranked.old[left[gone]], schema)
            after = _with_rank(after, ranked.new[entered[come]], schema)
        found = equal_rows(before, after, schema)
        same = found >= 0
        return np.delete(left, gone[found[same]]), np.delete(entered, come[same])


def _with_rank(rows: pa.RecordBatch, rank: Integers, schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array(rank)], schema=schema.arrow)
