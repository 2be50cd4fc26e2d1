"""Recipes of the vectorised window operators: what lowering builds and a job graph carries.

Contract for lowering
---------------------
* `SliceWindowFactory`: tumbling, sliding and cumulative windows (`assigner`). `SessionWindowFactory`: sessions by `gap_ms`.
  Their input must be partitioned by `keys` (`KeyGroupPartitioner(keys)`); without keys it must be one subtask.
* Input: `input_schema`; `keys`, `BoundAggregate.argument` and `.filter` are positions in it. Argument columns already have the type
  `AggregateKernel.argument` (cast in a projection before), filters are BOOLEAN.
* Output: `output_schema` = keys, window_start TIMESTAMP(3), window_end TIMESTAMP(3), aggregates in order; names are the caller's,
  the types of keys and aggregates must be those of the input columns and of `kernel.result`. Event time = window_end − 1.
* Event time comes from the rows' `timestamps`; `time_column` (TIMESTAMP or TIMESTAMP_LTZ) overrides it. Rows never have a NULL time.
* Late rows (every window of the row is beyond watermark + `allowed_lateness_ms`) are counted in `numLateRecordsDropped` and sent,
  columns and timestamps untouched, to `late_tag` if there is one; `late_tag.schema` is `input_schema`.
* Within `allowed_lateness_ms` each late row emits the updated result of each fired window that it belongs to, in the rows' order;
  those are plain inserts, as from Flink's DataStream API.
* `WindowTime.PROCESSING`: a row's time is the clock when its batch arrives, no row is late, lateness and `late_tag` have no effect.
  Timers close windows; what is open when bounded input ends (MAX watermark seen) fires then, as a user of bounded input expects.
* Local pre-aggregation: `LocalSliceAggregateFactory(...)` before the shuffle, then `SliceWindowFactory(..., partial_input=True)`
  with the *same* `keys`, `aggregates`, `assigner` and `input_schema` (that of the raw rows). The rows between them have
  `LocalSliceAggregateFactory.output_schema`: keys first, so the edge is `KeyGroupPartitioner(range(len(keys)))`.
  Use it only if `local_aggregation_applies(...)`.
* NULL keys: `null_keys` FAIL raises `DataError`, GROUP makes NULL a key of its own, DROP leaves the row out (counted in
  `numNullKeyRecordsDropped`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from functools import cached_property

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import ChainingStrategy, OutputTag, StreamOperator
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.keys import NullKeyPolicy
from flowrun.operators.aggregation.layout import SESSION_BOUNDS, SLICE_END, PartialLayout
from flowrun.operators.timed.assigners import AlignedSlices, WindowTime, check_session_gap
from flowrun.operators.timed.local_time import in_zone


@record(slots=False)
class KeyedWindowFactory:
    """What the recipes of all window operators have.

    Attributes:
        keys: positions of the key columns in the input; () for one global group.
        null_keys: what happens to rows one of whose keys is NULL.
        time_zone: the zone whose clocks windows go by, see `local_time`; in any but UTC the bounds of windows are local times.
    """

    keys: tuple[int, ...]
    aggregates: tuple[BoundAggregate, ...]
    _: KW_ONLY
    null_keys: NullKeyPolicy = NullKeyPolicy.GROUP
    time_zone: str = UTC_ZONE

    @property
    def chaining(self) -> ChainingStrategy:
        """May be chained (it follows a shuffle, so it heads its chain unless the shuffle is a forward edge)."""
        return ChainingStrategy.ALWAYS


@record(slots=False)
class TimeWindowFactory(KeyedWindowFactory):
    """What the recipes of operators have whose windows may close as time passes.

    Attributes:
        allowed_lateness_ms: how long after its end event time a window still takes rows.
        late_tag: where rows that are too late go; None: nowhere.
        domain: which clock closes windows.
        time_column: position of the column to read event time from; None: the rows' `timestamps`.
    """

    _: KW_ONLY
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    domain: WindowTime = WindowTime.EVENT
    time_column: int | None = None


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

    @cached_property
    def layout(self) -> PartialLayout:
        """Columns of the partial results."""
        return PartialLayout.of(self.input_schema, self.keys, self.aggregates, count_rows=self.partial_input)

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Partial results by key and slice."""
        from flowrun.operators.windows.partials.partial_tables import partial_schemas

        return partial_schemas(self.layout, (SLICE_END,))

    def create(self) -> StreamOperator:
        """A `SliceWindowOperator`."""
        from flowrun.operators.windows.slices.operator import SliceWindowOperator

        return in_zone(SliceWindowOperator(self), self.time_zone)


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

    def create(self) -> StreamOperator:
        """A `LocalSliceAggregateOperator`."""
        from flowrun.operators.windows.slices.local import LocalSliceAggregateOperator

        return in_zone(LocalSliceAggregateOperator(self), self.time_zone)


@record(slots=False)
class SessionWindowFactory(TimeWindowFactory):
    """Keyed aggregation over sessions: windows that `gap_ms` without rows close; windows that touch merge.

    Raises:
        ValueError: the gap is not positive.
    """

    gap_ms: int
    input_schema: Schema
    output_schema: Schema

    def __post_init__(self) -> None:
        check_session_gap(self.gap_ms)

    @cached_property
    def layout(self) -> PartialLayout:
        """Columns of the partial results."""
        return PartialLayout.of(self.input_schema, self.keys, self.aggregates)

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Partial results by key and session."""
        from flowrun.operators.windows.partials.partial_tables import partial_schemas

        return partial_schemas(self.layout, SESSION_BOUNDS)

    def create(self) -> StreamOperator:
        """A `SessionWindowOperator`."""
        from flowrun.operators.windows.sessions.operator import SessionWindowOperator

        return in_zone(SessionWindowOperator(self), self.time_zone)


def local_aggregation_applies(
    aggregates: tuple[BoundAggregate, ...],
    *,
    domain: WindowTime = WindowTime.EVENT,
    late_tag: OutputTag | None = None,
    allowed_lateness_ms: int = 0,
) -> bool:
    """Whether a `LocalSliceAggregate` may stand before the shuffle of a slice window without changing any result.

    Not with a late output or allowed lateness (they need the rows), processing time (the row's time is that of the window
    operator), DISTINCT, collected or order-sensitive aggregates.
    """
    simple = all(not a.distinct and a.kernel.collect is None and not a.kernel.order_sensitive for a in aggregates)
    return simple and domain is WindowTime.EVENT and late_tag is None and allowed_lateness_ms == 0
