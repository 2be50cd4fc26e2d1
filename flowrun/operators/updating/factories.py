"""Specs of the operators over rows that change: what lowering builds and a job graph carries.

Of the group aggregation:

* `GroupAggregateFactory`: input partitioned by `keys` (`KeyGroupPartitioner(keys)`); without keys it must be one subtask. `keys`,
  `BoundAggregate.argument` and `.filter` are positions in `input_schema`; arguments have the type `AggregateKernel.argument`.
* Output: `output_schema` = keys, aggregates in order. No event time; watermarks pass.
* `retracting`: whether rows may be taken back (the input's changelog has −U or −D). A state that was written without cannot be read with.
* Local aggregation: `LocalGroupAggregateFactory(...)` before the shuffle, then `GroupAggregateFactory(..., partial_input=True)` with the
  *same* `keys`, `aggregates`, `input_schema` and `retracting`, if `layout.is_mergeable`. The rows between them have
  `layout.transport_schema`: keys first, so the edge is `KeyGroupPartitioner(range(len(keys)))`.
* `ttl_ms`: groups that get no rows for so long (processing time) are forgotten without a change; 0: never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import BatchForm, OperatorSpec
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.key_rows import WRITTEN
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema
from flowrun.operators.updating.group_layout import GROUPS, GroupLayout, group_meanings

if TYPE_CHECKING:
    from flowrun.api.accumulators import AccumulatorForm

ROWS = "rows"
"""Name of the state table with the row of each key, of ChangelogNormalize and of ON CONFLICT."""
EVENT_TIME = "__event_time"
"""State column of ChangelogNormalize: event time of the row, ms; 0 if rows have none."""
NORMALIZE_COUNTERS = (EVENT_TIME, WRITTEN)
CHANGES = "changes"
"""Name of the state table of ON CONFLICT with the changes that wait for the watermark."""
COPIES = "__copies"
"""State column: how many equal rows come; below 0: go."""
WATERMARK = "__watermark"
"""State column: watermark of the sender when the change came, ms."""
ROWS_COUNTERS = (COPIES, WRITTEN)
CHANGES_COUNTERS = (COPIES, WATERMARK)


@record(slots=False)
class _GroupFactory(OperatorSpec):
    keys: tuple[int, ...]
    aggregates: tuple[BoundAggregate, ...]
    input_schema: Schema
    _: KW_ONLY
    retracting: bool = False

    @cached_property
    def layout(self) -> GroupLayout:
        """What is kept of each group."""
        return GroupLayout.of(self.input_schema, self.keys, self.aggregates, retracting=self.retracting)


@record(slots=False)
class GroupAggregateFactory(_GroupFactory):
    """Keyed aggregation without end, with a changelog as result; see the module."""

    output_schema: Schema
    _: KW_ONLY
    partial_input: bool = False
    ttl_ms: int = 0

    batch_form = BatchForm.BY_KEYS
    uses_event_time = False

    @property
    def result_keys(self) -> tuple[int, ...]:
        """The group's columns in the results."""
        return tuple(range(len(self.keys)))

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Groups, sets of values, lists of values."""
        return self.layout.state_schemas()

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of these tables hold."""
        return group_meanings(self.layout, self.aggregates)

    def state_accumulators(self) -> Mapping[str, Mapping[str, AccumulatorForm]]:
        """What the accumulators of users' aggregates are."""
        found = {u.column.name: u.user.accumulator for u in self.layout.users}
        return {GROUPS: {name: form for name, form in found.items() if form is not None}}


@record(slots=False)
class LocalGroupAggregateFactory(_GroupFactory):
    """Aggregation of each batch before the shuffle. Stateless."""

    @property
    def output_schema(self) -> Schema:
        """Columns of partial rows."""
        return self.layout.transport_schema


@record(slots=False)
class ChangelogNormalizeFactory(OperatorSpec):
    """Whole changes by key. Input must be partitioned by the key columns.

    Attributes:
        schema: of the rows that are sent; those that come may have NULL in all columns but the keys where they delete.
        keys: positions of the key columns. NULL is a key like any other.
        clocks: positions of columns that hold the time at which a row was read: rows that differ in them alone are equal.
        ttl_ms: how long a key is kept that gets no rows, ms of processing time; 0: for ever.
    """

    schema: Schema
    keys: tuple[int, ...]
    ttl_ms: int = 0
    clocks: tuple[int, ...] = ()

    batch_form = BatchForm.BY_KEYS
    uses_event_time = False

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The row of each key."""
        return {ROWS: row_store_schema(self.schema, self.keys, NORMALIZE_COUNTERS)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        return {
            ROWS: {
                ROW_COLUMN: "arrival number",
                WRITTEN: "processing time when the row was written, ms since the epoch",
                EVENT_TIME: "event time of the row, ms since the epoch",
            }
        }


@record(slots=False)
class ConflictResolutionFactory(OperatorSpec):
    """One row a key. Input must be partitioned by the key columns; behind the columns of `schema` it has the watermark of its sender.

    Attributes:
        schema: of the rows that are sent.
        keys: positions of the key columns. NULL is a key like any other.
        table: name of the table that the rows are written to.
        fails: several different rows of a key fail the job; else the first one stays.
        ttl_ms: how long a row is kept whose key gets no changes, ms of processing time; 0: for ever.
    """

    schema: Schema
    keys: tuple[int, ...]
    table: str
    fails: bool
    ttl_ms: int = 0

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The row of each key, and the changes that wait for the watermark."""
        return {
            ROWS: row_store_schema(self.schema, self.keys, ROWS_COUNTERS),
            CHANGES: row_store_schema(self.schema, self.keys, CHANGES_COUNTERS),
        }

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state tables hold."""
        return {
            ROWS: {
                ROW_COLUMN: "arrival number",
                COPIES: "how many equal rows the query has",
                WRITTEN: "processing time of the key's last change, ms since the epoch",
            },
            CHANGES: {
                ROW_COLUMN: "arrival number",
                COPIES: "how many equal rows come (below 0: go)",
                WATERMARK: "watermark of the sender, ms since the epoch; a later one makes the change count",
            },
        }
