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

from flowrun.api.operator import OutputTag
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.state_meanings import Meanings
from flowrun.operators.timed.assigners import AlignedSlices, check_session_gap
from flowrun.operators.windows.functions.loading import (
    LoadedWindowFunction,
    function_state_schemas,
    load_window_function,
)
from flowrun.operators.windows.general.evictors import Evictor
from flowrun.operators.windows.general.tables import ROWS, window_schemas
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
from flowrun.operators.windows.general.user_assigners import CustomAssigner
from flowrun.operators.windows.general.user_evictors import CustomEvictor
from flowrun.operators.windows.general.user_triggers import as_trigger
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


WindowAssigner: TypeAlias = AlignedSlices | SessionAssigner | GlobalAssigner | CustomAssigner


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
        function: sends the rows of the output for the rows of a window, instead of keys, bounds and aggregates.
        side_outputs: where else the function may send rows.
        name: of the step, in messages.

    Raises:
        ValueError: the trigger cannot be used with windows that merge.
        PipelineError: a class of the user's does not keep to the rules.
    """

    assigner: WindowAssigner
    input_schema: Schema
    output_schema: Schema
    rule: TriggerRule | None = None
    evictor: Evictor | CustomEvictor | None = None
    trigger: Trigger | None = None
    function: FunctionRecipe | None = None
    side_outputs: tuple[OutputTag, ...] = ()
    name: str = "window"

    def __post_init__(self) -> None:
        if self.merging and not self.effective_trigger.can_merge:
            kind = "session windows, which" if isinstance(self.assigner, SessionAssigner) else "windows that"
            raise ValueError(f"{self.effective_trigger} cannot be used with {kind} merge")

    @cached_property
    def effective_trigger(self) -> Trigger:
        """The trigger: as given, as the assigner has it by default, or built from the rule."""
        if self.trigger is not None:
            return self.trigger
        if isinstance(self.assigner, CustomAssigner) and self.rule is None:
            given = self.assigner.assigner.default_trigger()
            if given is not None:
                return as_trigger(given).bound(self.input_schema)
        return build_trigger(self.rule, self.assigner, self.domain)

    @property
    def takes_exact_watermarks(self) -> bool:
        """Whether the trigger looks at more than the ends of windows."""
        return self.domain is TimeDomain.EVENT and self.effective_trigger.watermark_step_ms > 0

    @property
    def watermark_step_ms(self) -> int:
        """Of which times of the watermark the moment among the rows counts: multiples of this; 1: all."""
        # whether a row continues a session depends on whether that has ended, at any time
        return 1 if self.merging else self.effective_trigger.watermark_step_ms

    @property
    def collects(self) -> bool:
        """Whether windows only collect rows for a function until event time passes their end: `collected.CollectedWindowOperator`."""
        loaded = self.loaded_function
        if loaded is None or (loaded.clears and not loaded.batches):
            return False  # what the function is told of one window may change what it does with the next
        ends_alone = isinstance(self.effective_trigger, EventTimeTrigger) and self.evictor is None
        return ends_alone and self.bounded_windows and not self.merging and self.domain is TimeDomain.EVENT

    @property
    def merging(self) -> bool:
        """Whether windows merge."""
        if isinstance(self.assigner, CustomAssigner):
            return self.assigner.assigner.merging
        return isinstance(self.assigner, SessionAssigner)

    @cached_property
    def loaded_function(self) -> LoadedWindowFunction | None:
        """A function to look at: each operator has its own."""
        return None if self.function is None else load_window_function(self.function, merging=self.merging)

    @property
    def bounded_windows(self) -> bool:
        """Whether windows have bounds, which are output columns then."""
        return not isinstance(self.assigner, GlobalAssigner)

    def state_meanings(self) -> Meanings:
        """What the columns of the state tables hold."""
        if self.collects:
            return {}
        # numbers in a trigger may change, its kind may not: what it remembers would not be understood
        kinds = re.findall(r"[A-Z]\w+(?=\()", repr(self.effective_trigger))
        return {"windows": {"trigger": f"JSON of {' of '.join(dict.fromkeys(kinds))}"}}

    def state_schemas(self) -> dict[str, pa.Schema]:
        """Open windows, their rows, timers, and what the function keeps."""
        schemas = window_schemas(self.input_schema, self.keys)
        if self.collects:
            schemas = {ROWS: schemas[ROWS]}
        if self.loaded_function is not None:
            schemas |= function_state_schemas(self.loaded_function, [self.input_schema.fields[k] for k in self.keys])
        return schemas
