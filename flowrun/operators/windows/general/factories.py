"""The recipe of the general window operator; see `windows.recipes` for what all recipes share.

* `TriggerRule` mirrors the plan's TriggerSpec, with the *position* of the delta column in the input; `EvictorSpec(count)` is
  `CountEvictor(count)`, `EvictorSpec(time_ms)` is `TimeEvictor(time_ms)` (a row exactly `time_ms` older than the newest goes, as in Flink).
  A purge-only `TriggerRule(purge=True)` is the default trigger that purges. A delta with session windows is refused (ValueError).
* No local pre-aggregation before it.
* Windows fire on time, and in addition by the rule: `count` rows or a `delta` since the window's last firing, `every_ms` early at
  intervals with new rows; rows that are late within `allowed_lateness_ms` fire it again, every `late_count`. What is open when bounded
  input ends in processing time fires then.
* Re-firing is accumulating unless `purge`, as for count and global windows (`counts.factories`).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.operators.state_meanings import Meanings
from flowrun.operators.timed.assigners import AlignedSlices, check_session_gap
from flowrun.operators.windows.general.evictors import Evictor
from flowrun.operators.windows.general.tables import window_schemas
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
from flowrun.operators.windows.recipes import TimeWindowFactory, TriggerRule


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


def build_trigger(rule: TriggerRule | None, assigner: WindowAssigner, domain: TimeDomain) -> Trigger:
    """The trigger that a rule stands for; None: the default of the window.

    >>> build_trigger(TriggerRule(count=5, purge=True), GlobalAssigner(), TimeDomain.EVENT)
    PurgingTrigger(trigger=CountTrigger(count=5))
    """
    rule = rule or TriggerRule()
    endless = isinstance(assigner, GlobalAssigner)
    parts: list[Trigger] = []
    if domain is TimeDomain.PROCESSING:
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
        parts.append(EventTimeTrigger() if domain is TimeDomain.EVENT else ProcessingTimeTrigger())
    trigger = parts[0] if len(parts) == 1 else AnyTrigger(tuple(parts))
    return PurgingTrigger(trigger) if rule.purge else trigger


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
    def takes_exact_watermarks(self) -> bool:
        """Whether the trigger looks at more than the ends of windows."""
        return self.domain is TimeDomain.EVENT and self.effective_trigger.watermark_step_ms > 0

    @property
    def bounded_windows(self) -> bool:
        """Whether windows have bounds, which are output columns then."""
        return not isinstance(self.assigner, GlobalAssigner)

    def state_meanings(self) -> Meanings:
        """What the columns of the state tables hold."""
        # numbers in a trigger may change, its kind may not: what it remembers would not be understood
        kinds = re.findall(r"[A-Z]\w+(?=\()", repr(self.effective_trigger))
        return {"windows": {"trigger": f"JSON of {' of '.join(dict.fromkeys(kinds))}"}}

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Open windows, their rows, and timers."""
        return window_schemas(self.input_schema, self.keys)
