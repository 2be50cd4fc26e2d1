"""OVER over rows that change, which Apache Flink cannot do: all rows are kept in order, and what was sent is corrected.

For the partitions that a batch touches, the rows before and after it are put in order together. A row's result may have changed if a row
that came or went is within reach: among the rows of its frame, or as far away as LAG and LEAD look. Old and new results of those rows
alone are computed, and the differences sent: −U/+U where a result changed, or a row was updated within its partition, −D and +I for rows
that went or came.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.over.calls import Place
from flowrun.operators.over.evaluation import AggregateEvaluator, finished
from flowrun.operators.over.factories import EVENT_TIME, ROWS, ChangelogOverFactory
from flowrun.operators.over.place_functions import place_result
from flowrun.operators.over.reach import Reach, affected, cut
from flowrun.operators.over.sequence import Sequence
from flowrun.operators.ranking.order import differs_from_previous, shifted_codes, shifted_float_codes, sorted_order
from flowrun.operators.ranking.removals import Removals, equal_rows, find_removals, updated_rows
from flowrun.operators.ranking.top_n_state import TopNState
from flowrun.operators.updating.changes import change_batch
from flowrun.operators.updating.emission import emit_changes


@record
class Merged:
    """Rows of the touched partitions before and after a batch, in one order.

    Attributes:
        numbers: row numbers.
        owners: partition of each row.
        ties: equal for rows of equal order.
        order: what RANGE counts in.
        least: of each row the least order within its frame, if that counts units; else None.
        most: the greatest.
        was: rows that were there before.
        alive: rows that are there now.
        replaced: positions of rows that were updated.
        replacing: positions of what they became, in the same partition.
    """

    numbers: Integers
    owners: Integers
    ties: Integers
    order: Integers
    least: Integers | None
    most: Integers | None
    was: Bools
    alive: Bools
    replaced: Integers
    replacing: Integers

    def whole(self) -> Sequence:
        """All rows, as targets."""

        def no_column(position: int) -> pa.Array:
            raise InternalError(f"column {position} of rows that are there no more")

        targets = np.arange(len(self.owners))
        return Sequence(self.owners, self.ties, self.order, targets, no_column, self.least, self.most)


class ChangelogOverOperator(AbstractOperator):
    """Keeps the results of OVER up to date; see the module."""

    def __init__(self, factory: ChangelogOverFactory) -> None:
        self._factory = factory
        self._reach = Reach.of(factory)
        self._sent_columns = len(factory.output_schema) - len(factory.calls)

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output."""
        super().setup(context, output)
        factory = self._factory
        self._state = TopNState(
            factory.input_schema,
            factory.keys,
            factory.order,
            context.max_parallelism,
            retracting=True,
            ttl_ms=factory.ttl_ms,
            counters=(EVENT_TIME,),
        )

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back the rows and put them in order."""
        table = None if restored is None else restored.keyed.get(ROWS)
        if table is None or table.num_rows == 0:
            return
        state = self._state
        slots, numbers = state.restore(table)
        nothing = np.zeros(0, np.int64)
        codes = [nothing] * state.order.width
        values = state.sort_values(numbers, state.store.take(nothing), nothing, codes)
        order = sorted_order([slots, *values])
        distinct, counts = np.unique(slots, return_counts=True)
        state.heads.put(distinct, counts, numbers[order])

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The rows that changed since the last snapshot."""
        return OperatorSnapshot(segmented={ROWS: self._state.store.snapshot_table()})

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Apply the changes of a batch and send what became of the results."""
        state, columns = self._state, batch.columns
        now = self.context.processing_time.now_ms()
        located = state.locate(columns, now)
        removals = find_removals(state.store, batch, self._factory.input_schema)
        rows = np.flatnonzero(removals.adds)
        touched = np.zeros(len(located.slots), np.bool_)
        touched[located.local[rows]] = True
        touched[located.local[removals.rows]] = True
        if not touched.any():
            return
        slots = located.slots[touched]
        owner_of = np.cumsum(touched) - 1
        merged = self._merge(batch, slots, rows, owner_of[located.local[rows]], removals, now)
        self._send(merged, timed=batch.timestamps is not None)
        kept = merged.alive
        state.heads.put(slots, np.bincount(merged.owners[kept], minlength=len(slots)), merged.numbers[kept])
        state.written(slots, now)
        state.compact()

    def _merge(
        self, batch: RecordBatch, slots: Integers, rows: Integers, owners: Integers, removals: Removals, now: int
    ) -> Merged:
        """Remember and forget rows; the rows of the touched partitions before and after."""
        state = self._state
        old_owners, old = state.heads.get(slots)
        taken = pa.array(rows)
        added = batch.columns.take(taken)
        sort_columns = [added.column(c) for c in state.order.columns]
        codes = state.order.codes(sort_columns, len(rows))
        values = state.sort_values(old, added, np.arange(len(rows)), codes)
        times = 0 if batch.timestamps is None else batch.timestamps_numpy()[rows]
        new = state.add(added, codes, now, **{EVENT_TIME: times})
        state.store.remove(removals.numbers)
        all_owners = np.concatenate([old_owners, owners])
        parts = [all_owners, *values]
        order = sorted_order(parts)
        numbers = np.concatenate([old, new])[order]
        sorted_owners = all_owners[order]
        gone, come = updated_rows(batch, removals, rows)
        replaced, replacing = _positions_of(removals.numbers[gone], numbers), _positions_of(new[come], numbers)
        together = sorted_owners[replaced] == sorted_owners[replacing]
        first = state.first_codes(numbers)
        least, most = self._units(first, numbers)
        return Merged(
            numbers,
            sorted_owners,
            np.cumsum(differs_from_previous(parts, order), dtype=np.int64),
            first,
            least,
            most,
            order < len(old),
            state.store.is_live(numbers),
            replaced[together],
            replacing[together],
        )

    def _units(self, codes: Integers, numbers: Integers) -> tuple[Integers | None, Integers | None]:
        """The least and the greatest code within the frame of each row; None where the frame does not count units on that side."""
        frame = self._factory.frame
        if not frame.counts_units or not self._factory.aggregates:
            return None, None
        key = self._factory.order[0]
        floating = self._factory.input_schema.types[key.column].is_approximate
        column = self._state.store.take_columns(numbers, [key.column])[0] if floating else None

        def moved(units: float) -> Integers:
            if column is not None:
                return shifted_float_codes(column, codes, key, units)
            return shifted_codes(codes, int(units))

        least = moved(-frame.preceding) if frame.preceding else None
        return least, moved(frame.following) if frame.following else None

    # ---- results

    def _send(self, merged: Merged, *, timed: bool) -> None:
        factory = self._factory
        wanted = affected(self._reach, merged.whole(), merged.was, merged.alive)
        had, has = wanted & merged.was, wanted & merged.alive
        before = self._results(merged, merged.was, had, timed=timed)
        after = self._results(merged, merged.alive, has, timed=timed)
        keys = np.flatnonzero(wanted)
        had, has = had[keys], has[keys]
        replaced, replacing = (_positions_of(p, keys) for p in (merged.replaced, merged.replacing))
        before, had, after, has, stays = _without_equal(before, had, after, has, self._change_schema(timed=timed))
        results: range | None = range(self._sent_columns, len(factory.output_schema))
        chosen = stays[replaced] & stays[replacing]
        if chosen.any():
            moved = np.cumsum(stays) - 1
            after, had, has = _as_updates(after, had, has, moved[replaced[chosen]], moved[replacing[chosen]])
            results = None  # an updated row has other columns, too
        changes = change_batch(before, had, after, has, compare=results, repeat=bool(factory.ttl_ms))
        if changes is None:
            return
        width, schema = len(factory.output_schema), factory.output_schema.arrow
        kinds = np.zeros(changes.columns.num_rows, np.int8)
        if changes.row_kinds is not None:
            kinds = changes.row_kinds.to_numpy()

        def rows(start: int, stop: int) -> RecordBatch:
            part = changes.columns.slice(start, stop - start)
            times = part.column(width) if timed else None
            return RecordBatch(pa.RecordBatch.from_arrays(part.columns[:width], schema=schema), times)

        emit_changes(self.output, kinds, rows)

    def _results(self, merged: Merged, there: Bools, targets: Bools, *, timed: bool) -> pa.RecordBatch:
        """The target rows with their results, all rows of a state of the partitions being `there`."""
        factory, store = self._factory, self._state.store
        rows = np.flatnonzero(there)
        numbers = merged.numbers[rows]

        def column(position: int) -> pa.Array:
            return store.take_columns(numbers, [position])[0]

        whole = Sequence(
            _dense(merged.owners[rows]),
            _dense(merged.ties[rows]),
            merged.order[rows],
            np.flatnonzero(targets[rows]),
            column,
            None if merged.least is None else merged.least[rows],
            None if merged.most is None else merged.most[rows],
        )
        own = numbers[whole.targets]
        columns = store.take_columns(own, range(self._sent_columns))
        if len(own):
            columns += self._call_results(whole, numbers)
        else:
            columns += [pa.array([], t.arrow) for t in factory.output_schema.types[self._sent_columns :]]
        if timed:
            columns.append(pa.array(store.counter(EVENT_TIME)[own]))
        return pa.RecordBatch.from_arrays(columns, schema=self._change_schema(timed=timed).arrow)

    def _change_schema(self, *, timed: bool) -> Schema:
        """Columns of changes on their way: the output's and, if rows have one, their event time."""
        schema = self._factory.output_schema
        return Schema((*schema.fields, Field(EVENT_TIME, BIGINT))) if timed else schema

    def _call_results(self, whole: Sequence, numbers: Integers) -> list[pa.Array]:
        factory = self._factory
        frames = whole.frames(factory.frame, None) if factory.aggregates else None
        sequence, frames = cut(whole, frames, self._reach, numbers, self._state.store)
        results = []
        if frames is not None:
            evaluator = AggregateEvaluator(factory.input_schema, sequence, frames, None)
            for place, aggregate in enumerate(factory.aggregates):
                if aggregate.kernel.collect is not None:
                    results.append(evaluator.collected(aggregate))
                else:
                    results.append(finished(aggregate, evaluator.accumulators(place, aggregate)))
        nothing = np.zeros(int(whole.owners[-1]) + 1, np.int64)
        for call in factory.places:
            shifted = call.place in (Place.LAG, Place.LEAD)
            results.append(place_result(call, sequence if shifted else whole, whole.starts, nothing, nothing))
        return [results[i] for i in factory.result_order]


