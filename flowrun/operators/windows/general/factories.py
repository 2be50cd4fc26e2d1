"""Recipes of count windows, global windows and the general window operator: what lowering builds and a job graph carries.

Contract for lowering
---------------------
Which factory, for `WindowAggregate(window, trigger, evictor)` (time windows without trigger and evictor: see `factories`):

| window | trigger | evictor | factory |
|---|---|---|---|
| count | none | none | `CountWindowFactory` |
| count | any | any | none: a count window has its own trigger; report it as unsupported |
| global | none, or one that `global_fast_path` accepts | none | `GlobalWindowFactory(rule=…)` |
| global | others (delta, or count with every) | any | `GeneralWindowFactory(GlobalAssigner(), rule=…, evictor=…)` |
| tumbling, sliding, cumulative, session | any | any | `GeneralWindowFactory(TumblingSlices(…) … or SessionAssigner(gap_ms), …)` |

* `TriggerRule` mirrors the plan's TriggerSpec, with the *position* of the delta column in the input; `EvictorSpec(count)` is
  `CountEvictor(count)`, `EvictorSpec(time_ms)` is `TimeEvictor(time_ms)` (a row exactly `time_ms` older than the newest goes, as in Flink).
  A purge-only `TriggerRule(purge=True)` is the default trigger that purges. A delta with session windows is refused (ValueError).
* As for the other window operators: input partitioned by `keys` (one subtask without keys); `keys`, `BoundAggregate.argument`,
  `.filter` and the delta's column are positions in `input_schema`. NULL keys go as `null_keys` says, dropped ones are counted in
  `numNullKeyRecordsDropped`.
* No local pre-aggregation before any of these operators.
* Output: keys, then `window_start`, `window_end` TIMESTAMP(3) for time windows only, then the aggregates. Event time of a result:
  window_end − 1; of count and global windows the newest of its rows' `timestamps`, none if the rows have none.
* Re-firing is accumulating unless `purge`: each firing emits the window's whole aggregate again as a plain insert, as Flink's
  DataStream API does. That is the *append* output mode; a sink with a primary key (upsert) turns it into *update*, and reading the
  last result a key and window at the end of the input gives *complete*.
* Rows of several firings come in the order of the rows (or times) that caused them. Results do not depend on batch borders.

When they fire:

* Count windows: every `slide` rows of a key, over its last up to `size` rows; tumbling ones (slide = size) only when full. Rows
  left over at the end of the input give nothing (Flink). Event time, processing time and lateness have no meaning for them.
* Global windows without a rule: once, at the end of bounded input (MAX watermark; in processing time `finish` after it).
  With `count`: every so many rows of a key; nothing at the end. With `every_ms`: at each interval with new rows, and at the end.
* Time windows in the general operator: on time, and in addition by the rule: `count` rows or a `delta` since the window's last
  firing, `every_ms` early at intervals with new rows; rows that are late within `allowed_lateness_ms` fire it again, every `late_count`.
  What is open when bounded input ends in processing time fires then.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from flowrun.api.operator import StreamOperator
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.aggregation.layout import PartialLayout
from flowrun.operators.timed.assigners import AlignedSlices, WindowTime, check_session_gap
from flowrun.operators.timed.local_time import in_zone
from flowrun.operators.windows.counts.count_window import CountMode
from flowrun.operators.windows.factories import KeyedWindowFactory, TimeWindowFactory
from flowrun.operators.windows.general.evictors import Evictor
from flowrun.operators.windows.general.trigger_contract import Trigger
from flowrun.operators.windows.general.triggers import (
    AnyTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EarlyLateTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from flowrun.operators.windows.general.window_function import ProcessWindowFunction


@record
class SessionAssigner:
    """Sessions: windows of `gap_ms` from each row on, merged where they touch."""

    gap_ms: int

    def __post_init__(self) -> None:
        check_session_gap(self.gap_ms)


@record
class GlobalAssigner:
    """One window for ever."""


WindowAssigner: TypeAlias = AlignedSlices | SessionAssigner | GlobalAssigner


@record
class TriggerRule:
    """When a window fires besides its default, as a user says it.

    Attributes:
        count: after so many rows since the last firing.
        every_ms: at this interval of the window's time.
        late_count: once the watermark has passed, after so many late rows.
        delta: position of a numeric column: when it has moved more than `threshold` since the last firing.
        purge: forget the rows after each firing.

    Raises:
        ValueError: a number is not positive, or only one of delta and threshold is given.
    """

    count: int | None = None
    every_ms: int | None = None
    late_count: int = 1
    delta: int | None = None
    threshold: float | None = None
    purge: bool = False

    def __post_init__(self) -> None:
        for name in ("count", "every_ms", "late_count"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} of a trigger must be positive, not {value}")
        if (self.delta is None) != (self.threshold is None):
            raise ValueError("a trigger needs both delta and threshold, or neither")


def build_trigger(rule: TriggerRule | None, assigner: WindowAssigner, domain: WindowTime) -> Trigger:
    """The trigger that a rule stands for; None: the default of the window.

    >>> build_trigger(TriggerRule(count=5, purge=True), GlobalAssigner(), WindowTime.EVENT)
    PurgingTrigger(trigger=CountTrigger(count=5))
    """
    rule = rule or TriggerRule()
    endless = isinstance(assigner, GlobalAssigner)
    parts: list[Trigger] = []
    if domain is WindowTime.PROCESSING:
        if not endless:
            parts.append(ProcessingTimeTrigger())
        if rule.every_ms is not None:
            parts.append(ContinuousProcessingTimeTrigger(rule.every_ms))
    elif not endless or rule.every_ms is not None:
        default = rule.every_ms is None and rule.late_count == 1
        parts.append(EventTimeTrigger() if default else EarlyLateTrigger(rule.every_ms, rule.late_count))
    if rule.count is not None:
        parts.append(CountTrigger(rule.count))
    if rule.delta is not None and rule.threshold is not None:
        parts.append(DeltaTrigger(rule.delta, rule.threshold))
    if not parts:
        parts.append(EventTimeTrigger() if domain is WindowTime.EVENT else ProcessingTimeTrigger())
    trigger = parts[0] if len(parts) == 1 else AnyTrigger(tuple(parts))
    return PurgingTrigger(trigger) if rule.purge else trigger


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
        from flowrun.operators.windows.partials.cell_tables import slot_schemas

        return slot_schemas(cell_layout(self), self.input_schema, self.keys, ("rows",))

    def create(self) -> StreamOperator:
        """A `CountWindowOperator`."""
        from flowrun.operators.windows.counts.count_window import CountWindowOperator

        return CountWindowOperator(self)


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
    domain: WindowTime = WindowTime.EVENT

    def __post_init__(self) -> None:
        if not global_fast_path(self.rule):
            raise ValueError(f"{self.rule} needs a GeneralWindowFactory over a GlobalAssigner")

    @property
    def purging(self) -> bool:
        """Whether a firing forgets the rows."""
        return self.rule is not None and self.rule.purge

    @property
    def _counted(self) -> CountWindowFactory | None:
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
        from flowrun.operators.windows.partials.cells import with_times

        schema, newest = with_times(self.input_schema)
        return PartialLayout.of(schema, self.keys, (*self.aggregates, newest))

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Partial results by key, and when they fire next if they fire more than once."""
        from flowrun.operators.windows.partials.cell_tables import slot_schemas
        from flowrun.operators.windows.partials.partial_tables import partial_schemas

        if self._counted is not None:
            return self._counted.state_schemas()
        if self.rule is not None and self.rule.every_ms is not None:
            return slot_schemas(cell_layout(self), self.input_schema, self.keys, ("next_firing", "changed"))
        return partial_schemas(self.layout, ())

    def create(self) -> StreamOperator:
        """A `GlobalWindowOperator`, or one that fires by count or by interval."""
        from flowrun.operators.windows.counts.global_window import ContinuousGlobalWindowOperator, GlobalWindowOperator

        if self._counted is not None:
            return self._counted.create()
        if self.rule is not None and self.rule.every_ms is not None:
            return ContinuousGlobalWindowOperator(self, self.rule.every_ms)
        return GlobalWindowOperator(self)


