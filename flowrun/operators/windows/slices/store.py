"""The open slices of a window operator: partial results per slice, appended cheaply and merged when it pays.

A new partial result is appended to its slice and stays in the block in which a snapshot found it until it is merged; see `Slice`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle, concat_bundles
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.grouping import reduce_by
from flowrun.operators.timed.assigners import Times
from flowrun.operators.windows.partials.part_log import Block, PartLog, SegmentCollector
from flowrun.operators.windows.partials.partial_tables import PartialTables
from flowrun.state.key_groups import key_groups

MIN_PENDING_ROWS = 256 * 1024
_REDUCING = 0.5
_BYPASS_BATCHES = 16
_TINY = 128
_HASH_BITS = 1 << 15
_SAMPLE_SHIFT = 11
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


@record
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


class Slice:
    """One slice: what is merged, then a tail of parts in order of arrival.

    The tail is merged by itself while its keys repeat, and with the rest once it outgrows twice that: each row takes part in a bounded
    number of merges, and keys that are updated often cost nothing to those that are not, in checkpoints neither.
    """

    __slots__ = ("_ahead", "_base", "_look_at", "_tail")

    def __init__(self) -> None:
        self._base = PartLog()
        self._tail = PartLog()
        self._look_at = MIN_PENDING_ROWS
        """Rows of the tail at which it is looked at next."""
        self._ahead: dict[int, PartLog] = {}

    def append(self, part: Bundle, engine: AggregationEngine) -> None:
        """Add partial results that arrived after all others."""
        self._tail.append(part)
        if self._tail.rows <= self._look_at:
            return
        if self._base.rows and keys_repeat(self._tail.bundles()):
            self._tail = _merged(self._tail, engine)
        if self._tail.rows > 2 * self._base.rows:
            self.compact(engine)
        self._look_at = self._tail.rows + MIN_PENDING_ROWS

    def append_ahead(self, part: Bundle, fired: int) -> None:
        """Add partial results of keys whose windows another subtask had fired up to event time `fired`, ahead of this one."""
        self._ahead.setdefault(fired, PartLog()).append(part)

    @property
    def unmerged_rows(self) -> int:
        """Rows that came since the last merge."""
        return self._tail.rows

    @property
    def has_ahead(self) -> bool:
        """Whether it holds parts that are ahead of this subtask."""
        return bool(self._ahead)

    def compact(self, engine: AggregationEngine) -> None:
        """Merge all own parts into one."""
        if self._tail.rows or len(self._base.bundles()) > 1:
            self._base.prepend_to(self._tail)
            self._base, self._tail = _merged(self._tail, engine), PartLog()

    @property
    def merged(self) -> Bundle | None:
        """The own parts of a compacted slice; None if it has none."""
        return next(iter(self._base.bundles()), None)

    def parts(self, fired_before: int | None = None) -> list[Bundle]:
        """All parts; with `fired_before`, without those whose windows had fired up to that time or later in another subtask."""
        own = [*self._base.bundles(), *self._tail.bundles()]
        if not self._ahead:
            return own
        ahead = [log for fired, log in self._ahead.items() if fired_before is None or fired < fired_before]
        return [*(b for log in ahead for b in log.bundles()), *own]

    def settle(self, fired: int) -> None:
        """Treat parts as own ones once this subtask has caught up with them."""
        for ahead in [f for f in self._ahead if f <= fired]:
            self._ahead.pop(ahead).prepend_to(self._base)

    def blocks(self) -> list[Block]:
        """Everything in blocks that never change."""
        return [b for log in (*self._ahead.values(), self._base, self._tail) for b in log.blocks()]

    @property
    def num_rows(self) -> int:
        """Rows of all parts."""
        return sum(log.rows for log in (self._base, self._tail, *self._ahead.values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(b.nbytes for b in self.parts())


def _merged(log: PartLog, engine: AggregationEngine) -> PartLog:
    return PartLog([engine.merge(concat_bundles(log.bundles()), in_arrival_order=True)])


def keys_repeat(parts: Sequence[Bundle]) -> bool:
    """Whether merging these partial results would leave at most half of their rows, judged by one key in sixteen.

    The sample goes by bits of the key's hash that do not decide about its subtask, so that it holds all rows of its keys.
    """
    if not parts[0].groups:
        return True
    sampled = []
    for part in parts:
        hashes = key_groups(part.keys, _HASH_BITS)
        chosen = pa.array(np.flatnonzero(hashes >> _SAMPLE_SHIFT == 0))
        sampled.append([key.take(chosen) for key in part.keys])
    keys = [pa.concat_arrays(column) for column in zip(*sampled, strict=True)]
    rows = len(keys[0])
    distinct, _ = reduce_by(keys, rows, ())
    return 2 * len(distinct[0]) <= rows


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
    def has_ahead(self) -> bool:
        """Whether any slice holds parts that are ahead of this subtask."""
        return any(s.has_ahead for s in self._slices.values())

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

    def append_ahead(self, slice_end: int, part: Bundle, fired: int) -> None:
        """Add partial results whose windows had fired up to event time `fired`."""
        found = self._slices.get(slice_end)
        if found is None:
            found = self._slices[slice_end] = Slice()
        found.append_ahead(part, fired)

    def settle(self, fired: int) -> None:
        """This subtask has fired its windows up to `fired`."""
        for found in self._slices.values():
            if found.has_ahead:
                found.settle(fired)

    def snapshot(self, tables: PartialTables) -> Mapping[str, SegmentedTable]:
        """State tables of all slices; `tables` has one column for their ends. Computes nothing."""
        collector = SegmentCollector(tables)
        for slice_end, found in self._slices.items():
            collector.add(found.blocks(), (slice_end,))
        return collector.collected()

    def remove(self, slice_end: int) -> Slice:
        """Forget a slice."""
        return self._slices.pop(slice_end)
