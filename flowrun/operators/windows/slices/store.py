"""The open slices of a window operator: partial results per slice, appended cheaply and merged when it pays.

A slice is `MergedParts`: what is appended to it stays in the block in which a snapshot found it until it is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from flowrun.api.state import SegmentedTable
from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.timed.assigners import Times
from flowrun.operators.windows.partials.merged_parts import MergedParts
from flowrun.operators.windows.partials.part_log import SegmentCollector
from flowrun.operators.windows.partials.partial_tables import PartialTables

_SLICE = "slice"


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


class SliceStore:
    """Open slices by their end."""

    def __init__(self, engine: AggregationEngine) -> None:
        self._engine = engine
        self._slices: dict[int, MergedParts] = {}

    def __len__(self) -> int:
        return len(self._slices)

    def __contains__(self, slice_end: object) -> bool:
        return slice_end in self._slices

    def __getitem__(self, slice_end: int) -> MergedParts:
        return self._slices[slice_end]

    @property
    def has_ahead(self) -> bool:
        """Whether any slice holds parts that are ahead of this subtask."""
        return any(s.has_ahead for s in self._slices.values())

    def items(self) -> Iterator[tuple[int, MergedParts]]:
        """(end, slice), in order of creation."""
        return iter(self._slices.items())

    def ends(self) -> list[int]:
        """Ends of the open slices, ascending."""
        return sorted(self._slices)

    def values(self) -> Iterator[MergedParts]:
        """The slices, in order of creation."""
        return iter(self._slices.values())

    def append(self, slice_end: int, part: Bundle) -> bool:
        """Add partial results to a slice; True if that opened it."""
        found = self._slices.get(slice_end)
        if found is None:
            found = self._slices[slice_end] = MergedParts()
            found.append(part, self._engine)
            return True
        found.append(part, self._engine)
        return False

    def append_ahead(self, slice_end: int, part: Bundle, fired: int) -> None:
        """Add partial results whose windows had fired up to event time `fired`."""
        found = self._slices.get(slice_end)
        if found is None:
            found = self._slices[slice_end] = MergedParts()
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

    def remove(self, slice_end: int) -> MergedParts:
        """Forget a slice."""
        return self._slices.pop(slice_end)
