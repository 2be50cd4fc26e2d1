"""From rows to slices: where a batch's rows belong, and what they add to the partial results of each slice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.operators.aggregation.bundle import Bundle
from flowrun.operators.aggregation.engine import AggregationEngine
from flowrun.operators.aggregation.reduction import ReductionSampler
from flowrun.operators.timed.assigners import AlignedSlices, Times, slices_of
from flowrun.operators.timed.event_rows import RowArrivals
from flowrun.operators.windows.slices.factories import SliceWindowFactory

_SLICE = "slice"
_PINNED_BYTES = 64 * 1024


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


class SliceRows(Protocol):
    """What a window operator's input is made of.

    Attributes:
        keys: positions of the key columns.
    """

    keys: tuple[int, ...]

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """(the rows that count, end of each one's slice; a single value stands for all if they are of one slice)."""
        ...

    def parts(self, rows: pa.RecordBatch, slice_ends: Times, sequence: int) -> Iterator[tuple[int, Bundle]]:
        """(slice end, what the rows add to it), by keys. `sequence` is the arrival number of the first row."""
        ...

    def counted(self, rows: RecordBatch) -> int:
        """How many rows of the source these are."""
        ...


class SourceRows:
    """Rows as the pipeline has them: folded by key and slice, unless keys hardly repeat."""

    def __init__(
        self, engine: AggregationEngine, assigner: AlignedSlices, keys: tuple[int, ...], arrivals: RowArrivals
    ) -> None:
        self.keys = keys
        self._engine = engine
        self._assigner = assigner
        self._arrivals = arrivals
        self._sampler = ReductionSampler()

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """As `SliceRows`; by event time, or by the clock when they come."""
        rows, times = self._arrivals.arrive(batch)
        return rows, slices_of(self._assigner, times) if rows.num_rows else times

    def parts(self, rows: pa.RecordBatch, slice_ends: Times, sequence: int) -> Iterator[tuple[int, Bundle]]:
        """As `SliceRows`."""
        numbers = SliceNumbers.of(slice_ends, self._assigner.slice_ms)
        reduce = self._sampler.worthwhile(rows.num_rows)
        folded = self._engine.lift(rows, sequence, leading=numbers.leading, reduce=reduce)
        if reduce:
            self._sampler.observe(rows.num_rows, folded.main.num_rows)
        for slice_end, part in numbers.split(folded):
            yield slice_end, part if reduce else part.unpinned(_PINNED_BYTES)

    def counted(self, rows: RecordBatch) -> int:
        """As many as there are."""
        return rows.num_rows


class PartialRows:
    """Partial results of a `LocalSliceAggregateOperator`: keys, slice end, partial columns."""

    def __init__(self, engine: AggregationEngine, factory: SliceWindowFactory) -> None:
        self.keys = tuple(range(len(factory.keys)))
        self._engine = engine
        self._slice_ms = factory.assigner.slice_ms
        self._row_count = factory.layout.row_count

    def arrive(self, batch: RecordBatch) -> tuple[RecordBatch, Times]:
        """As `SliceRows`; whoever made the rows has left out those that do not count."""
        slice_ends: Times = batch.columns.column(len(self.keys)).view(pa.int64()).to_numpy()
        return batch, slice_ends

    def parts(self, rows: pa.RecordBatch, slice_ends: Times, sequence: int) -> Iterator[tuple[int, Bundle]]:
        """As `SliceRows`."""
        numbers = SliceNumbers.of(slice_ends, self._slice_ms)
        keys, partials = rows.columns[: len(self.keys)], rows.columns[len(self.keys) + 1 :]
        whole = self._engine.bundle_of(keys, partials, rows.num_rows, leading=numbers.leading)
        for slice_end, part in numbers.split(whole):
            yield slice_end, part.unpinned(_PINNED_BYTES)

    def counted(self, rows: RecordBatch) -> int:
        """The sum of what each stands for."""
        return rows.num_rows if self._row_count is None else int(pc.sum(rows.columns.column(self._row_count)).as_py())
