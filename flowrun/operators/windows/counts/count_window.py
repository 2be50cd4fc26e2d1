"""Windows over the last rows of a key: Apache Flink's `countWindow(size)`, `countWindow(size, slide)` and a count trigger.

The rows of a key are numbered 0, 1, …; a *cell* is a range of `cell_rows` of them. A batch is folded into one partial result a cell;
only a key's open cell is merged with what is stored. Three modes, all independent of how rows are cut into batches:

* TUMBLING: a cell is a window; it fires and is forgotten when it is full.
* SLIDING: every `slide` rows of a key, the window over its last up to `size` rows fires; cells have gcd(size, slide) rows.
* ACCUMULATING: every `slide` rows of a key, the aggregate of all of its rows so far fires.

Rows that no window has fired for when the input ends give no result, as in Flink. A result's event time is the newest of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.arrays import Integers
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.integers import ranges
from flowrun.operators.keyed.key_slots import KeyList, KeySlots, LocatedKeys
from flowrun.operators.keyed.lazy_tables import UnchangedTables, lazy_tables, no_tables
from flowrun.operators.keyed.state_arrays import extended
from flowrun.operators.timed.event_rows import MAX_OUTPUT_ROWS, RowIntake
from flowrun.operators.windows.counts.factories import CountMode, CountWindowFactory
from flowrun.operators.windows.partials.cell_tables import KEYS, SlotTables, read_sequence, sequence_state
from flowrun.operators.windows.partials.cells import CellAggregator, PartialLog, select_cells
from flowrun.operators.windows.results import keyed_results

NOWHERE = -1
_SPARE_ROWS = 64 * 1024
_EXPANDED_ROWS = 1024 * 1024
_SIDE_BATCH_ROWS = 1024


@record
class BatchCells:
    """The cells of a batch, in order of key and then of row.

    Attributes:
        located: keys of the rows.
        order: rows grouped by key; `key_starts` is where each key's rows begin in it.
        before: rows that each key had before the batch; `after` with it.
        row_cells: cell of each row.
        keys: the batch's key of each cell; `numbers` its number among the key's cells, `last_rows` its last row.
        key_cells: first cell of each key.
    """

    located: LocatedKeys
    order: Integers
    key_starts: Integers
    before: Integers
    after: Integers
    row_cells: Integers
    keys: Integers
    numbers: Integers
    last_rows: Integers
    key_cells: Integers

    @classmethod
    def of(cls, located: LocatedKeys, before: Integers, cell_rows: int) -> BatchCells:
        """The cells of rows whose keys had `before` rows each."""
        rows, keys = len(located.local), len(located.slots)
        order = located.row_order()
        per_key = np.bincount(located.local, minlength=keys)
        key_starts = np.cumsum(per_key) - per_key
        sorted_keys = located.local[order]
        ordinals = np.arange(rows) + (before - key_starts)[sorted_keys]
        numbers = ordinals // cell_rows
        begins = np.ones(rows, np.bool_)
        begins[1:] = (sorted_keys[1:] != sorted_keys[:-1]) | (numbers[1:] != numbers[:-1])
        row_cells = np.empty(rows, np.int64)
        row_cells[order] = np.cumsum(begins) - 1
        firsts = np.flatnonzero(begins)
        last_rows = order[np.append(firsts[1:], rows) - 1]
        cell_keys = sorted_keys[firsts]
        return cls(
            located,
            order,
            key_starts,
            before,
            before + per_key,
            row_cells,
            cell_keys,
            numbers[firsts],
            last_rows,
            np.searchsorted(cell_keys, np.arange(keys)),
        )

    def __len__(self) -> int:
        return len(self.keys)


class CountWindowOperator(AbstractOperator):
    """Aggregates by key and row number; see the module."""

    def __init__(self, factory: CountWindowFactory) -> None:
        self._factory = factory
        self._mode = factory.mode
        self._slide = factory.slide
        self._cell_rows = math.gcd(factory.size, factory.slide) if self._mode is CountMode.SLIDING else factory.slide
        self._cells_per_window = factory.size // self._cell_rows
        self._aggregator = CellAggregator(factory.input_schema, factory.aggregates)
        self._log = PartialLog(self._aggregator.layout)
        self._slots = KeySlots.of(factory.input_schema, factory.keys)
        self._counts: Integers = np.zeros(0, np.int64)
        self._heads: Integers = np.zeros(0, np.int64)  # log position of each slot's newest cell
        self._previous: Integers = np.zeros(0, np.int64)  # for each log position, that of the slot's cell before it
        self._kept = self._kept_slots = 0
        self._sequence = 0
        self._unchanged = UnchangedTables()

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, None)
        schemas = factory.state_schemas()
        self._tables = SlotTables(self._aggregator.engine, schemas, len(factory.keys), context.max_parallelism)

    # ---- state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back counters and partial results."""
        if restored is None:
            return
        self._sequence = read_sequence(restored)
        slots, (counts,) = self._tables.read_keys(restored, self._slots)
        self._make_room()
        self._counts[slots] = counts
        read = self._tables.read_partials(restored, self._slots)
        if read is None:
            return
        bundle, owners, _ = read
        positions = self._log.append(bundle) + np.arange(len(owners))
        self._previous = extended(self._previous, len(self._log), NOWHERE)
        same = np.concatenate([[False], owners[1:] == owners[:-1]])
        self._previous[positions] = np.where(same, positions - 1, NOWHERE)
        self._heads[owners] = positions  # of equal slots the last one stays
        self._kept = len(self._log)

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """Counters and cells as they are now; what is live among them is found when they are written."""
        tables = self._unchanged.get(self._sequence, self._captured)
        return OperatorSnapshot(operator=sequence_state(self._sequence), segmented=tables)

    def _captured(self) -> Mapping[str, SegmentedTable]:
        if not len(self._slots):
            return no_tables(self._tables.schemas)
        cells = _StoredCells(
            self._tables,
            self._slots.view(),
            self._log.view(),
            self._counts[: len(self._slots)].copy(),
            self._heads[: len(self._slots)].copy(),
            self._previous[: len(self._log)].copy(),
            self._cell_rows,
            self._cells_per_window if self._mode is CountMode.SLIDING else 1,
        )
        return lazy_tables(self._tables.schemas, cells.tables)

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Fold rows into cells and emit the windows that they complete, in the order of the rows that complete them."""
        batch = self._intake.grouped_rows(batch)
        # a running aggregate with side tables repeats them for every firing: fewer rows at a time bound that
        bounded = self._mode is CountMode.ACCUMULATING and self._aggregator.layout.sides
        step = _SIDE_BATCH_ROWS if bounded else max(batch.num_rows, 1)
        for start in range(0, batch.num_rows, step):
            self._process(batch.slice(start, step))

    def _process(self, batch: RecordBatch) -> None:
        located = self._slots.locate([batch.columns.column(k) for k in self._factory.keys], batch.num_rows)
        self._make_room()
        cells = BatchCells.of(located, self._counts[located.slots], self._cell_rows)
        bundle = self._aggregator.lift(batch, cells.row_cells, len(cells), self._sequence)
        self._sequence += batch.num_rows
        bundle = self._with_stored(cells, bundle)
        if self._mode is CountMode.ACCUMULATING:
            bundle = self._aggregator.running(bundle, cells.key_cells[cells.keys])
        self._counts[located.slots] = cells.after
        if self._mode is CountMode.SLIDING:
            first = self._store(cells, bundle, np.arange(len(cells)))
            self._fire_sliding(cells, first)
        else:
            self._fire_full(cells, bundle)
        if len(self._log) > 2 * self._kept + _SPARE_ROWS or len(self._slots) > 2 * self._kept_slots + _SPARE_ROWS:
            self._collect()

    def _with_stored(self, cells: BatchCells, bundle: Bundle) -> Bundle:
        """The cells merged with the stored part of each key's first cell (of all earlier rows when accumulating)."""
        accumulates = self._mode is CountMode.ACCUMULATING
        continued = cells.before > 0 if accumulates else cells.before % self._cell_rows > 0
        if not continued.any():
            return bundle
        stored = self._log.gather(self._heads[cells.located.slots[continued]], cells.key_cells[continued])
        return self._aggregator.merge([stored, bundle])

    def _fire_full(self, cells: BatchCells, bundle: Bundle) -> None:
        """Emit full cells; keep each key's newest cell if it is needed later."""
        full = (cells.numbers + 1) * self._cell_rows <= cells.after[cells.keys]
        fired = np.flatnonzero(full)
        fired = fired[np.argsort(cells.last_rows[fired], kind="stable")]
        slots = cells.located.slots
        newest = np.append(cells.key_cells[1:], len(cells)) - 1
        if self._mode is CountMode.TUMBLING:
            newest = newest[~full[newest]]
            self._heads[slots] = NOWHERE
            self._counts[slots] %= self._cell_rows
        self._store(cells, select_cells(bundle, newest, np.arange(len(newest))), newest)
        for at in range(0, len(fired), MAX_OUTPUT_ROWS):
            part = fired[at : at + MAX_OUTPUT_ROWS]
            self._emit(slots[cells.keys[part]], select_cells(bundle, part, np.arange(len(part))))

    def _store(self, cells: BatchCells, bundle: Bundle, stored: Integers) -> int:
        """Append the partial results of the cells `stored`, the newest of their keys; gives the first position."""
        first = self._log.append(bundle)
        positions = first + np.arange(len(stored))
        self._previous = extended(self._previous, first + len(stored), NOWHERE)
        if self._mode is CountMode.SLIDING:
            self._link(cells, positions)
        self._heads[cells.located.slots[cells.keys[stored]]] = positions  # of equal slots the last one stays
        return first

    def _link(self, cells: BatchCells, positions: Integers) -> None:
        """Chain each cell to the one before it; a key's first cell replaces its stored part, if it had one."""
        heads = self._heads[cells.located.slots]
        open_part = (cells.before % self._cell_rows > 0) & (heads != NOWHERE)
        before = np.where(open_part, self._previous[heads], heads) if len(self._previous) else heads
        previous = positions - 1
        previous[cells.key_cells] = before
        self._previous[positions] = previous

    def _fire_sliding(self, cells: BatchCells, first: int) -> None:
        """Emit the windows that end in the batch, each merged from its cells."""
        windows = cells.after // self._slide - cells.before // self._slide
        keys = np.repeat(np.arange(len(windows)), windows)
        ends = ranges(cells.before // self._slide + 1, windows) * self._slide
        completing = cells.order[cells.key_starts[keys] + ends - 1 - cells.before[keys]]
        by_row = np.argsort(completing, kind="stable")
        keys, ends = keys[by_row], ends[by_row] // self._cell_rows
        starts = np.maximum(ends - self._cells_per_window, 0)
        step = max(1, min(MAX_OUTPUT_ROWS, _EXPANDED_ROWS // self._cells_per_window))
        for at in range(0, len(keys), step):
            self._fire_windows(cells, first, keys[at : at + step], starts[at : at + step], ends[at : at + step])

    def _fire_windows(self, cells: BatchCells, first: int, keys: Integers, starts: Integers, ends: Integers) -> None:
        lengths = ends - starts
        numbers = ranges(starts, lengths)
        owners = np.repeat(keys, lengths)
        own = numbers - cells.numbers[cells.key_cells[owners]]
        positions = first + cells.key_cells[owners] + own
        earlier = own < 0
        if earlier.any():
            chains = self._earlier_cells(cells, first, keys, int(-own.min()))
            row = np.searchsorted(chains[0], owners[earlier])
            positions[earlier] = chains[1][-own[earlier] - 1, row]
        bundle = self._log.gather(positions, np.repeat(np.arange(len(keys)), lengths))
        self._emit(cells.located.slots[keys], self._aggregator.merge([bundle]))

    def _earlier_cells(self, cells: BatchCells, first: int, keys: Integers, steps: int) -> tuple[Integers, Integers]:
        """(keys of the batch, ascending; steps × keys log positions of the 1st, 2nd … cell before the batch's)."""
        distinct = np.unique(keys)
        current = first + cells.key_cells[distinct]
        chains = np.full((steps, len(distinct)), NOWHERE, np.int64)
        for step in range(steps):
            current = np.where(current == NOWHERE, NOWHERE, self._previous[current])
            chains[step] = current
        return distinct, chains

    def _emit(self, slots: Integers, bundle: Bundle) -> None:
        keys = self._slots.keys_of(slots)
        for result in keyed_results(self._factory.output_schema, keys, self._aggregator.engine.finish(bundle)):
            self.output.emit(result)

    # ---- room

    def _make_room(self) -> None:
        self._counts = extended(self._counts, len(self._slots), 0)
        self._heads = extended(self._heads, len(self._slots), NOWHERE)

    def _live_cells(self) -> tuple[Integers, Integers, Integers]:
        chained = self._cells_per_window if self._mode is CountMode.SLIDING else 1
        return live_cells(self._heads[: len(self._slots)], self._previous, chained)

    def _collect(self) -> None:
        """Forget replaced partial results, and keys that have no rows."""
        used = self._counts[: len(self._slots)] > 0
        if 2 * np.count_nonzero(used) < len(used):
            kept = self._slots.forget(used)
            self._counts, self._heads = self._counts[kept], self._heads[kept]
        positions, _, _ = self._live_cells()
        positions = np.sort(positions)
        moved = np.full(len(self._log) + 1, NOWHERE, np.int64)  # the last entry is where NOWHERE goes
        moved[positions] = np.arange(len(positions))
        self._log.keep(positions)
        if len(self._previous):
            self._previous = moved[self._previous[positions]]
        self._heads = moved[self._heads]
        self._kept, self._kept_slots = len(positions), len(self._slots)


@record
class _StoredCells:
    """The state of a subtask at one moment. Immutable: another thread writes it."""

    state_tables: SlotTables
    keys: KeyList
    log: PartialLog
    counts: Integers
    heads: Integers
    previous: Integers
    cell_rows: int
    chained: int

    def tables(self) -> dict[str, pa.Table]:
        """The state tables."""
        live = np.flatnonzero(self.counts > 0)
        tables = {KEYS: self.state_tables.keys(self.keys, [self.counts[live]], live)}
        positions, slots, depths = live_cells(self.heads, self.previous, self.chained)
        bundle = self.log.gather(positions, np.arange(len(positions))) if len(positions) else None
        newest = np.maximum(self.counts[slots] - 1, 0) // self.cell_rows
        return tables | self.state_tables.partials(self.keys, bundle, slots, newest - depths)


def live_cells(heads: Integers, previous: Integers, chained: int) -> tuple[Integers, Integers, Integers]:
    """(log position, slot, how many cells before the slot's newest) of all cells that a window may still need.

    Args:
        heads: log position of each slot's newest cell.
        previous: for each log position, that of the slot's cell before it.
        chained: how many cells of a slot are needed at most.
    """
    slots = np.flatnonzero(heads != NOWHERE)
    current = heads[slots]
    found = [(current, slots, np.zeros(len(slots), np.int64))]
    for depth in range(1, chained):
        before = previous[current]
        slots, current = slots[before != NOWHERE], before[before != NOWHERE]
        if len(slots) == 0:
            break
        found.append((current, slots, np.full(len(slots), depth)))
    positions, owners, depths = (np.concatenate(part) for part in zip(*found, strict=True))
    return positions, owners, depths
