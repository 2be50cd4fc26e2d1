"""The open slices of a window operator: partial results per slice, appended cheaply and merged when it pays.

A slice is `MergedParts`: what is appended to it stays in the block in which a snapshot found it until it is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowrun.api.state import SegmentedTable
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.windows.partials.merged_parts import MergedParts
from flowrun.operators.windows.partials.part_log import SegmentCollector
from flowrun.operators.windows.partials.partial_tables import PartialTables


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
