"""Recipes of aggregations over aligned windows; see `windows.recipes` for what all recipes share.

* Within `allowed_lateness_ms` each late row emits the updated result of each fired window that it belongs to, in the rows' order;
  those are plain inserts, as from Flink's DataStream API.
* Local pre-aggregation: `LocalSliceAggregateFactory(...)` before the shuffle, then `SliceWindowFactory(..., partial_input=True)`
  with the *same* `keys`, `aggregates`, `assigner` and `input_schema` (that of the raw rows). The rows between them have
  `LocalSliceAggregateFactory.output_schema`: keys first, so the edge is `KeyGroupPartitioner(range(len(keys)))`.
  Use it only if `local_aggregation_applies(...)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import BatchForm, OutputTag
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.core.units import format_duration
from flowrun.operators.aggregation.layout import SLICE_END, PartialLayout
from flowrun.operators.state_meanings import Meanings
from flowrun.operators.timed.assigners import AlignedSlices
from flowrun.operators.windows.meanings import partial_meanings
from flowrun.operators.windows.partials.partial_tables import partial_schemas
from flowrun.operators.windows.recipes import KeyedWindowFactory, TimeWindowFactory


@record(slots=False)
class SliceWindowFactory(TimeWindowFactory):
    """Keyed aggregation over aligned windows.

    Attributes:
        partial_input: rows come from a `LocalSliceAggregate` with the same parameters.
    """

    assigner: AlignedSlices
    input_schema: Schema
    output_schema: Schema
    partial_input: bool = False

    batch_form = BatchForm.BY_KEYS

    @cached_property
    def layout(self) -> PartialLayout:
        """Columns of the partial results."""
        return PartialLayout.of(self.input_schema, self.keys, self.aggregates, count_rows=self.partial_input)

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Partial results by key and slice."""
        return partial_schemas(self.layout, (SLICE_END,))

    def state_meanings(self) -> Meanings:
        """What the columns of the state tables hold."""
        offset = f" at offset {format_duration(self.assigner.offset_ms)}" if self.assigner.offset_ms else ""
        end = f"end of a slice of {format_duration(self.assigner.slice_ms)}{offset}, ms since the epoch"
        return partial_meanings(self.layout, self.aggregates, {SLICE_END: end})


@record(slots=False)
class LocalSliceAggregateFactory(KeyedWindowFactory):
    """Pre-aggregation by key and slice before the shuffle. It never drops late rows: the window operator decides.

    Attributes:
        time_column: position of the column to read event time from; None: the rows' `timestamps`.
        max_rows: buffered partial rows that force a flush.
        max_bytes: buffered bytes that force a flush.
    """

    assigner: AlignedSlices
    input_schema: Schema
    time_column: int | None = None
    max_rows: int = 256 * 1024
    max_bytes: int = 64 * 1024 * 1024

    @cached_property
    def layout(self) -> PartialLayout:
        """Columns of the partial results."""
        return PartialLayout.of(self.input_schema, self.keys, self.aggregates, count_rows=True)

    @cached_property
    def output_schema(self) -> Schema:
        """Keys, slice_end, partial columns (a count of rows among them)."""
        return self.layout.transport_schema


def local_aggregation_applies(
    aggregates: tuple[BoundAggregate, ...],
    *,
    domain: TimeDomain = TimeDomain.EVENT,
    late_tag: OutputTag | None = None,
    allowed_lateness_ms: int = 0,
) -> bool:
    """Whether a `LocalSliceAggregate` may stand before the shuffle of a slice window without changing any result.

    Not with a late output or allowed lateness (they need the rows), processing time (the row's time is that of the window
    operator), DISTINCT, collected or order-sensitive aggregates.
    """
    simple = all(not a.distinct and a.kernel.collect is None and not a.kernel.order_sensitive for a in aggregates)
    return simple and domain is TimeDomain.EVENT and late_tag is None and allowed_lateness_ms == 0
