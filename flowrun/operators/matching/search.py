"""The search for matches: all rows where a match may start are followed at once, a row a round.

The semantics of Apache Flink's CEP library for strictly contiguous patterns: a match is found from the earliest start that can be
completed, where it is completed first; a greedy variable takes every row that it may take, so that what follows gets a row only if the
greedy one may not have it (there is no going back, and none either where it would take more rows than its quantifier allows); a reluctant
one leaves both ways open, and so does an optional one. A round costs in proportion to the partial matches that are still possible.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.matching.pattern import Condition, Pattern, Skip
from flowrun.operators.matching.references import OrderedRows, Partials, ReferenceReader


@record
class Found:
    """What a search found.

    Attributes:
        matches: complete, in order of their first rows; none starts where another one's skipping forbids it.
        needed: for each row whether it may still be part of a match, or be looked at from one.
        may_start: for each row whether a match may still start there.
    """

    matches: Partials
    needed: Bools
    may_start: Bools


class PatternSearch:
    """Finds the matches of one pattern in rows of one schema."""

    def __init__(self, pattern: Pattern, schema: Schema) -> None:
        self._pattern = pattern
        self._conditions = [_CompiledCondition(c, schema) for c in pattern.conditions]

    def search(self, rows: OrderedRows, may_start: Bools) -> Found:
        """The matches in the rows of some keys.

        Args:
            rows: all rows of these keys that are needed.
            may_start: for each row whether a match may start there.
        """
        masks = [c.local_mask(rows) for c in self._conditions]
        complete, pending = self._follow(rows, masks, np.flatnonzero(may_start))
        matches, allowed = self._skipped(rows, complete, pending, may_start)
        needed, open_starts = self._still_needed(rows, pending, allowed)
        return Found(matches, needed, open_starts)

    # ---- partial matches, a row a round

    def _follow(self, rows: OrderedRows, masks: list[Bools], starts: Integers) -> tuple[Partials, Integers]:
        """(for each start that was completed its first completion, starts that more rows may complete)."""
        width = len(self._pattern.variables)
        none = np.zeros((len(starts), width), np.int64)
        active = Partials(starts, starts - 1, np.full(len(starts), -1), none, none.copy())
        complete: list[Partials] = []
        pending: list[Integers] = []
        while len(active):
            at_end = active.last + 1 >= rows.ends[active.start]
            pending.append(active.start[at_end])
            active = self._within(rows, active.take(~at_end))
            active = self._step(rows, masks, active)
            done = self._is_complete(active)
            if done.any():
                finished = active.take(done)
                _, firsts = np.unique(finished.start, return_index=True)
                complete.append(finished.take(firsts))
                active = active.take(~np.isin(active.start, finished.start))
        completed = Partials.joined(complete) if complete else active
        completed = completed.take(np.argsort(completed.start, kind="stable"))
        return completed, np.unique(np.concatenate([*pending, np.zeros(0, np.int64)]))

    def _within(self, rows: OrderedRows, active: Partials) -> Partials:
        limit = self._pattern.within_ms
        if limit is None:
            return active
        return active.take(rows.times[active.last + 1] - rows.times[active.start] < limit)

    def _step(self, rows: OrderedRows, masks: list[Bools], active: Partials) -> Partials:
        """The partial matches that take one more row."""
        taken: list[Partials] = []
        variables = self._pattern.variables
        open_ = np.ones(len(active), np.bool_)  # whether a later variable may have the row
        order = np.arange(len(active))
        origins: list[Integers] = []
        for candidate in range(len(variables)):
            reachable = open_ & self._may_take(active, candidate)
            chosen = np.flatnonzero(reachable)
            chosen = chosen[masks[candidate][active.last[chosen] + 1]]
            advanced = active.take(chosen).advanced(candidate)
            if len(chosen):
                holds = self._conditions[candidate].dependent_mask(rows, advanced)
                chosen, advanced = chosen[holds], advanced.take(holds)
                taken.append(advanced)
                origins.append(order[chosen])
                if variables[candidate].greedy:
                    open_[chosen] = False
            if variables[candidate].keeps_rows_from_others:
                open_[self._wanted(rows, masks, active, candidate, open_)] = False
        if not taken:
            return active.take(np.zeros(0, np.int64))
        # later variables first: of two ways to complete a match with one row, the one that is further on counts
        origin = np.concatenate(origins[::-1])
        return Partials.joined(taken[::-1]).take(np.argsort(origin, kind="stable"))

    def _wanted(
        self, rows: OrderedRows, masks: list[Bools], active: Partials, candidate: int, open_: Bools
    ) -> Integers:
        """The partial matches whose next row the variable would take if it had not taken as many as it may."""
        full = active.count[:, candidate] == self._pattern.variables[candidate].most
        chosen = np.flatnonzero(open_ & full & (active.variable == candidate))
        chosen = chosen[masks[candidate][active.last[chosen] + 1]]
        wanted = chosen[self._conditions[candidate].dependent_mask(rows, active.take(chosen).advanced(candidate))]
        return wanted if len(chosen) else chosen

    def _may_take(self, active: Partials, candidate: int) -> Bools:
        """Whether the variable may take the next row: it took the last one and has room, or everything before it has had enough."""
        variables = self._pattern.variables
        current = active.variable
        most = variables[candidate].most
        stays = current == candidate
        if most is not None and len(active):
            stays &= active.count[:, candidate] < most
        reached = np.zeros(len(active), np.bool_)
        for before in range(candidate - 1, -2, -1):
            here = current == before
            enough = active.count[:, before] >= variables[before].least if before >= 0 else True
            reached |= here & enough
            if before >= 0 and variables[before].least > 0:
                break
        may: Bools = stays | reached
        return may

    def _is_complete(self, active: Partials) -> Bools:
        variables = self._pattern.variables
        done = np.zeros(len(active), np.bool_)
        for last in range(len(variables) - 1, -1, -1):
            done |= (active.variable == last) & (active.count[:, last] >= variables[last].least)
            if variables[last].least > 0:
                break
        return done

    # ---- after a match

    def _skipped(
        self, rows: OrderedRows, complete: Partials, pending: Integers, may_start: Bools
    ) -> tuple[Partials, Bools]:
        """The matches that count, in order, and the rows where a match may still start after them.

        A match counts when no earlier start of its key is still open; what it skips can no longer start one.
        """
        allowed = may_start.copy()
        begins = rows.begins[complete.start]
        at = np.searchsorted(pending, complete.start)
        before = np.append(pending, -1)[at - 1] if len(pending) else np.full(len(complete), -1)
        before = np.where(at > 0, before, -1)  # the last open start before each match
        kept: list[int] = []
        resume: dict[int, int] = {}
        following = self._next_starts(complete)
        columns = (complete.start, following, begins, before)
        for i, (start, after, key, earlier) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            least = resume.get(key, key)
            if start >= least > earlier:
                kept.append(i)
                resume[key] = after
                allowed[start:after] = False
        return complete.take(np.array(kept, np.int64)), allowed

    def _next_starts(self, matches: Partials) -> Integers:
        """The first row after each match where another one may start."""
        pattern = self._pattern
        if pattern.skip is Skip.PAST_LAST_ROW:
            return matches.last + 1
        if pattern.skip is Skip.TO_NEXT_ROW:
            return matches.start + 1
        assert pattern.skip_to is not None
        first, count = matches.first[:, pattern.skip_to], matches.count[:, pattern.skip_to]
        wanted = first if pattern.skip is Skip.TO_FIRST else first + count - 1
        # without such a row, or back at its start, the search goes on with the next row: it must not stand still
        return np.where(count > 0, np.maximum(wanted, matches.start + 1), matches.start + 1)

    def _still_needed(self, rows: OrderedRows, pending: Integers, allowed: Bools) -> tuple[Bools, Bools]:
        """Rows from the first open start of each key on, and those before it that conditions may look at."""
        begins = np.unique(rows.begins)
        ends = rows.ends[begins]
        still = pending[allowed[pending]]
        at = np.append(still, len(rows))[np.searchsorted(still, begins)]
        starts = np.minimum(at, ends)  # of a key without an open start: its end, so that nothing of it is left
        earliest = np.maximum(begins, starts - self._pattern.lookback)
        return _covered(earliest, ends, len(rows)), _covered(starts, ends, len(rows)) & allowed


def _covered(starts: Integers, ends: Integers, rows: int) -> Bools:
    """Whether each row is in one of some ranges, which do not overlap."""
    steps = np.zeros(rows + 1, np.int64)
    np.add.at(steps, starts, 1)
    np.add.at(steps, ends, -1)
    covered: Bools = np.cumsum(steps[:-1]) > 0
    return covered


class _CompiledCondition:
    def __init__(self, condition: Condition, schema: Schema) -> None:
        self._local = condition.local.compile() if condition.local is not None else None
        self._dependent = condition.dependent.compile() if condition.dependent is not None else None
        self._local_reader = ReferenceReader(condition.local_references, schema)
        self._reader = ReferenceReader(condition.references, schema)

    def local_mask(self, rows: OrderedRows) -> Bools:
        """For each row whether the local condition holds."""
        if self._local is None:
            return np.ones(len(rows), np.bool_)
        every = np.arange(len(rows))
        alone = Partials(every, every, every, every.reshape(-1, 1), np.ones((len(rows), 1), np.int64))
        return _mask(self._local, self._local_reader.read(rows, alone))

    def dependent_mask(self, rows: OrderedRows, advanced: Partials) -> Bools:
        """For each partial match whether the row that it took last may be taken."""
        if self._dependent is None:
            return np.ones(len(advanced), np.bool_)
        return _mask(self._dependent, self._reader.read(rows, advanced))


def _mask(kernel: Callable[[pa.RecordBatch], pa.BooleanArray], columns: pa.RecordBatch) -> Bools:
    mask = kernel(columns)
    if isinstance(mask, pa.Scalar):
        return np.full(columns.num_rows, mask.as_py() is True)
    found: Bools = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return found