@record(slots=False)
class GeneralWindowFactory(TimeWindowFactory):
    """Any window with any trigger, evictor and window function; keeps the rows of open windows.

    Attributes:
        aggregates: what a firing computes, unless there is a `function`.
        rule: when windows fire besides their default; `trigger` overrides it with a trigger of one's own.
        function: computes the result columns after keys and bounds from a window's rows, instead of aggregates.

    Raises:
        ValueError: the trigger cannot be used with session windows.
    """

    assigner: WindowAssigner
    input_schema: Schema
    output_schema: Schema
    rule: TriggerRule | None = None
    evictor: Evictor | None = None
    trigger: Trigger | None = None
    function: ProcessWindowFunction | None = None

    def __post_init__(self) -> None:
        if isinstance(self.assigner, SessionAssigner) and not self.effective_trigger.can_merge:
            raise ValueError(f"{self.effective_trigger} cannot be used with session windows, which merge")

    @cached_property
    def effective_trigger(self) -> Trigger:
        """The trigger, built from the rule unless given."""
        return self.trigger if self.trigger is not None else build_trigger(self.rule, self.assigner, self.domain)

    @property
    def bounded_windows(self) -> bool:
        """Whether windows have bounds, which are output columns then."""
        return not isinstance(self.assigner, GlobalAssigner)

    def create(self) -> StreamOperator:
        """A `WindowOperator`."""
        from flowrun.operators.windows.general.operator import WindowOperator

        return in_zone(WindowOperator(self), self.time_zone)

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Open windows, their rows, and timers."""
        from flowrun.operators.windows.general.tables import window_schemas

        return window_schemas(self)


def cell_layout(factory: CountWindowFactory | GlobalWindowFactory) -> PartialLayout:
    """Columns of the partial results of numbered cells."""
    from flowrun.operators.windows.partials.cells import CellAggregator

    return CellAggregator(factory.input_schema, factory.aggregates).layout
