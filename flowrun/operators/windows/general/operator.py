"""The general window operator: any assigner, trigger, evictor and window function.

The semantics are those of Apache Flink's `WindowOperator`, `EvictingWindowOperator` and `MergingWindowSet`, row by row, whatever the
batches: each row is added to its windows, the trigger decides, a firing evaluates the window's rows as they are then, an evictor
drops rows for good, purging forgets them; a cleanup timer at the window's last time plus the allowed lateness forgets the window. It
works by batches where it can: rows are grouped by key and window first and stored once; the trigger is asked once a group unless
it must see each row; all firings of a batch or watermark are aggregated together, in the order in which they happened.
Sessions go row by row, because each row may change its window.

After a restore at another parallelism the rows of a key are judged by its old subtask's event time until this one's has caught up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.operator import OperatorContext, Output, StreamOperator
from flowrun.api.state import OperatorSnapshot
from flowrun.api.window_function import Window
from flowrun.api.windowing import TriggerResult
from flowrun.core.arrays import Integers
from flowrun.core.elements import MAX_TIMESTAMP, RecordBatch
from flowrun.core.semantics import TimeDomain
from flowrun.operators.base import AbstractOperator
from flowrun.operators.keyed.key_slots import KeySlots, LocatedKeys
from flowrun.operators.keyed.lazy_tables import lazy_tables, no_tables
from flowrun.operators.timed.assigners import Assignment, Times
from flowrun.operators.timed.event_rows import LateRows, RowIntake, process_at_multiples
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.timers import InternalTimerService, Timer
from flowrun.operators.windows.functions.fired import WindowFunctionRunner, Windows
from flowrun.operators.windows.general.assignment import assigning, cleanup_time, closed_before, merge_sessions
from flowrun.operators.windows.general.contents import OpenWindow, WindowContents
from flowrun.operators.windows.general.evictors import Evictor
from flowrun.operators.windows.general.factories import GeneralWindowFactory, GlobalAssigner
from flowrun.operators.windows.general.firing import Firing, FiringEvaluator
from flowrun.operators.windows.general.tables import ROWS, TIMERS, WINDOWS, WindowTables
from flowrun.operators.windows.general.timer_log import BOUNDS, TimerLog
from flowrun.operators.windows.general.trigger_contract import TriggerContext, TriggerRows
from flowrun.operators.windows.general.user_evictors import CustomEvictor, LoadedEvictor
from flowrun.operators.windows.progress import PROGRESS, Progress
from flowrun.state.key_groups import key_groups_or_zero

_SPARE_ROWS = 64 * 1024


class WindowOperator(AbstractOperator):
    """Keeps the rows of open windows and evaluates them when triggers fire; see the module."""

    def __init__(self, factory: GeneralWindowFactory) -> None:
        self._factory = factory
        self._assigner = factory.assigner
        self._trigger = factory.effective_trigger.loaded()
        self._column = self._trigger.column
        self._processing = factory.domain is TimeDomain.PROCESSING
        self._lateness = 0 if self._processing else factory.allowed_lateness_ms
        self._slots = KeySlots.of(factory.input_schema, factory.keys)
        self._keys: list[tuple[Any, ...]] = []
        self._slot_of: dict[tuple[Any, ...], int] = {}
        self._windows: dict[tuple[int, Window], OpenWindow] = {}
        self._sessions: dict[int, list[Window]] = {}
        """The open windows of each key in order; used where they are sessions."""
        self._contents = WindowContents(factory.input_schema)
        self._runner: WindowFunctionRunner | None = None
        self._evictor: Evictor | LoadedEvictor | None = None
        self._firings: list[Firing] = []
        self._forgotten: list[OpenWindow] = []
        self._kept = self._kept_keys = 0
        self._progress = Progress()
        self._epoch = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Keep context and output, make the timer service, register metrics."""
        super().setup(context, output)
        factory = self._factory
        self._intake = RowIntake(context, factory.input_schema, factory.keys, factory.null_keys, factory.time_column)
        self._late = LateRows(context, output, factory.late_tag)
        self._runner = self._function_runner()
        self._evaluator = FiringEvaluator(factory, self._contents, self._slots, self._runner)
        clocks = (context.processing_time.now_ms, lambda: self.current_watermark)
        self._assign = assigning(factory.assigner, *clocks)
        evictor = factory.evictor
        self._evictor = evictor.loaded(*clocks) if isinstance(evictor, CustomEvictor) else evictor
        self._tables = WindowTables(factory.input_schema, factory.keys, self._contents, context.max_parallelism)
        timers = self._tables.schemas[TIMERS]
        self._timer_log = TimerLog(timers, context.max_parallelism)
        self._timers = InternalTimerService(
            pa.schema([timers.field(i) for i in range(1, 1 + len(factory.keys))]),
            BOUNDS,
            context.max_parallelism,
            context.processing_time,
            self._on_event_timer,
            self._on_processing_timer,
            self._timer_log.changes,
        )
        self._timers.show_next_firing(context)

    def _function_runner(self) -> WindowFunctionRunner | None:
        factory = self._factory
        if factory.function is None:
            return None
        # Imported here, as few windows have a function.
        from flowrun.operators.windows.functions.create_runner import window_function_runner

        return window_function_runner(
            factory.function,
            factory.name,
            factory.keys,
            (factory.input_schema, factory.output_schema),
            factory.side_outputs,
            self.context,
            self.output,
            merging=factory.merging,
        )

    @property
    def passes_watermarks(self) -> bool:
        """Many of them change nothing."""
        return True

    # ---- life and state

    def initialize_state(self, restored: OperatorSnapshot | None) -> None:
        """Take back windows, rows and timers, and the state of the function."""
        if self._runner is not None:
            self._runner.initialize_state(restored)
        if restored is None:
            return
        self._progress = Progress.read(restored).within(self.context.key_groups)
        for window in self._tables.read(restored, self._slots):
            self._windows[window.slot, window.window] = window
            self._sessions.setdefault(window.slot, []).append(window.window)
        for sessions in self._sessions.values():
            sessions.sort()
        self._kept = len(self._contents)
        self._learn_keys()
        for timer, processing in self._tables.read_timers(restored, self._slots, self._keys):
            register = self._timers.register_processing_time if processing else self._timers.register_event_time
            register(*timer)

    def open(self) -> None:
        """Open the window function."""
        if self._runner is not None:
            self._runner.open()

    def close(self) -> None:
        """Wait for no timer; close the window function."""
        self._timers.close()
        if self._runner is not None:
            self._runner.close()

    def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
        """References to windows and rows as they are now: from here on, windows are replaced instead of changed."""
        self._epoch += 1
        schemas = {name: self._tables.schemas[name] for name in (WINDOWS, ROWS)}
        windows = list(self._windows.values())
        tables = lazy_tables(schemas, self._tables.view(windows, self._slots).tables) if windows else no_tables(schemas)
        timers = self._timer_log.snapshot(sum(self._timers.count(domain) for domain in TimeDomain))
        progress = self._progress.advanced(self.context.key_groups, self.current_watermark, 0)
        kept = {} if self._runner is None else self._runner.snapshot()
        return OperatorSnapshot(operator={PROGRESS: progress.as_state()}, segmented={**tables, TIMERS: timers, **kept})

    def _changing(self, opened: OpenWindow) -> OpenWindow:
        """The window itself, or its successor if a snapshot has seen it."""
        if opened.epoch == self._epoch:
            return opened
        changing = self._windows[opened.slot, opened.window] = opened.successor(self._epoch)
        return changing

    # ---- rows

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Add rows to their windows and emit what fires, also between rows where a watermark does that."""
        process_at_multiples(self, batch, self._factory.watermark_step_ms, self._process_rows)

    def _process_rows(self, batch: RecordBatch) -> None:
        batch = self._intake.grouped_rows(batch)
        if batch.num_rows == 0:
            return
        times = self._times(batch)
        located = self._slots.locate([batch.columns.column(k) for k in self._factory.keys], batch.num_rows)
        self._learn_keys()
        watermarks = self._watermarks(located.slots)
        base = self._contents.append(batch, times)
        rows = TriggerRows(times, self._read_by_trigger(batch))
        pairs = self._assign(batch.columns, times)
        add = self._add_to_merging if self._factory.merging else self._add_to_windows
        late = add(pairs, located, rows, watermarks, base)
        if len(late):
            self._late.drop(batch.take(pa.array(late)))
        self._firings.sort(key=lambda f: (f.row, -f.window.end))
        self._emit()
        if len(self._contents) > 2 * self._kept + _SPARE_ROWS or len(self._keys) > 2 * self._kept_keys + _SPARE_ROWS:
            self._collect()

    def _read_by_trigger(self, batch: RecordBatch) -> Sequence[Any] | None:
        column = self._column
        read: Any = (
            batch.columns if self._trigger.reads_rows else None if column is None else batch.columns.column(column)
        )
        return None if read is None else list(read.to_pylist())

    def _times(self, batch: RecordBatch) -> Times:
        """The time by which each row is assigned: event time, or the clock's (in a global window of a stream without event time too)."""
        untimed = batch.timestamps is None and self._factory.time_column is None
        if self._processing or (untimed and isinstance(self._assigner, GlobalAssigner)):
            clock = self.context.wall_clock or self.context.processing_time
            return np.full(batch.num_rows, clock.now_ms(), np.int64)
        return self._intake.event_times(batch)

    def _learn_keys(self) -> None:
        new = np.arange(len(self._keys), len(self._slots))
        if len(new) == 0:
            return
        columns = [c.to_pylist() for c in self._slots.keys_of(new)]
        keys = list(zip(*columns, strict=True)) if columns else [()]
        self._slot_of.update(zip(keys, new.tolist(), strict=True))
        self._keys.extend(keys)

    def _watermarks(self, slots: Integers) -> Integers:
        """Event time of each key: this subtask's, or that of the key's old subtask if it was ahead."""
        if self._progress.most <= self.current_watermark:
            return np.full(len(slots), self.current_watermark, np.int64)
        groups = key_groups_or_zero(self._slots.keys_of(slots), len(slots), self.context.max_parallelism)
        reached: Integers = np.maximum(self._progress.fired_of(groups), self.current_watermark)
        return reached

    def _watermark(self, slot: int) -> int:
        ahead = self._progress.most > self.current_watermark
        return int(self._watermarks(np.array([slot]))[0]) if ahead else self.current_watermark

    def _add_to_windows(
        self, pairs: Assignment, located: LocatedKeys, rows: TriggerRows, watermarks: Integers, base: int
    ) -> Integers:
        """Add rows to windows that do not merge; gives the late rows."""
        late = np.zeros(0, np.int64)
        if not self._processing:
            closed = closed_before(watermarks, self._lateness)[located.local]
            endless = isinstance(self._assigner, GlobalAssigner)
            last_times = pairs.ends if endless else pairs.ends - 1
            live = last_times > closed[pairs.rows]
            skipped = np.ones(len(rows.times), np.bool_)
            skipped[pairs.rows[live]] = False
            late = np.flatnonzero(skipped & ((rows.times <= closed) | endless))
            pairs = pairs.filter(live)
        for at in _groups(located.local[pairs.rows], pairs):
            first = at[0]
            key = int(located.local[pairs.rows[first]])
            window = Window(int(pairs.starts[first]), int(pairs.ends[first]))
            self._add(int(located.slots[key]), window, pairs.rows[at], rows, int(watermarks[key]), base)
        return late

    def _add(self, slot: int, window: Window, added: Integers, rows: TriggerRows, watermark: int, base: int) -> None:
        """Add rows of the batch to a window, in order; fire and purge in between as its trigger says."""
        known = self._windows.get((slot, window))
        if known is None:
            opened = self._windows[slot, window] = OpenWindow(slot, window, epoch=self._epoch)
        else:
            opened = self._changing(known)
        values = [rows.values[i] for i in added.tolist()] if rows.values is not None else None
        context = self._context(opened, watermark)
        decisions = self._trigger.on_elements(TriggerRows(rows.times[added], values), window, context)
        done = 0
        for position, result in decisions:
            opened.add(base + added[done : position + 1])
            done = position + 1
            self._apply(opened, result, int(added[position]))
        opened.add(base + added[done:])
        self._register_cleanup(opened)

    def _add_to_merging(
        self, pairs: Assignment, located: LocatedKeys, rows: TriggerRows, watermarks: Integers, base: int
    ) -> Integers:
        """Add rows to windows that merge, one by one; gives the late rows."""
        late = np.ones(len(rows.times), np.bool_)
        keys = located.local.tolist()
        slots, reached = located.slots.tolist(), watermarks.tolist()
        closed = closed_before(watermarks, self._lateness).tolist()
        for row, start, end in zip(pairs.rows.tolist(), pairs.starts.tolist(), pairs.ends.tolist(), strict=True):
            slot = slots[keys[row]]
            sessions = self._sessions.setdefault(slot, [])
            merged, covered = merge_sessions(sessions, Window(start, end))
            if not self._processing and merged.max_timestamp <= closed[keys[row]]:
                continue
            late[row] = False
            if sessions[covered] != [merged]:
                self._merge(slot, merged, sessions[covered], reached[keys[row]])
                sessions[covered] = [merged]
            self._add(slot, merged, np.array([row]), rows, reached[keys[row]], base)
        if self._processing:
            return np.zeros(0, np.int64)
        # rows without a window are late as soon as event time is past them
        return np.flatnonzero(late & (rows.times <= closed_before(watermarks, self._lateness)[located.local]))

    def _merge(self, slot: int, merged: Window, covered: Sequence[Window], watermark: int) -> None:
        """Let one window take over the rows and the trigger state of those that it covers."""
        opened = OpenWindow(slot, merged, epoch=self._epoch)
        olds = [self._changing(self._windows[slot, w]) for w in covered]
        for old in olds:
            del self._windows[slot, old.window]
        if olds:
            for old in olds:
                opened.take_over(old)
            contexts = [self._context(o, watermark) for o in olds]
            self._trigger.on_merge(merged, contexts, self._context(opened, watermark))
            for old, context in zip(olds, contexts, strict=True):
                self._trigger.clear(old.window, context)
                self._delete_cleanup(old)
        self._windows[slot, merged] = opened

    # ---- firing

    def _context(self, opened: OpenWindow, watermark: int) -> TriggerContext:
        key, window = self._keys[opened.slot], opened.window

        def register(processing: bool, time: int) -> None:
            if processing:
                self._timers.register_processing_time(time, key, window)
            else:
                self._timers.register_event_time(time, key, window)

        def delete(processing: bool, time: int) -> None:
            if processing:
                self._timers.delete_processing_time(time, key, window)
            elif self._processing or time != cleanup_time(window, self._lateness):
                self._timers.delete_event_time(time, key, window)

        now = self.context.processing_time.now_ms()
        return TriggerContext(watermark, now, opened.state, register, delete)

    def _apply(self, opened: OpenWindow, result: TriggerResult, row: int = 0) -> None:
        """Do what a trigger decided; `row` is the row of the batch that made it."""
        if result.fires:
            positions = self._evict(opened, opened.positions, after=False)
            if len(positions):
                self._firings.append(Firing(row, opened.slot, opened.window, positions))
                self._evict(opened, positions, after=True)
        if result.purges:
            opened.replace(np.zeros(0, np.int64))

    def _evict(self, opened: OpenWindow, positions: Integers, *, after: bool) -> Integers:
        evictor = self._evictor
        if evictor is None or len(positions) == 0:
            return positions
        if isinstance(evictor, LoadedEvictor):
            if not evictor.evicts(after=after):
                return positions
            rows, times = self._contents.timed_rows(positions)
            mask = evictor.kept(rows, times, opened.window, after=after)
        elif evictor.after is after:
            mask = evictor.kept(self._contents.evictable(positions, evictor.column))
        else:
            return positions
        kept: Integers = positions[mask]
        opened.replace(kept)
        return kept

    def _emit(self) -> None:
        firings, self._firings = self._firings, []
        for result in self._evaluator.results(firings, self.current_watermark):
            self.output.emit(result)
        forgotten, self._forgotten = self._forgotten, []
        if forgotten and self._runner is not None:
            keys = self._slots.keys_of(np.array([w.slot for w in forgotten]))
            starts = np.array([w.window.start for w in forgotten], np.int64)
            ends = np.array([w.window.end for w in forgotten], np.int64)
            self._runner.clear(Windows(keys, starts, ends, self.current_watermark))

    # ---- time

    def on_watermark(self, timestamp: int) -> None:
        """Fire the timers that are due."""
        self._timers.advance_watermark(timestamp)
        self._emit()

    def _on_event_timer(self, timer: Timer) -> None:
        self._on_timer(timer, processing=False)

    def _on_processing_timer(self, timer: Timer) -> None:
        self._on_timer(timer, processing=True)
        self._emit()

    def _on_timer(self, timer: Timer, *, processing: bool) -> None:
        slot = self._slot_of.get(timer.key)
        known = None if slot is None else self._windows.get((slot, Window(*timer.namespace)))
        if known is None:
            return
        opened = self._changing(known)
        context = self._context(opened, self._watermark(opened.slot))
        ask = self._trigger.on_processing_time if processing else self._trigger.on_event_time
        self._apply(opened, ask(timer.timestamp, opened.window, context))
        if processing is self._processing and timer.timestamp >= cleanup_time(opened.window, self._lateness):
            self._forget(opened, context)

    def _forget(self, opened: OpenWindow, context: TriggerContext) -> None:
        del self._windows[opened.slot, opened.window]
        self._trigger.clear(opened.window, context)
        sessions = self._sessions.get(opened.slot)
        if sessions is not None:
            place = bisect_left(sessions, opened.window)
            if place < len(sessions) and sessions[place] == opened.window:
                del sessions[place]
        if self._runner is not None and self._runner.wants_clear:
            self._forgotten.append(opened)
            if self._runner.clears_in_turn:
                self._emit()

    def _register_cleanup(self, opened: OpenWindow) -> None:
        time = cleanup_time(opened.window, self._lateness)
        if time == MAX_TIMESTAMP:
            return
        key = self._keys[opened.slot]
        if self._processing:
            self._timers.register_processing_time(time, key, opened.window)
        else:
            self._timers.register_event_time(time, key, opened.window)

    def _delete_cleanup(self, opened: OpenWindow) -> None:
        time, key = cleanup_time(opened.window, self._lateness), self._keys[opened.slot]
        self._timers.delete_event_time(time, key, opened.window)
        self._timers.delete_processing_time(time, key, opened.window)

    def finish(self) -> None:
        """In processing time, let what is open fire at the regular end of bounded input."""
        if not self._processing or self.current_watermark != MAX_TIMESTAMP:
            return
        for known in sorted(self._windows.values(), key=lambda w: (w.window.end, w.slot)):
            opened = self._changing(known)
            context = self._context(opened, MAX_TIMESTAMP)
            last = opened.window.max_timestamp
            self._apply(opened, self._trigger.on_processing_time(last, opened.window, context))
            self._forget(opened, context)
            self._delete_cleanup(opened)
        self._emit()

    # ---- room

    def _collect(self) -> None:
        """Forget rows that are in no window, and keys without windows."""
        self._contents.keep([self._changing(w) for w in list(self._windows.values())])
        self._kept = len(self._contents)
        used = np.zeros(len(self._slots), np.bool_)
        used[[w.slot for w in self._windows.values()]] = True
        if 2 * np.count_nonzero(used) < len(used):
            kept = self._slots.forget(used).tolist()
            renumbered = {old: new for new, old in enumerate(kept)}
            self._keys = [self._keys[s] for s in kept]
            self._slot_of = {k: renumbered[s] for k, s in self._slot_of.items() if s in renumbered}
            windows = list(self._windows.values())
            for window in windows:
                window.slot = renumbered[window.slot]
            self._windows = {(w.slot, w.window): w for w in windows}
            self._sessions = {renumbered[s]: w for s, w in self._sessions.items() if s in renumbered}
        self._kept_keys = len(self._keys)


def _groups(keys: Integers, pairs: Assignment) -> Iterable[Integers]:
    """The pairs of each key and window, in order of row."""
    if len(keys) == 0:
        return []
    order = np.lexsort((pairs.rows, pairs.starts, pairs.ends, keys))
    keys, starts, ends = keys[order], pairs.starts[order], pairs.ends[order]
    begins = np.flatnonzero((keys[1:] != keys[:-1]) | (ends[1:] != ends[:-1]) | (starts[1:] != starts[:-1])) + 1
    return np.split(order, begins)


def general_window_operator(factory: GeneralWindowFactory) -> StreamOperator:
    """The operator that windows need, by the clocks of their zone."""
    if factory.collects:
        # Imported here, as few windows have a function.
        from flowrun.operators.windows.general.collected import CollectedWindowOperator

        return in_zone(CollectedWindowOperator(factory), factory.time_zone)
    return in_zone(WindowOperator(factory), factory.time_zone)
