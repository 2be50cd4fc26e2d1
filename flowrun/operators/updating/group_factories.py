"""Recipes of the updating group aggregation: what lowering builds and a job graph carries.

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

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OperatorSpec
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.updating.group_layout import GroupLayout
from flowrun.operators.updating.group_meanings import group_meanings


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

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Groups, sets of values, lists of values."""
        return self.layout.state_schemas()

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of these tables hold."""
        return group_meanings(self.layout, self.aggregates)


@record(slots=False)
class LocalGroupAggregateFactory(_GroupFactory):
    """Aggregation of each batch before the shuffle. Stateless."""

    @property
    def output_schema(self) -> Schema:
        """Columns of partial rows."""
        return self.layout.transport_schema
