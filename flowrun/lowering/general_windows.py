"""Windows with triggers or evictors, count windows and global windows: which operator does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.errors import UnsupportedPlanError
from flowrun.lowering.aggregate_calls import column_position
from flowrun.lowering.aligned_slices import aligned_slices
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.windows.counts.factories import CountWindowFactory, GlobalWindowFactory, global_fast_path
from flowrun.operators.windows.general.evictors import CountEvictor, Evictor, TimeEvictor
from flowrun.operators.windows.general.factories import (
    GeneralWindowFactory,
    GlobalAssigner,
    SessionAssigner,
    WindowAssigner,
)
from flowrun.operators.windows.general.trigger_contract import Trigger
from flowrun.operators.windows.general.triggers import CountTrigger, PurgingTrigger
from flowrun.operators.windows.general.user_assigners import CustomAssigner
from flowrun.operators.windows.general.user_evictors import CustomEvictor
from flowrun.operators.windows.general.user_triggers import UserTrigger
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.plan import windows
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import FunctionWindows, Process, WindowAggregate

TimedWindow: TypeAlias = (
    windows.TumblingWindow
    | windows.SlidingWindow
    | windows.CumulativeWindow
    | windows.SessionWindow
    | windows.GlobalWindow
    | windows.CustomWindow
)


def general_factory(
    node: WindowAggregate,
    aggregates: tuple[BoundAggregate, ...],
    late_tag: OutputTag | None,
) -> OperatorSpec:
    """The operator of a window that the fast paths do not serve; it runs behind a shuffle by the node's keys.

    Args:
        node: the window.
        aggregates: those of the node, bound.
        late_tag: where rows that are too late go.

    Raises:
        UnsupportedPlanError: window, trigger and evictor do not go together.
    """
    window = node.window
    rule = trigger_rule(node.trigger, column_position)
    if isinstance(window, windows.CountWindow):
        return _count(node, window, aggregates)
    own = node.trigger is not None and node.trigger.function is not None
    if isinstance(window, windows.GlobalWindow) and node.evictor is None and not own and global_fast_path(rule):
        return GlobalWindowFactory(
            keys=node.keys,
            aggregates=aggregates,
            input_schema=node.input.schema,
            output_schema=node.schema,
            rule=rule,
            domain=node.domain,
            null_keys=node.null_keys,
        )
    try:
        return GeneralWindowFactory(
            keys=node.keys,
            aggregates=aggregates,
            assigner=assigner_of(window),
            input_schema=node.input.schema,
            output_schema=node.schema,
            rule=rule,
            trigger=user_trigger(node.trigger),
            evictor=evictor_of(node.evictor),
            allowed_lateness_ms=node.allowed_lateness_ms,
            late_tag=late_tag,
            domain=node.domain,
            null_keys=node.null_keys,
            time_zone=windows.window_zone(window),
        )
    except ValueError as error:
        raise UnsupportedPlanError(f"the window of '{_name(node)}': {error}", hint="use another trigger") from error


def _count(node: WindowAggregate, window: windows.CountWindow, aggregates: tuple[BoundAggregate, ...]) -> OperatorSpec:
    if node.trigger is not None or node.evictor is not None:
        raise UnsupportedPlanError(
            f"the count window of '{_name(node)}' cannot have a trigger or evictor of its own",
            hint="use a global window with trigger: {count: …} and evictor: {count: …}",
        )
    return CountWindowFactory(
        keys=node.keys,
        aggregates=aggregates,
        size=window.size,
        slide=window.slide,
        input_schema=node.input.schema,
        output_schema=node.schema,
        null_keys=node.null_keys,
    )


def window_function_factory(node: Process, fires: FunctionWindows, name: str) -> GeneralWindowFactory:
    """The operator that calls a window function.

    Raises:
        UnsupportedPlanError: windows, trigger and evictor do not go together.
    """
    window, schema = fires.window, node.input.schema
    trigger, evictor = user_trigger(fires.trigger), evictor_of(fires.evictor)
    if isinstance(window, windows.CountWindow):  # as Flink makes them of global windows
        tumbling = window.size == window.slide
        trigger = PurgingTrigger(CountTrigger(window.size)) if tumbling else CountTrigger(window.slide)
        evictor = None if tumbling else CountEvictor(window.size)
    try:
        return GeneralWindowFactory(
            keys=node.keys or (),
            aggregates=(),
            assigner=GlobalAssigner() if isinstance(window, windows.CountWindow) else assigner_of(window),
            input_schema=schema,
            output_schema=node.schema,
            rule=trigger_rule(fires.trigger, lambda delta: _column_of(delta, name)),
            trigger=trigger,
            evictor=evictor,
            allowed_lateness_ms=fires.allowed_lateness_ms,
            late_tag=None if fires.late_tag is None else OutputTag(fires.late_tag, schema),
            domain=fires.domain,
            null_keys=node.null_keys,
            time_zone=windows.window_zone(window),
            function=FunctionRecipe(node.function, dict(node.arguments), node.search_path),
            side_outputs=tuple(OutputTag(tag, columns) for tag, columns in node.side_outputs.items()),
            name=name,
        )
    except ValueError as error:
        raise UnsupportedPlanError(f"the window of '{name}': {error}", hint="use another trigger") from error


def _column_of(delta: Expression, name: str) -> int:
    if not isinstance(delta, ColumnRef):
        raise UnsupportedPlanError(
            f"the trigger of '{name}' goes by {delta}, which is no column",
            hint="compute it with select, and name the column",
        )
    return delta.index


def assigner_of(window: TimedWindow) -> WindowAssigner:
    """Which windows rows belong to."""
    match window:
        case windows.SessionWindow():
            return SessionAssigner(window.gap_ms)
        case windows.GlobalWindow():
            return GlobalAssigner()
        case windows.CustomWindow():
            return CustomAssigner(_recipe(window.assigner))
        case _:
            return aligned_slices(window)


def _recipe(given: windows.UserClass) -> FunctionRecipe:
    return FunctionRecipe(given.reference, dict(given.arguments), given.search_path)


def user_trigger(spec: windows.TriggerSpec | None) -> Trigger | None:
    """The trigger of the user's, if it is one."""
    if spec is None or spec.function is None:
        return None
    trigger = UserTrigger(_recipe(spec.function))
    return PurgingTrigger(trigger) if spec.purge else trigger


def trigger_rule(spec: windows.TriggerSpec | None, position_of: Callable[[Expression], int]) -> TriggerRule | None:
    """The rule of window operators that a trigger of the plan stands for; `position_of` gives that of the column of its delta."""
    if spec is None or spec.function is not None:
        return None
    return TriggerRule(
        count=spec.count,
        every_ms=spec.every_ms,
        late_count=spec.late_count,
        delta=position_of(spec.delta) if spec.delta is not None else None,
        threshold=spec.threshold,
        purge=spec.purge,
    )


def evictor_of(spec: windows.EvictorSpec | None) -> Evictor | CustomEvictor | None:
    """Which rows windows drop."""
    if spec is None:
        return None
    if spec.function is not None:
        return CustomEvictor(_recipe(spec.function))
    return CountEvictor(spec.count) if spec.count is not None else TimeEvictor(spec.time_ms or 0)


def _name(node: WindowAggregate) -> str:
    return node.hints.name or "window"
