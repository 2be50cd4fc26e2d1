"""Keyed aggregation over sessions, in event or processing time.

A row at t opens the window [t, t + gap); windows of one key that overlap or touch are one session. A batch is sorted by key and
time, cut into runs at gaps, and the runs are merged with the open sessions of their keys; rows are folded into the sessions once.
The semantics are those of Apache Flink's merging `WindowOperator`, and do not depend on how rows are cut into batches:

* A session fires once the watermark reaches its end − 1, in order of end.
* A row is dropped as late only if the session that it would be in (after merging) is already cleaned up: its end − 1 + allowed
  lateness ≤ watermark. So a row behind the watermark may still join, or bridge, open sessions.
* A late row whose session has fired but is not cleaned up gives an updated result at once.
* In processing time a session closes when the clock reaches its end; at the end of bounded input the open sessions fire.

Only for late rows does the order within a batch matter. Keys with late rows are taken in steps (up to a late row, the late row, up
to the next …), all keys together in each step; rows that no open session can save are dropped before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot, SegmentedTable
from flowrun.core.elements import MIN_TIMESTAMP, RecordBatch, concat_batches
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.dense import Slots
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.layout import SESSION_BOUNDS
from flowrun.operators.keyed.lazy_tables import UnchangedTables, lazy_tables, no_tables
from flowrun.operators.timed.assigners import Times
from flowrun.operators.timed.event_rows import LateRows, RowArrivals, RowIntake
from flowrun.operators.timed.firing_clock import FiringClock
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.windows.aggregating_window import AggregatingWindowOperator
from flowrun.operators.windows.partials.partial_tables import PARTIALS, PartialTables
from flowrun.operators.windows.progress import Progress
from flowrun.operators.windows.results import result_batches
from flowrun.operators.windows.sessions.factories import SessionWindowFactory
from flowrun.operators.windows.sessions.intervals import Intervals, end_of, merge_intervals
from flowrun.operators.windows.sessions.store import SESSION, SessionStore, SessionView
from flowrun.state.key_groups import key_groups_or_zero


def session_windows(
    factory: SessionWindowFactory,
    engine: AggregationEngine,
    context: OperatorContext,
    output: Output,
    clock: FiringClock,
) -> SessionWindows:
    """The open sessions of one subtask, put together as a recipe says; `engine` has the recipe's layout."""
    intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, factory.time_column)
    return SessionWindows(
        factory,
        0 if clock.is_processing else factory.allowed_lateness_ms,
        engine,
        RowArrivals(intake, clock),
        LateRows(context, output, factory.late_tag),
        SessionStore(engine, factory.gap_ms),
        PartialTables(engine, context.max_parallelism, SESSION_BOUNDS),
        output,
    )


