"""The pairs of changed rows with what the other side of a regular join remembers, some at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.joins.condition import MAX_PAIRS, PairCondition, paired
from flowrun.operators.joins.regular_side import RegularSide, SideChanges
from flowrun.operators.keyed.hash_lists import Pairs, SortedTags

MAX_FOUND = 1024 * 1024
"""Pairs of row numbers that are found at a time, unless one row alone finds more."""


@record
class JoinedPairs:
    """Pairs that satisfy keys and condition, ordered by changed row but for updates, whose old and new pairs alternate.

    Attributes:
        probe: for each its changed row.
        numbers: for each its row of the other side.
        rows: left columns, then right columns; None if nobody needs them.
        adds: for each whether it is added; None: all are.
        follows: for each whether it is the new form of the pair before it; None: none is.
    """

    probe: Integers
    numbers: Integers
    rows: pa.RecordBatch | None
    adds: Bools | None
    follows: Bools | None

    def __len__(self) -> int:
        return len(self.probe)


class Matching:
    """The pairs of the rows that a batch changes. May be iterated over several times, while neither side changes.

    When there are few they are found once; else each time, so that the memory they take is bounded.

    Args:
        changes: of the side `own`.
        tags: of the changed rows.
        schema: of the pairs.
        swapped: `own` is the right side.
        added_only: leave out the pairs of rows that go away.
        makes_rows: whether the columns of the pairs are needed.
    """

    def __init__(
        self,
        changes: SideChanges,
        tags: SortedTags,
        own: RegularSide,
        other: RegularSide,
        condition: PairCondition,
        schema: pa.Schema,
        *,
        swapped: bool,
        added_only: bool,
        makes_rows: bool,
    ) -> None:
        self.changes = changes
        self._tags = tags
        self._own = own
        self._other = other
        self._condition = condition
        self._schema = schema
        self._swapped = swapped
        self._makes_rows = makes_rows
        self._chosen = self._probing(added_only)
        self._leaders: Integers | None = None
        if changes.follows is not None and not added_only and changes.follows.any():
            self._leaders = self._leading(changes.follows)
        self._found: list[JoinedPairs] | None = None
        self._part_number = self._parts_told = 0

    @property
    def counted(self) -> tuple[bool, bool]:
        """Whether matches are counted of the rows that change, and of those of the other side."""
        return self._own.spec.counts, self._other.spec.counts

    def hold(self) -> None:
        """It will be iterated over more than once."""
        held = []
        size = 0
        for joined in self._pairs():
            held.append(joined)
            size += len(joined)
            if size > 2 * MAX_PAIRS:
                return
        self._found = held

    def __iter__(self) -> Iterator[JoinedPairs]:
        """The pairs, in parts."""
        return self._pairs() if self._found is None else iter(self._found)

    def _probing(self, added_only: bool) -> Bools | None:
        """For each changed row whether it is looked up; None: all are."""
        chosen = self.changes.matchable
        if added_only and self.changes.adds is not None:
            chosen = self.changes.adds if chosen is None else chosen & self.changes.adds
        return None if chosen is None or chosen.all() else chosen

    def _leading(self, follows: Bools) -> Integers | None:
        """For each changed row itself or, if it is the new form of a row with the same key, that row."""
        follows = follows & self._own.same_keys(self.changes)
        return np.arange(len(self.changes)) - follows if follows.any() else None

    def _pairs(self) -> Iterator[JoinedPairs]:
        self._part_number = 0
        chosen, tags = self._chosen, self._tags
        keys = [self.changes.rows.column(k) for k in self._own.spec.keys]
        together = None
        if self._leaders is not None:
            together = self._leaders != np.arange(len(self.changes))
        if chosen is not None:
            keys = [k.filter(pa.array(chosen)) for k in keys]
            tags = tags.where(chosen)
            together = None if together is None else together[chosen]
        positions = None if chosen is None else np.flatnonzero(chosen)
        for found in self._other.store.find_in_parts(
            keys, tags, MAX_FOUND, together=together, with_rows=self._makes_rows
        ):
            pairs = found.pairs
            yield from self._joined(
                pairs if positions is None else Pairs(positions[pairs.probe], pairs.numbers), found.rows
            )

    def _joined(self, pairs: Pairs, theirs: pa.RecordBatch | None) -> Iterator[JoinedPairs]:
        """Some pairs; `theirs` are their rows of the other side, if they have been read."""
        leaders = None
        if self._leaders is not None:
            leaders = self._leaders[pairs.probe]
            order = np.lexsort((pairs.numbers, leaders))  # of equals the old pair is before the new one
            pairs, leaders = Pairs(pairs.probe[order], pairs.numbers[order]), leaders[order]
            theirs = None if theirs is None else theirs.take(pa.array(order))
        start = 0
        while start < len(pairs):
            stop = min(start + MAX_PAIRS, len(pairs))
            if leaders is not None and stop < len(pairs) and _follow(leaders[stop - 1 : stop + 1], pairs, stop - 1)[1]:
                stop += 1
            part = Pairs(pairs.probe[start:stop], pairs.numbers[start:stop])
            rows = None if theirs is None else theirs.slice(start, stop - start)
            joined = self._part(part, rows, None if leaders is None else leaders[start:stop])
            if len(joined):
                yield joined
            start = stop

    def _told(self, pairs: Pairs) -> Bools | bool:
        """Of which pairs it is said that the condition fails: added ones, the first time that this part of the pairs is looked at."""
        is_new = self._part_number >= self._parts_told
        self._part_number += 1
        self._parts_told = max(self._parts_told, self._part_number)
        return is_new if not is_new or self.changes.adds is None else self.changes.adds[pairs.probe]

    def _part(self, pairs: Pairs, theirs: pa.RecordBatch | None, leaders: Integers | None) -> JoinedPairs:
        rows = None
        if self._makes_rows:
            mine = self.changes.rows.take(pa.array(pairs.probe))
            theirs = self._other.store.take(pairs.numbers) if theirs is None else theirs
            left, right = (theirs, mine) if self._swapped else (mine, theirs)
            rows = paired(left, right, self._schema)
            passed = self._condition.mask(rows, self._told(pairs))
            if passed is not None:
                rows = rows.filter(pa.array(passed))
                pairs = pairs.where(passed)
                leaders = None if leaders is None else leaders[passed]
        adds = None if self.changes.adds is None else self.changes.adds[pairs.probe]
        follows = None if leaders is None or not len(pairs) else _follow(leaders, pairs)
        return JoinedPairs(pairs.probe, pairs.numbers, rows, adds, follows)


def _follow(leaders: Integers, pairs: Pairs, start: int = 0) -> Bools:
    """For each pair (from `start` on) whether it is the new form of the one before it."""
    numbers = pairs.numbers[start : start + len(leaders)]
    follows = np.zeros(len(leaders), np.bool_)
    follows[1:] = (leaders[1:] == leaders[:-1]) & (numbers[1:] == numbers[:-1])
    return follows


@record
class MatchCounts:
    """How numbers of matches change by a batch.

    Attributes:
        own: of each changed row, how many pairs were found for it; None: nobody needs it.
        numbers: rows of the other side; None: theirs are not counted.
        more: how many more matches each of those has.
    """

    own: Integers | None = None
    numbers: Integers | None = None
    more: Integers | None = None


def count_matches(matching: Matching) -> MatchCounts:
    """How the numbers of matches change, on the sides that count them."""
    own, other = matching.counted
    matching.hold()
    counts = np.zeros(len(matching.changes), np.int64) if own else None
    numbers, more = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for pairs in matching:
        if counts is not None:
            counts += np.bincount(pairs.probe, minlength=len(counts))
        if other:
            signs = np.ones(len(pairs), np.int64) if pairs.adds is None else np.where(pairs.adds, 1, -1)
            distinct, sums = _summed(pairs.numbers, signs)
            numbers.append(distinct)
            more.append(sums)
    if not other:
        return MatchCounts(counts)
    if len(numbers) <= 2:
        return MatchCounts(counts, numbers[-1], more[-1])
    return MatchCounts(counts, *_summed(np.concatenate(numbers), np.concatenate(more)))


def _summed(numbers: Integers, values: Integers) -> tuple[Integers, Integers]:
    """(distinct numbers in order of appearance, the sum of the values of each)."""
    encoded = pa.array(numbers).dictionary_encode()
    sums = np.bincount(encoded.indices.to_numpy(), weights=values, minlength=len(encoded.dictionary))
    return encoded.dictionary.to_numpy(), sums.astype(np.int64)


def pair_schema(schemas: tuple[Schema, Schema]) -> pa.Schema:
    """Columns of pairs that do not come out: only dead letters show their names.

    >>> from flowrun.core.types import BIGINT
    >>> pair_schema((Schema.of(a=BIGINT), Schema.of(a=BIGINT))).names
    ['left.a', 'right.a']
    """
    sides = zip(("left", "right"), schemas, strict=True)
    return pa.schema([pa.field(f"{side}.{f.name}", f.type.arrow) for side, schema in sides for f in schema])
