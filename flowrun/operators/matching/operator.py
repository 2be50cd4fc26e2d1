"""The operator of MATCH_RECOGNIZE: keeps the rows of each key that may be part of a match, and searches when event time passes rows.

Rows are searched in order of time, then of the further sort keys, then of arrival. Partial matches are not kept: they follow from the
rows, of which only those from the first open start of a key on are remembered.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, timestamps_from_column
from flowrun.core.semantics import TimeDomain
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.matching.factories import ROLE, ROWS, MatchFactory
from flowrun.operators.matching.references import OrderedRows, Partials, ReferenceReader
from flowrun.operators.matching.search import PatternSearch
from flowrun.operators.next_firing import show_next_firing
from flowrun.operators.ranking.order import RowOrder, sorted_order
from flowrun.operators.timed.event_rows import LATE_RECORDS_DROPPED

_CONTEXT, _MAY_START, _WAITING = 0, 1, 2


class MatchOperator(AbstractOperator):
    """Searches rows for a pattern; see the module."""

    def __init__(self, factory: MatchFactory) -> None:
        self._factory = factory
        self._search = PatternSearch(factory.pattern, factory.input_schema)
        self._order = RowOrder(factory.input_schema, factory.order)
        self._measure_reader = ReferenceReader(factory.measure_references, factory.input_schema)
        self._waiting: Integers = np.zeros(0, np.int64)
        self._waiting_times: Integers = np.zeros(0, np.int64)

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        null_safe = (True,) * len(factory.keys)
        self._store = RowStore(
            factory.input_schema, factory.keys, context.max_parallelism, counters=(ROLE,), null_safe=null_safe
        )
        self._late = context.metrics.counter(LATE_RECORDS_DROPPED)
        if factory.time is not None:
            show_next_firing(context, self._first_waiting, TimeDomain.EVENT)

    def open(self) -> None:
        """Compile the measures."""
        self._measures = self._factory.measures.compile()

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back rows and what each is kept for."""
        table = None if restored is None else restored.keyed.get(ROWS)
        if table is None:  # no row was remembered
            return
        numbers = self._store.restore(table)
        self._waiting = numbers[self._store.counter(ROLE)[numbers] == _WAITING]
        self._waiting_times = self._times(self._waiting)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """The remembered rows."""
        return OperatorSnapshot(segmented={ROWS: self._store.snapshot_table()})

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Remember rows until event time passes them; in processing time search at once."""
        if batch.row_kinds is not None and np.any(batch.row_kinds.to_numpy()):
            raise InternalError("MATCH_RECOGNIZE was given updates")
        columns = batch.columns
        times = np.zeros(batch.num_rows, np.int64)
        if self._factory.time is not None:
            stamps = timestamps_from_column(columns.column(self._factory.time))
            late = stamps.fill_null(self.current_watermark).to_numpy() <= self.current_watermark
            if late.any():
                self._late.inc(int(late.sum()))
                kept = pa.array(np.flatnonzero(~late))
                columns, stamps = columns.take(kept), stamps.take(kept)
            times = stamps.to_numpy()
        if not columns.num_rows:
            return
        numbers = self._store.append(columns, **{ROLE: _WAITING})
        self._waiting = np.concatenate([self._waiting, numbers])
        self._waiting_times = np.concatenate([self._waiting_times, times])
        if self._factory.time is None:
            self._search_rows(np.ones(len(self._waiting), np.bool_))

    def on_watermark(self, timestamp: int) -> None:
        """Search the rows that event time has passed."""
        if self._factory.time is not None and len(self._waiting):
            ready = self._waiting_times <= timestamp
            if ready.any():
                self._search_rows(ready)

    def _first_waiting(self) -> int | None:
        times = self._waiting_times
        return int(times.min()) if len(times) else None

    def _search_rows(self, ready: Bools) -> None:
        """Search the keys of the rows that are ready, with what is remembered of these keys."""
        arrived = self._waiting[ready]
        self._waiting, self._waiting_times = self._waiting[~ready], self._waiting_times[~ready]
        self._store.put(ROLE, arrived, _MAY_START)
        numbers, slots = self._rows_of_keys(arrived)
        rows, numbers = self._ordered(numbers, slots)
        may_start = self._store.counter(ROLE)[numbers] == _MAY_START
        found = self._search.search(rows, may_start)
        self._emit(rows, found.matches)
        needed = found.needed
        self._store.remove(numbers[~needed])
        self._store.put(ROLE, numbers[needed & may_start & ~found.may_start], _CONTEXT)
        self._compact()

    def _rows_of_keys(self, arrived: Integers) -> tuple[Integers, Integers]:
        """(numbers of the rows of these rows' keys that are not waiting, which key each has)."""
        keys = self._store.take_columns(arrived, self._factory.keys)
        slots = KeySlots.of(self._factory.input_schema, self._factory.keys)
        local = slots.locate(keys, len(arrived)).local
        _, firsts = np.unique(local, return_index=True)
        chosen = pa.array(firsts)
        pairs = self._store.find([k.take(chosen) for k in keys], len(firsts))
        pairs = pairs.where(self._store.counter(ROLE)[pairs.numbers] != _WAITING)
        return pairs.numbers, pairs.probe

    def _ordered(self, numbers: Integers, keys: Integers) -> tuple[OrderedRows, Integers]:
        """The rows by key and in the order of the pattern."""
        columns = self._store.take(numbers)
        times = self._times(numbers)
        further = self._order.values([columns.column(c) for c in self._order.columns], len(numbers))
        order = sorted_order([keys, times, *further])
        keys, numbers = keys[order], numbers[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        lengths = np.diff(np.append(starts, len(keys)))
        begins = np.repeat(starts, lengths)
        rows = OrderedRows(
            self._factory.input_schema,
            columns.take(pa.array(order)),
            times[order],
            begins,
            begins + np.repeat(lengths, lengths),
        )
        return rows, numbers

    def _times(self, numbers: Integers) -> Integers:
        if self._factory.time is None:
            return np.zeros(len(numbers), np.int64)
        (column,) = self._store.take_columns(numbers, (self._factory.time,))
        times: Integers = timestamps_from_column(column).to_numpy()
        return times

    def _emit(self, rows: OrderedRows, matches: Partials) -> None:
        """One row a match, in order of the matches' ends, with the time of the last row."""
        if not len(matches):
            return
        times = rows.times[matches.last]
        order = np.argsort(times, kind="stable")
        matches, times = matches.take(order), times[order]
        measured = self._measures(self._measure_reader.read(rows, matches))
        firsts = pa.array(matches.start)
        keys = [rows.columns.column(k).take(firsts) for k in self._factory.keys]
        columns = pa.RecordBatch.from_arrays([*keys, *measured.columns], schema=self._factory.output_schema.arrow)
        stamps = pa.array(times) if self._factory.time is not None else None
        self.output.emit(RecordBatch(columns, stamps))

    def _compact(self) -> None:
        moved = self._store.compact()
        if moved is not None:
            self._waiting = moved[self._waiting]