class SessionWindows:
    """Open sessions; see the module and `OpenWindows`.

    Args:
        factory: the recipe.
        lateness_ms: how long after its end a session still takes rows.
        engine: folds rows, and computes results.
        arrivals: which rows count, and their times.
        late: where dropped rows go.
        store: the sessions.
        tables: the state.
        output: where results go.
    """

    def __init__(
        self,
        factory: SessionWindowFactory,
        lateness_ms: int,
        engine: AggregationEngine,
        arrivals: RowArrivals,
        late: LateRows,
        store: SessionStore,
        tables: PartialTables,
        output: Output,
    ) -> None:
        self.fired = MIN_TIMESTAMP
        self.sequence = 0
        self.next_firing: int | None = None
        self._factory = factory
        self._lateness = lateness_ms
        self._engine = engine
        self._arrivals = arrivals
        self._late = late
        self._store = store
        self._tables = tables
        self._output = output
        self._oldest_end: int | None = None
        self._unchanged = UnchangedTables()

    # ---- state

    def restore(self, restored: OperatorSnapshot, progress: Progress, fired: int) -> None:
        """Take back sessions; each remembers how far its old subtask had fired."""
        self.fired, self.sequence = fired, progress.sequence
        bundle = self._tables.read(restored)
        if bundle.main.num_rows:
            self._restore(bundle, progress)
        self._plan()

    def _restore(self, bundle: Bundle, progress: Progress) -> None:
        keys = bundle.keys[len(SESSION_BOUNDS) :]
        bounds = (bundle.main.column(0).to_numpy(), bundle.main.column(1).to_numpy())
        decoded, rows = self._engine.decode_keys(keys), bundle.main.num_rows
        done = progress.fired_of(key_groups_or_zero(decoded, rows, self._tables.max_parallelism))
        self._store.restore(bundle, keys, bounds, done)

    def snapshot(self) -> Mapping[str, SegmentedTable]:
        """The sessions as they are now, written whole if they have changed."""
        # only rows and the passing of time change sessions
        return self._unchanged.get((self.sequence, self.fired), self._captured)

    def _captured(self) -> Mapping[str, SegmentedTable]:
        if not len(self._store):
            return no_tables(self._tables.schemas)
        return lazy_tables(self._tables.schemas, partial(_written, self._tables, self._store.view()))

    # ---- rows

    @property
    def keys(self) -> tuple[int, ...]:
        """Positions of the key columns."""
        return self._factory.keys

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """(the rows that count, their times)."""
        return self._arrivals.arrive(batch)

    def take(self, rows: RecordBatch, places: Times, fired: int) -> None:
        """Fold rows into sessions; `places` are their times."""
        located = self._store.keys.locate([rows.columns.column(k) for k in self._factory.keys], rows.num_rows)
        positions, numbers = located.local, located.slots
        late = end_of(places, self._factory.gap_ms) - 1 <= fired
        if late.any():
            self._take_with_late(rows, places, positions, numbers, late, fired)
            self._store.forget_idle()
        else:
            self._add(rows.columns, places, positions, numbers, fired)

    def _add(self, columns: pa.RecordBatch, times: Times, positions: Slots, numbers: Slots, fired: int) -> Slots:
        """Fold rows into sessions, whatever the watermark; the session of each row."""
        groups, slots = self._store.add(positions, numbers, times)
        part = self._engine.lift(
            columns,
            self.sequence,
            leading=[(SESSION, pa.array(groups))],
            keyed=False,
            reduce=2 * len(slots) <= columns.num_rows,
        )
        main, sides = slots[part.main.column(0).to_numpy()], [slots[s.column(0).to_numpy()] for s in part.sides]
        self._store.append(part.regrouped(SESSION, main, sides))
        self.sequence += columns.num_rows
        if fired > self.fired:
            self._store.done[slots] = np.maximum(self._store.done[slots], fired)
        least = int(self._store.ends[slots].min())
        self.next_firing = least if self.next_firing is None else min(self.next_firing, least)
        self._oldest_end = least if self._oldest_end is None else min(self._oldest_end, least)
        found: Slots = slots[groups]
        return found

    def _take_with_late(
        self,
        batch: RecordBatch,
        times: Times,
        positions: Slots,
        numbers: Slots,
        late: npt.NDArray[np.bool_],
        fired: int,
    ) -> None:
        closed = max(fired - self._lateness, MIN_TIMESTAMP)
        hopeless = self._hopeless(times, positions, numbers, closed)
        dropped = [np.flatnonzero(hopeless)]
        updated: list[tuple[Slots, list[RecordBatch]]] = []
        rest = np.flatnonzero(~hopeless)
        steps = _steps(positions[rest], late[rest])
        for step in np.unique(steps).tolist():
            rows = rest[steps == step]
            if step % 2:
                keys, at = numbers[positions[rows]], times[rows]
                lost = self._store.touching_end(keys, at) - 1 <= closed
                dropped.append(rows[lost])
                rows = rows[~lost]
            if len(rows) == 0:
                continue
            mine, own = np.unique(positions[rows], return_inverse=True)
            slots = self._add(batch.columns.take(pa.array(rows)), times[rows], own, numbers[mine], fired)
            due = self._store.ends[slots] - 1 <= fired
            if due.any():
                updated.append((rows[due], list(self._results(slots[due]))))
        self._emit_updates(updated)
        lost_rows = np.sort(np.concatenate(dropped))
        if len(lost_rows):
            self._late.drop(batch.take(pa.array(lost_rows)))

    def _hopeless(self, times: Times, positions: Slots, numbers: Slots, closed: int) -> npt.NDArray[np.bool_]:
        """Rows that are dropped in whatever order the batch comes: nothing that is open can reach them."""
        ends = end_of(times, self._factory.gap_ms)
        expired = ends - 1 <= closed
        stored = self._store.intervals_of(numbers)
        merged = merge_intervals(
            Intervals(
                np.concatenate([positions, stored.owners]),
                np.concatenate([times, stored.starts]),
                np.concatenate([ends, stored.ends]),
            )
        )
        alive = np.zeros(len(merged.whole.owners), np.bool_)
        alive[merged.group[: len(times)][~expired]] = True
        alive[merged.group[len(times) :]] = True
        hopeless: npt.NDArray[np.bool_] = expired & ~alive[merged.group[: len(times)]]
        return hopeless

    def _emit_updates(self, updated: list[tuple[Slots, list[RecordBatch]]]) -> None:
        """Send updated results in the order of the rows that caused them."""
        if updated:
            rows = np.concatenate([r for r, _ in updated])
            results = concat_batches([b for _, batches in updated for b in batches])
            self._output.emit(results.take(pa.array(np.argsort(rows))))

    def _results(self, slots: Slots) -> Iterator[RecordBatch]:
        store = self._store
        keys = store.keys.keys_of(store.owners[slots])
        results = self._engine.finish(store.contents(slots))
        return result_batches(self._factory.output_schema, keys, store.starts[slots], store.ends[slots], results)

    # ---- time

    def advance(self, time: int) -> None:
        """Fire sessions, and forget those that take no rows any more."""
        if time <= self.fired:
            return
        fires = self.next_firing is not None and self.next_firing - 1 <= time
        if fires:
            due = self._store.between(self.fired, time)
            if len(due):
                for result in self._results(due):
                    self._output.emit(result)
        self.fired = time
        if self._oldest_end is not None and self._oldest_end - 1 + self._lateness <= time:
            self._store.remove(self._store.until(max(time - self._lateness, MIN_TIMESTAMP)))
            self._oldest_end = self._store.next_end(MIN_TIMESTAMP)
        if fires:
            self.next_firing = self._store.next_end(time) if self._lateness else self._oldest_end

    def _plan(self) -> None:
        self.next_firing = self._store.next_end(self.fired)
        self._oldest_end = self._store.next_end(MIN_TIMESTAMP)


