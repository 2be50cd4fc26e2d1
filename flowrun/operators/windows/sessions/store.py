"""Open sessions of all keys: bounds in arrays, found by key; partial results in a log that is merged when it pays.

A session is a slot: a row of the arrays below. Slots of one key are chained. Partial results carry their slot; when sessions merge,
one slot survives and the others become aliases of it, so nothing that is stored moves. The log is compacted (aliases resolved,
dead rows dropped, slots merged) when it has grown to more than twice what was left the last time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.dense import Slots
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.layout import SESSION_BOUNDS
from flowrun.operators.keyed.key_slots import KeyList, KeySlots
from flowrun.operators.keyed.state_arrays import extended, resized, room_for
from flowrun.operators.timed.assigners import Times
from flowrun.operators.windows.partials.part_log import TieredParts
from flowrun.operators.windows.sessions.intervals import Intervals, MergedIntervals, merge_intervals, runs_of

SESSION = "session"
_MIN_LOG_ROWS = 128 * 1024
_MIN_IDLE_KEYS = 4096
_NONE = -1


class SessionStore:
    """Open sessions; all methods take keys by number (`keys`)."""

    def __init__(self, engine: AggregationEngine, gap_ms: int) -> None:
        self._engine = engine
        self._gap_ms = gap_ms
        self.keys = KeySlots(engine.layout.key_codec)
        self._kept_keys = 0
        self._heads = np.zeros(0, np.int64)
        self._next = np.zeros(0, np.int64)
        self._alias = np.zeros(0, np.int64)
        self._aliased = False
        self._free: Slots = np.zeros(0, np.int64)
        self._limbo: list[Slots] = []
        self._log = TieredParts()
        self._settled_rows = 0
        self._alive: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.starts: Times = np.zeros(0, np.int64)
        self.ends: Times = np.zeros(0, np.int64)
        self.owners: Slots = np.zeros(0, np.int64)
        self.done: Times = np.zeros(0, np.int64)
        """Event time up to which another subtask had fired a restored session; MIN_TIMESTAMP for own ones."""

    # ---- sessions

    def touching_end(self, numbers: Slots, times: Times) -> Times:
        """End of the session that a single row of each key would be in."""
        ends = np.minimum(times, np.iinfo(np.int64).max - self._gap_ms) + self._gap_ms
        owners, slots = self._sessions_of(numbers)
        joins = (self.starts[slots] <= ends[owners]) & (times[owners] <= self.ends[slots])
        np.maximum.at(ends, owners[joins], self.ends[slots[joins]])
        return ends

    def __len__(self) -> int:
        return int(self._alive.sum())

    def intervals_of(self, numbers: Slots) -> Intervals:
        """The open sessions of keys; owners are positions in `numbers`."""
        owners, slots = self._sessions_of(numbers)
        return Intervals(owners, self.starts[slots], self.ends[slots])

    def add(self, positions: Slots, numbers: Slots, times: Times) -> tuple[Slots, Slots]:
        """Open, extend and merge sessions for rows; (group of each row, slot of each group).

        Args:
            positions: per row, position of its key in `numbers`.
            numbers: keys, each once.
            times: of the rows.
        """
        runs = runs_of(positions, times, self._gap_ms)
        owners, slots = self._sessions_of(numbers)
        run_count = len(runs.whole.owners)
        known = np.concatenate([np.full(run_count, _NONE), slots])
        merged = (
            MergedIntervals(np.arange(run_count), runs.whole)
            if len(slots) == 0
            else merge_intervals(
                Intervals(
                    np.concatenate([runs.whole.owners, owners]),
                    np.concatenate([runs.whole.starts, self.starts[slots]]),
                    np.concatenate([runs.whole.ends, self.ends[slots]]),
                )
            )
        )
        survivors = self._unite(merged, known)
        self._link(merged.whole.owners, numbers, survivors)
        return merged.group[:run_count][runs.group], survivors

    def _unite(self, merged: MergedIntervals, known: Slots) -> Slots:
        """The slot of each merged session: one of those that it is made of, or a new one."""
        survivors = np.full(len(merged.whole.owners), _NONE)
        stored = np.flatnonzero(known >= 0)
        survivors[merged.group[stored]] = known[stored]
        into = survivors[merged.group[stored]]
        gone = into != known[stored]
        if gone.any():
            dead, into = known[stored][gone], into[gone]
            self._alias[dead] = into
            self._aliased = True
            np.maximum.at(self.done, into, self.done[dead])
            self._bury(dead)
        fresh = survivors < 0
        survivors[fresh] = self._allocate(int(fresh.sum()))
        self.starts[survivors] = merged.whole.starts
        self.ends[survivors] = merged.whole.ends
        return survivors

    def _link(self, owners: Slots, numbers: Slots, slots: Slots) -> None:
        """Make `slots`, ordered by owner, all the sessions of the keys `numbers[owners]`."""
        self.owners[slots] = numbers[owners]
        same = np.zeros(len(slots), np.bool_)
        same[:-1] = owners[1:] == owners[:-1]
        following = np.full(len(slots), _NONE)
        following[:-1] = slots[1:]
        self._next[slots] = np.where(same, following, _NONE)
        first = np.ones(len(slots), np.bool_)
        first[1:] = ~same[:-1]
        self._heads[numbers[owners[first]]] = slots[first]

    def _sessions_of(self, numbers: Slots) -> tuple[Slots, Slots]:
        """(position in `numbers`, slot) of every session of these keys."""
        self._heads = extended(self._heads, len(self.keys), _NONE)
        owners, slots = np.arange(len(numbers)), self._heads[numbers]
        all_owners, all_slots = [], []
        while len(slots):
            found = slots >= 0
            owners, slots = owners[found], slots[found]
            all_owners.append(owners)
            all_slots.append(slots)
            slots = self._next[slots]
        return np.concatenate([*all_owners, owners]), np.concatenate([*all_slots, slots])

    def between(self, after: int, until: int) -> Slots:
        """Sessions whose last moment (end − 1) lies in (after, until], by end, that no other subtask had fired."""
        last = self.ends - 1
        due = np.flatnonzero(self._alive & (last > after) & (last <= until) & (last > self.done))
        return due[np.argsort(self.ends[due], kind="stable")]

    def until(self, time: int) -> Slots:
        """Sessions whose last moment is at or before `time`."""
        return np.flatnonzero(self._alive & (self.ends - 1 <= time))

    def next_end(self, after: int) -> int | None:
        """The least end of a session whose last moment is after `after`."""
        open_ = self._alive & (self.ends - 1 > after)
        return int(np.min(self.ends, initial=MAX_TIMESTAMP, where=open_)) if open_.any() else None

    def remove(self, slots: Slots) -> None:
        """Forget sessions, and keys that have no other."""
        if len(slots) == 0:
            return
        self._bury(slots)
        touched = np.zeros(len(self.keys), np.bool_)
        touched[self.owners[slots]] = True
        numbers = np.flatnonzero(touched)
        owners, all_slots = self._sessions_of(numbers)
        kept = self._alive[all_slots]
        owners, all_slots = owners[kept], all_slots[kept]
        self._heads[numbers] = _NONE
        order = np.argsort(owners, kind="stable")
        self._link(owners[order], numbers, all_slots[order])
        self.forget_idle()

    # ---- partial results

    def append(self, part: Bundle) -> None:
        """Add partial results grouped by slot."""
        self._log.append(part)
        if self._log.rows > max(2 * self._settled_rows, _MIN_LOG_ROWS):
            self.compact()

    def contents(self, slots: Slots) -> Bundle:
        """Merged partial results of sessions, grouped by position in `slots`."""
        return merged_contents(self._engine, self._log.bundles, self._current_alias, slots, len(self._alias))

    @property
    def _current_alias(self) -> Slots | None:
        return self._alias if self._aliased else None

    def compact(self) -> None:
        """Merge the log and drop what is dead."""
        if self._log.bundles:
            slot = np.where(self._alive, np.arange(len(self._alive)), _NONE)
            parts = [_renamed(b, slot, self._current_alias) for b in self._log.bundles]
            merged = self._engine.merge(concat_bundles(parts))
            self._log.clear()
            self._log.append(merged)
            self._settled_rows = merged.num_rows
        if self._limbo:
            freed = np.concatenate(self._limbo)
            self._alias[freed] = freed
            self._free = np.concatenate([self._free, freed])
            self._limbo = []
            self._aliased = False

    def view(self) -> SessionView:
        """All open sessions as they are now. Copies the arrays, computes nothing."""
        return SessionView(
            self._engine,
            tuple(self._log.bundles),
            self.keys.view(),
            self._alias.copy() if self._aliased else None,
            self._alive.copy(),
            self.starts.copy(),
            self.ends.copy(),
            self.owners.copy(),
        )

    def restore(self, bundle: Bundle, keys: list[pa.Array], bounds: tuple[Times, Times], done: Times) -> None:
        """Take back sessions: merged partial results grouped by anything, and per main row its key, bounds and `done`."""
        located = self.keys.locate(self._engine.decode_keys(keys), len(done))
        positions, numbers = located.local, located.slots
        self._sessions_of(numbers)
        slots = self._allocate(len(done))
        order = np.argsort(positions, kind="stable")
        self.starts[slots], self.ends[slots], self.done[slots] = *bounds, done
        self._link(positions[order], numbers, slots[order])
        side_slots = [slots[self._engine.side_rows(bundle, side)] for side in bundle.sides]
        self._log.append(bundle.regrouped(SESSION, slots, side_slots))

    def forget_idle(self) -> None:
        """Forget keys that have no session once they are the larger part; the others are numbered anew."""
        count = len(self.keys)
        if count <= 2 * self._kept_keys + _MIN_IDLE_KEYS:
            return
        heads = extended(self._heads, count, _NONE)[:count]
        live = heads >= 0
        self._kept_keys = int(np.count_nonzero(live))
        if count <= 2 * self._kept_keys + _MIN_IDLE_KEYS:
            return
        kept = self.keys.forget(live)
        renumbered = np.full(count, _NONE)
        renumbered[kept] = np.arange(len(kept))
        alive = np.flatnonzero(self._alive)
        self.owners[alive] = renumbered[self.owners[alive]]
        self._heads = heads[kept]

    # ---- slots

    def _allocate(self, count: int) -> Slots:
        if len(self._free) < count:
            size = len(self._alias)
            room = room_for(size + count - len(self._free), size, self._alias.itemsize)
            self._next, self.owners = resized(self._next, room, _NONE), resized(self.owners, room, _NONE)
            self.starts, self.ends = resized(self.starts, room), resized(self.ends, room)
            self.done = resized(self.done, room, MIN_TIMESTAMP)
            self._alias, self._alive = resized(self._alias, room), resized(self._alive, room)
            self._alias[size:] = np.arange(size, room)
            self._free = np.concatenate([self._free, self._alias[size:]])
        taken, self._free = self._free[:count], self._free[count:]
        self._alive[taken] = True
        self.done[taken] = MIN_TIMESTAMP
        return taken

    def _bury(self, slots: Slots) -> None:
        """Slots without a session; they stay taken until the log no longer mentions them."""
        self._alive[slots] = False
        self._limbo.append(slots)


@record
class SessionView:
    """The open sessions at one moment. Immutable: may be read by another thread while the store goes on."""

    engine: AggregationEngine
    bundles: tuple[Bundle, ...]
    keys: KeyList
    alias: Slots | None
    alive: npt.NDArray[np.bool_]
    starts: Times
    ends: Times
    owners: Slots

    def contents(self) -> Bundle:
        """Merged partial results, grouped by key columns, start and end of the session."""
        slots = np.flatnonzero(self.alive)
        merged = merged_contents(self.engine, self.bundles, self.alias, slots, len(self.alive))
        keys = self.engine.encode_keys(self.keys.keys_of(self.owners[slots]), len(slots))
        columns = [*keys, pa.array(self.starts[slots]), pa.array(self.ends[slots])]
        names = [*self.engine.key_names, *SESSION_BOUNDS]
        main, *sides = (_with_groups(t, columns, names) for t in (merged.main, *merged.sides))
        return Bundle(len(names), main, tuple(sides))


def merged_contents(
    engine: AggregationEngine, bundles: Sequence[Bundle], alias: Slots | None, slots: Slots, capacity: int
) -> Bundle:
    """Merged partial results of sessions, grouped by position in `slots`; `capacity` is one more than the highest slot."""
    position = np.full(capacity, _NONE)
    position[slots] = np.arange(len(slots))
    parts = [_renamed(b, position, alias) for b in bundles]
    if not parts:
        return engine.nothing([SESSION])
    return engine.merge(concat_bundles([p for p in parts if p.num_rows] or parts)).ordered_by_leading()


def _renamed(part: Bundle, names: Slots, alias: Slots | None) -> Bundle:
    """The rows whose slot, or the survivor of which it is an alias, has a name ≥ 0, with the name in its place."""
    main, *sides = (_rename(t, names, alias) for t in (part.main, *part.sides))
    return Bundle(part.groups, main, tuple(sides))


def _rename(table: pa.RecordBatch, names: Slots, alias: Slots | None) -> pa.RecordBatch:
    slots = table.column(0).to_numpy()
    while alias is not None:
        survivors = alias[slots]
        if np.array_equal(survivors, slots):
            break
        slots = survivors
    named = names[slots]
    keep = named >= 0
    if keep.all():
        return table.set_column(0, SESSION, pa.array(named))
    return table.filter(pa.array(keep)).set_column(0, SESSION, pa.array(named[keep]))


def _with_groups(table: pa.RecordBatch, columns: list[pa.Array], names: list[str]) -> pa.RecordBatch:
    """The group columns of the sessions, taken by the position in the table's first column, in its place."""
    positions = table.column(0)
    taken = [c.take(positions) for c in columns]
    return pa.RecordBatch.from_arrays([*taken, *table.columns[1:]], names=[*names, *table.schema.names[1:]])