def _dense(values: Integers) -> Integers:
    """Non-decreasing numbers as 0, 1, 2 …"""
    steps = np.zeros(len(values), np.int64)
    steps[1:] = values[1:] != values[:-1]
    return np.cumsum(steps)


def _positions_of(wanted: Integers, numbers: Integers) -> Integers:
    """Where each of the wanted numbers, all of which are there, is among different numbers."""
    if not len(wanted):
        return wanted
    order = np.argsort(numbers, kind="stable")
    found: Integers = order[np.searchsorted(numbers, wanted, sorter=order)]
    return found


def _as_updates(
    after: pa.RecordBatch, had: Bools, has: Bools, replaced: Integers, replacing: Integers
) -> tuple[pa.RecordBatch, Bools, Bools]:
    """(`after`, `had`, `has`) with each row that replaces another at the other's place."""
    source = np.arange(len(has))
    source[replaced] = replacing
    rows = np.cumsum(has) - 1
    now = has.copy()
    now[replaced] = True
    stays = np.ones(len(has), np.bool_)
    stays[replacing] = False
    return after.take(pa.array(rows[source[stays & now]])), had[stays], now[stays]


def _without_equal(
    before: pa.RecordBatch, had: Bools, after: pa.RecordBatch, has: Bools, schema: Schema
) -> tuple[pa.RecordBatch, Bools, pa.RecordBatch, Bools, Bools]:
    """Without rows that went and came again with equal results; last, which of the given rows are left."""
    gone, come = np.flatnonzero((had & ~has)[had]), np.flatnonzero((has & ~had)[has])
    stays = np.ones(len(had), np.bool_)
    if not len(gone) or not len(come):
        return before, had, after, has, stays
    found = equal_rows(before.take(pa.array(gone)), after.take(pa.array(come)), schema)
    back = found >= 0
    if not back.any():
        return before, had, after, has, stays
    left, entered = gone[found[back]], come[back]
    stays[np.flatnonzero(had)[left]] = False
    stays[np.flatnonzero(has)[entered]] = False
    before = before.take(pa.array(np.delete(np.arange(before.num_rows), left)))
    after = after.take(pa.array(np.delete(np.arange(after.num_rows), entered)))
    return before, had[stays], after, has[stays], stays