def _steps(positions: Slots, late: npt.NDArray[np.bool_]) -> Slots:
    """When each row is taken: 2 · (late rows of its key before it), plus one for a late row.

    >>> _steps(np.array([0, 0, 1, 0]), np.array([False, True, False, False])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(positions, kind="stable")
    sorted_late = late[order].astype(np.int64)
    before = np.cumsum(sorted_late) - sorted_late
    owner = positions[order]
    first = np.ones(len(owner), np.bool_)
    first[1:] = owner[1:] != owner[:-1]
    starts = np.flatnonzero(first)
    base = np.repeat(before[starts], np.diff(np.append(starts, len(owner))))
    steps = np.empty(len(owner), np.int64)
    steps[order] = 2 * (before - base) + sorted_late
    return steps


def _written(tables: PartialTables, sessions: SessionView) -> dict[str, pa.Table]:
    contents = sessions.contents()
    written = {PARTIALS: tables.rows(PARTIALS, None, contents.main)}
    for index, name in enumerate(tables.engine.layout.side_names):
        written[name] = tables.rows(name, index, contents.sides[index])
    return written


def session_window_operator(factory: SessionWindowFactory) -> StreamOperator:
    """An `AggregatingWindowOperator` over `SessionWindows` that goes by the clocks of the windows' zone."""
    make_windows = partial(session_windows, factory, AggregationEngine(factory.layout))
    return in_zone(AggregatingWindowOperator(factory.domain, make_windows), factory.time_zone)
