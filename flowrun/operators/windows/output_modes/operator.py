"""Brings results of windows into an output mode; see `factories`.

The last result of each window is a row of a log. Windows are numbered by key and bounds, so that results of many windows are compared,
replaced and sent at once; only windows that merge are looked for one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch, RowKind, Watermark
from flowrun.core.record import record
from flowrun.core.semantics import OutputMode
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.equality import rows_equal
from flowrun.operators.keyed.key_slots import KeySlots
from flowrun.operators.keyed.lazy_tables import lazy_tables, no_tables
from flowrun.operators.keyed.restored_tables import check_keys, restored_batches
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.timed.event_rows import MAX_OUTPUT_ROWS
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.windows.output_modes.factories import RESULTS, OutputModeFactory
from flowrun.state.key_groups import key_groups_or_zero

_SPARE = 16 * 1024
_GONE = -1


@record
class _Changes:
    """Rows that go and come: the place in the batch of the result that made each, and its kind."""

    rows: pa.Table
    places: Integers
    kinds: Integers


class OutputModeOperator(AbstractOperator):
    """Remembers the last result of each window that may fire again; see the module."""

    def __init__(self, factory: OutputModeFactory) -> None:
        self._factory = factory
        self._mode = factory.mode
        self._width = factory.keys + 2
        self._schema = factory.schema.arrow
        self._numbers = KeySlots.of(factory.schema, range(self._width))
        self._log = RowLog()
        self._log.append(pa.RecordBatch.from_pylist([], schema=self._schema))
        self._latest: Integers = np.zeros(0, np.int64)
        self._ends: Integers = np.zeros(0, np.int64)
        self._live = 0
        self._of_key: dict[tuple[object, ...], dict[int, tuple[int, int]]] = defaultdict(dict)
        """Of windows that merge: number → bounds of each, by key."""
        self._changed = False

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Know the state's columns."""
        super().setup(context, output)
        self._state = self._factory.state_schemas()[RESULTS]

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back results."""
        table = None if restored is None else restored.keyed.get(RESULTS)
        for batch in [] if table is None else restored_batches(RESULTS, table, self._state):
            check_keys(
                RESULTS, batch.column(0), batch.columns[1 : 1 + self._factory.keys], self.context.max_parallelism
            )
            rows = pa.RecordBatch.from_arrays(batch.columns[1:], schema=self._schema)
            self._put(self._located(rows), rows)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to the results as they are now."""
        schemas = {RESULTS: self._state}
        if not self._live:
            return OperatorSnapshot(segmented=no_tables(schemas))
        positions = self._latest[self._latest != _GONE]
        make = partial(
            _table, self._state, self._factory.keys, self.context.max_parallelism, positions, self._log.view()
        )
        return OperatorSnapshot(segmented=lazy_tables(schemas, make))

    # ---- results

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Take results in, one of each window (of windows that merge: of each key) at a time; send what has changed."""
        rows = batch.columns
        located = self._located(rows)
        who = KeySlots.of(self._factory.schema, range(self._factory.keys))
        merging = self._factory.merging
        owners = who.locate(rows.columns[: self._factory.keys], rows.num_rows).local if merging else located
        waiting, changes = np.arange(rows.num_rows), list[_Changes]()
        while len(waiting):
            _, first = np.unique(owners[waiting], return_index=True)
            now = np.sort(waiting[first])
            changes.append(self._take(located[now], rows.take(pa.array(now)), now))
            waiting = np.setdiff1d(waiting, now, assume_unique=True)
        if self._mode is OutputMode.UPDATE:
            self._send_changes([c for c in changes if c.rows.num_rows])

    def _located(self, rows: pa.RecordBatch) -> Integers:
        located = self._numbers.locate(rows.columns[: self._width], rows.num_rows)
        size = len(self._numbers)
        known = len(self._latest)
        self._latest, self._ends = extended(self._latest, size, 0), extended(self._ends, size, 0)
        self._latest[known:] = _GONE
        found: Integers = located.of_rows
        return found

    def _take(self, numbers: Integers, rows: pa.RecordBatch, places: Integers) -> _Changes:
        """Results of different windows, at these places of the batch; how they change what was known."""
        covered, by = self._covered(numbers, rows) if self._factory.merging else (numbers[:0], numbers[:0])
        removed = self._log.take(self._latest[covered]) if len(covered) else rows.slice(0, 0)
        self._forget(covered)
        before = self._latest[numbers]
        known = before != _GONE
        old = self._log.take(before[known])
        changed = np.ones(len(numbers), np.bool_)
        changed[known] = ~rows_equal(
            old.columns[self._width :], rows.filter(pa.array(known)).columns[self._width :], int(known.sum())
        )
        kept = rows.filter(pa.array(changed))
        self._put(numbers[changed], kept)
        self._changed = self._changed or bool(changed.any()) or bool(len(covered))
        updated = known & changed
        return _Changes(
            pa.Table.from_batches([removed, old.filter(pa.array(changed[known])), kept]),
            places[np.concatenate([by, np.flatnonzero(updated), np.flatnonzero(changed)])],
            np.concatenate(
                [
                    np.full(len(by), RowKind.DELETE),
                    np.full(int(updated.sum()), RowKind.UPDATE_BEFORE),
                    np.where(known[changed], RowKind.UPDATE_AFTER, RowKind.INSERT),
                ]
            ),
        )

    def _send_changes(self, changes: Sequence[_Changes]) -> None:
        """In the order of the results that made them; what goes is sent before what comes."""
        if not changes:
            return
        rows = pa.concat_tables([c.rows for c in changes]).combine_chunks().to_batches()[0]
        kinds = np.concatenate([c.kinds for c in changes])
        comes = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
        order = np.lexsort((comes, np.concatenate([c.places for c in changes])))
        self._send(rows.take(pa.array(order)), kinds[order])

    def _covered(self, numbers: Integers, rows: pa.RecordBatch) -> tuple[Integers, Integers]:
        """(windows that have become a part of one of the rows' windows, position of that row)."""
        keys = list(zip(*(c.to_pylist() for c in rows.columns[: self._factory.keys]), strict=True)) or [()] * len(
            numbers
        )
        starts, ends = (c.cast(pa.int64()).to_pylist() for c in rows.columns[self._factory.keys : self._width])
        covered, by = [], []
        for at, (key, number, start, end) in enumerate(zip(keys, numbers.tolist(), starts, ends, strict=True)):
            windows = self._of_key[key]
            for other, (first, last) in list(windows.items()):
                if self._latest[other] == _GONE:
                    del windows[other]
                elif other != number and first < end and start < last:
                    covered.append(other)
                    by.append(at)
                    del windows[other]
            windows[number] = (start, end)
        return np.array(covered, np.int64), np.array(by, np.int64)

    def _put(self, numbers: Integers, rows: pa.RecordBatch) -> None:
        self._live += int(np.count_nonzero(self._latest[numbers] == _GONE))
        first = self._log.append(rows)
        self._latest[numbers] = first + np.arange(len(numbers))
        self._ends[numbers] = rows.column(self._width - 1).cast(pa.int64()).to_numpy()
        if self._factory.merging:
            self._covered(numbers, rows)

    def _forget(self, numbers: Integers) -> None:
        self._latest[numbers] = _GONE
        self._live -= len(numbers)

    def _send(self, rows: pa.RecordBatch, kinds: Integers | None = None) -> None:
        times = pa.array(rows.column(self._width - 1).cast(pa.int64()).to_numpy() - 1)
        whole = RecordBatch(rows, times, None if kinds is None else pa.array(kinds.astype(np.int8)))
        for start in range(0, whole.num_rows, MAX_OUTPUT_ROWS):
            self.output.emit(whole if whole.num_rows <= MAX_OUTPUT_ROWS else whole.slice(start, MAX_OUTPUT_ROWS))

    # ---- time

    def _advance_to(self, timestamp: int) -> None:
        """In append mode event time behind this operator is that by which windows are final."""
        self.on_watermark(timestamp)
        forwarded = self._closed(timestamp) if self._mode is OutputMode.APPEND else timestamp
        if forwarded > MIN_TIMESTAMP:
            self.output.emit_watermark(Watermark(forwarded))

    def _closed(self, watermark: int) -> int:
        lateness = self._factory.allowed_lateness_ms
        return watermark if watermark == MAX_TIMESTAMP else max(watermark, MIN_TIMESTAMP + lateness) - lateness

    def on_watermark(self, timestamp: int) -> None:
        """Send final results, or the whole table; forget windows that will not fire again."""
        if self._mode is OutputMode.COMPLETE:
            if self._changed:
                self._send(self._in_order(np.flatnonzero(self._latest != _GONE)))
            self._changed = False
        elif self._live:
            due = np.flatnonzero((self._latest != _GONE) & (self._ends - 1 <= self._closed(timestamp)))
            if len(due) and self._mode is OutputMode.APPEND:
                self._send(self._in_order(due))
            self._forget(due)
        if max(len(self._numbers), len(self._log)) > 2 * self._live + _SPARE:
            self._make_room()

    def _in_order(self, numbers: Integers) -> pa.RecordBatch:
        ordered = numbers[np.argsort(self._ends[numbers], kind="stable")]
        return self._log.take(self._latest[ordered])

    def _make_room(self) -> None:
        """Forget windows that are gone, and results that were replaced."""
        kept = self._latest != _GONE
        rows = self._log.take(self._latest[kept])
        self._numbers.forget(kept)
        self._of_key.clear()
        self._latest, self._ends, self._live = self._latest[:0], self._ends[:0], 0
        self._log = RowLog()
        self._log.append(rows.slice(0, 0))
        self._put(self._located(rows), rows)


def _table(schema: pa.Schema, keys: int, max_parallelism: int, positions: Integers, log: RowLog) -> dict[str, pa.Table]:
    """Called on another thread: reads nothing that changes."""
    rows = log.take(positions)
    groups = key_groups_or_zero(rows.columns[:keys], rows.num_rows, max_parallelism)
    return {RESULTS: pa.Table.from_arrays([pa.array(groups), *rows.columns], schema=schema)}


def output_mode_operator(factory: OutputModeFactory) -> StreamOperator:
    """An `OutputModeOperator` that goes by the clocks of the windows' zone."""
    return in_zone(OutputModeOperator(factory), factory.time_zone)
