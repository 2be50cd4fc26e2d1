"""The open slices of a window operator: partial results per slice, appended cheaply and merged when it pays.

A new partial result is appended to its slice. A slice is merged when what was appended outgrows twice what is merged, so each row
takes part in a bounded number of merges whatever the number of keys; chunks of tiny batches are concatenated by tiers before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.windows.assigners import Times

MIN_PENDING_ROWS = 256 * 1024
_TIER_CHUNKS = 32
_REDUCING = 0.5
_BYPASS_BATCHES = 16
_TINY = 128
_SLICE = "slice"


class ReductionSampler:
    """Decides per batch whether folding it by key pays: not after a batch that hardly shrank, until the next sample."""

    def __init__(self) -> None:
        self._skip = 0

    def worthwhile(self, rows: int) -> bool:
        """Whether to fold a batch of `rows`."""
        if rows < _TINY:
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def observe(self, rows: int, groups: int) -> None:
        """A folded batch of `rows` had so many groups."""
        if groups > rows * _REDUCING:
            self._skip = _BYPASS_BATCHES


@dataclass(frozen=True, slots=True)
class SliceNumbers:
    """The slices of a batch's rows by number: unlike their ends a small range of integers, which is what the fast grouping wants.

    Attributes:
        first_end: end of slice 0.
        slice_ms: length of a slice.
        leading: the group column of the rows' numbers; none if all rows are of slice 0.
    """

    first_end: int
    slice_ms: int
    leading: list[tuple[str, pa.Array]]

    @classmethod
    def of(cls, slice_ends: Times, slice_ms: int) -> SliceNumbers:
        """From the end of each row's slice, or one that stands for all rows."""
        first = int(slice_ends.min())
        one_slice = len(slice_ends) == 1 or first == slice_ends.max()
        leading = [] if one_slice else [(_SLICE, pa.array((slice_ends - first) // slice_ms))]
        return cls(first, slice_ms, leading)

    def split(self, part: Bundle) -> Iterator[tuple[int, Bundle]]:
        """(slice end, its rows) of partial results that were grouped by `leading`."""
        for number, own in part.split_leading() if self.leading else [(0, part)]:
            yield self.first_end + number * self.slice_ms, own


class TieredParts:
    """Partial results in order of arrival; chunks of tiny batches are concatenated by tiers, so that there are few."""

    def __init__(self) -> None:
        self.bundles: list[Bundle] = []
        self.rows = 0
        self._tiers: list[int] = []

    def append(self, part: Bundle) -> None:
        """Add what arrived last."""
        self.bundles.append(part)
        self._tiers.append(0)
        self.rows += part.num_rows
        while len(self._tiers) >= _TIER_CHUNKS and self._tiers[-_TIER_CHUNKS] == self._tiers[-1]:
            tier = self._tiers[-1] + 1
            self.bundles[-_TIER_CHUNKS:] = [concat_bundles(self.bundles[-_TIER_CHUNKS:])]
            self._tiers[-_TIER_CHUNKS:] = [tier]

    def prepend(self, parts: list[Bundle]) -> None:
        """Add what arrived before all others."""
        self.bundles[:0] = parts
        self._tiers[:0] = [_TIER_CHUNKS] * len(parts)
        self.rows += sum(p.num_rows for p in parts)

    def clear(self) -> None:
        """Forget everything."""
        self.bundles, self._tiers, self.rows = [], [], 0


@dataclass(slots=True)
class Slice:
    """One slice: a merged part, then parts in order of arrival.

    Attributes:
        restored: parts from another subtask's past, with the event time up to which that subtask had fired their windows,
            as long as that is ahead of this subtask.
    """

    merged: Bundle | None = None
    pending: TieredParts = field(default_factory=TieredParts)
    restored: list[tuple[int, Bundle]] = field(default_factory=list)

    def append(self, part: Bundle, engine: AggregationEngine) -> None:
        """Add partial results that arrived after all others."""
        self.pending.append(part)
        merged_rows = 0 if self.merged is None else self.merged.num_rows
        if self.pending.rows > max(2 * merged_rows, MIN_PENDING_ROWS):
            self.compact(engine)

    def compact(self, engine: AggregationEngine) -> None:
        """Merge all parts into one."""
        if self.pending.bundles:
            parts = self.pending.bundles if self.merged is None else [self.merged, *self.pending.bundles]
            self.merged = engine.merge(concat_bundles(parts), in_arrival_order=True)
            self.pending.clear()

    def parts(self, fired_before: int | None = None) -> list[Bundle]:
        """All parts; with `fired_before`, without restored ones whose windows had fired up to that time or later."""
        own = self.pending.bundles if self.merged is None else [self.merged, *self.pending.bundles]
        if not self.restored:
            return own
        return [*(b for fired, b in self.restored if fired_before is None or fired < fired_before), *own]

    def settle_restored(self, fired: int) -> None:
        """Treat restored parts as own ones once this subtask has caught up with them."""
        caught_up = [b for ahead, b in self.restored if ahead <= fired]
        if caught_up:
            self.restored = [(ahead, b) for ahead, b in self.restored if ahead > fired]
            self.pending.prepend(caught_up)

    @property
    def num_rows(self) -> int:
        """Rows of all parts."""
        return sum(b.num_rows for b in self.parts())

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(b.nbytes for b in self.parts())


class SliceStore:
    """Open slices by their end."""

    def __init__(self, engine: AggregationEngine) -> None:
        self._engine = engine
        self._slices: dict[int, Slice] = {}

    def __len__(self) -> int:
        return len(self._slices)

    def __contains__(self, slice_end: object) -> bool:
        return slice_end in self._slices

    def __getitem__(self, slice_end: int) -> Slice:
        return self._slices[slice_end]

    @property
    def has_restored(self) -> bool:
        """Whether any slice holds restored parts that are ahead of this subtask."""
        return any(s.restored for s in self._slices.values())

    def items(self) -> Iterator[tuple[int, Slice]]:
        """(end, slice), in order of creation."""
        return iter(self._slices.items())

    def ends(self) -> list[int]:
        """Ends of the open slices, ascending."""
        return sorted(self._slices)

    def values(self) -> Iterator[Slice]:
        """The slices, in order of creation."""
        return iter(self._slices.values())

    def append(self, slice_end: int, part: Bundle) -> bool:
        """Add partial results to a slice; True if that opened it."""
        found = self._slices.get(slice_end)
        if found is None:
            found = self._slices[slice_end] = Slice()
            found.append(part, self._engine)
            return True
        found.append(part, self._engine)
        return False

    def append_restored(self, slice_end: int, part: Bundle, fired: int) -> None:
        """Add restored partial results whose windows had fired up to event time `fired`."""
        self._slices.setdefault(slice_end, Slice()).restored.append((fired, part))

    def settle_restored(self, fired: int) -> None:
        """This subtask has fired its windows up to `fired`."""
        for found in self._slices.values():
            if found.restored:
                found.settle_restored(fired)

    def remove(self, slice_end: int) -> Slice:
        """Forget a slice."""
        return self._slices.pop(slice_end)
