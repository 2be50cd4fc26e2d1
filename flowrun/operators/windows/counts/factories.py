"""Recipes of count windows and global windows; see `windows.recipes` for what all recipes share.

* Count windows: every `slide` rows of a key, over its last up to `size` rows; tumbling ones (slide = size) only when full. Rows
  left over at the end of the input give nothing (Flink). Event time, processing time and lateness have no meaning for them.
* Global windows without a rule: once, at the end of bounded input (MAX watermark; in processing time `finish` after it).
  With `count`: every so many rows of a key; nothing at the end. With `every_ms`: at each interval with new rows, and at the end.
* Re-firing is accumulating unless `purge`: each firing emits the window's whole aggregate again as a plain insert, as Flink's
  DataStream API does. Output modes (`output_modes.factories`) are for windows with an end; here a sink with a primary key keeps the last.
* No local pre-aggregation before any of these operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import cached_property

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import BatchForm
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.operators.aggregation.layout import PartialLayout
from flowrun.operators.state_meanings import Meanings
from flowrun.operators.windows.meanings import partial_meanings
from flowrun.operators.windows.partials.cell_tables import slot_schemas
from flowrun.operators.windows.partials.cells import CellAggregator, with_times
from flowrun.operators.windows.partials.partial_tables import partial_schemas
from flowrun.operators.windows.recipes import KeyedWindowFactory, TriggerRule


class CountMode(Enum):
    """What a firing covers: a full window that is then forgotten, the last rows, or all rows so far."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    ACCUMULATING = "accumulating"


def global_fast_path(rule: TriggerRule | None) -> bool:
    """Whether `GlobalWindowFactory` takes a rule: none, a count, or an interval, each possibly purging."""
    return rule is None or (rule.delta is None and (rule.count is None or rule.every_ms is None))


@record(slots=False)
class CountWindowFactory(KeyedWindowFactory):
    """Keyed aggregation over the last `size` rows, every `slide` rows.

    Attributes:
        accumulating: over all rows instead of the last `size`; used for global windows that fire by count.

    Raises:
        ValueError: size or slide is not positive.
    """

    size: int
    slide: int
    input_schema: Schema
    output_schema: Schema
    accumulating: bool = False

    batch_form = BatchForm.BY_KEYS

    def __post_init__(self) -> None:
        for name in ("size", "slide"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} of a count window must be positive, not {getattr(self, name)}")

    @property
    def mode(self) -> CountMode:
        """What a firing covers."""
        if self.accumulating:
            return CountMode.ACCUMULATING
        return CountMode.TUMBLING if self.size == self.slide else CountMode.SLIDING

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Rows counted for each key, and partial results by key and cell."""
        return slot_schemas(_cell_layout(self), self.input_schema, self.keys, ("rows",))

    def state_meanings(self) -> Meanings:
        """What the columns of the state tables hold."""
        rows = self.slide if self.size == self.slide else math.gcd(self.size, self.slide)
        piece = f"number of a piece of {rows} row{'' if rows == 1 else 's'} of the key"
        cell = "all rows" if self.accumulating else piece
        return _cell_meanings(self.input_schema, self.aggregates, {"cell": cell})


@record(slots=False)
class GlobalWindowFactory(KeyedWindowFactory):
    """Keyed aggregation over all rows.

    Attributes:
        rule: a rule that `global_fast_path` accepts.

    Raises:
        ValueError: the rule needs the general operator.
    """

    input_schema: Schema
    output_schema: Schema
    rule: TriggerRule | None = None
    domain: TimeDomain = TimeDomain.EVENT

    batch_form = BatchForm.BY_KEYS

    def __post_init__(self) -> None:
        if not global_fast_path(self.rule):
            raise ValueError(f"{self.rule} needs a GeneralWindowFactory over a GlobalAssigner")

    @property
    def purging(self) -> bool:
        """Whether a firing forgets the rows."""
        return self.rule is not None and self.rule.purge

    @property
    def takes_exact_watermarks(self) -> bool:
        """Whether there are firings at intervals of event time."""
        return self.domain is TimeDomain.EVENT and self.rule is not None and self.rule.every_ms is not None

    @property
    def counted(self) -> CountWindowFactory | None:
        """What a rule that fires by count stands for."""
        rule = self.rule
        if rule is None or rule.count is None:
            return None
        return CountWindowFactory(
            keys=self.keys,
            aggregates=self.aggregates,
            size=rule.count,
            slide=rule.count,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            null_keys=self.null_keys,
            accumulating=not rule.purge,
        )

    @cached_property
    def layout(self) -> PartialLayout:
        """Columns of the partial results of an operator that fires once."""
        schema, newest = with_times(self.input_schema)
        return PartialLayout.of(schema, self.keys, (*self.aggregates, newest))

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Partial results by key, and when they fire next if they fire more than once."""
        if self.counted is not None:
            return self.counted.state_schemas()
        if self.rule is not None and self.rule.every_ms is not None:
            return slot_schemas(_cell_layout(self), self.input_schema, self.keys, ("next_firing", "changed"))
        return partial_schemas(self.layout, ())

    def state_meanings(self) -> Meanings:
        """What the columns of the state tables hold."""
        return _cell_meanings(self.input_schema, self.aggregates, {})


def _cell_layout(factory: CountWindowFactory | GlobalWindowFactory) -> PartialLayout:
    """Columns of the partial results of numbered cells."""
    return CellAggregator(factory.input_schema, factory.aggregates).layout


def _cell_meanings(schema: Schema, aggregates: tuple[BoundAggregate, ...], fixed: Mapping[str, str]) -> Meanings:
    """Of the tables of cells, whose partial results have the newest event time beside the aggregates; `fixed` as for `partial_meanings`."""
    timed, newest = with_times(schema)
    return partial_meanings(PartialLayout.of(timed, (), (*aggregates, newest)), aggregates, fixed)
