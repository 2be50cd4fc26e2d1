"""Windows with triggers or evictors, count windows and global windows: which operator does them."""

from __future__ import annotations

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import OperatorSpec, OutputTag
from flowrun.errors import UnsupportedPlanError
from flowrun.lowering.aggregate_calls import column_position
from flowrun.operators.timed.assigners import AlignedSlices
from flowrun.operators.windows.counts.factories import CountWindowFactory, GlobalWindowFactory, global_fast_path
from flowrun.operators.windows.general.assigners import GlobalAssigner, SessionAssigner
from flowrun.operators.windows.general.evictors import CountEvictor, Evictor, TimeEvictor
from flowrun.operators.windows.general.factories import GeneralWindowFactory
from flowrun.operators.windows.recipes import TriggerRule
from flowrun.plan import windows
from flowrun.plan.nodes import WindowAggregate


def general_factory(
    node: WindowAggregate,
    aggregates: tuple[BoundAggregate, ...],
    slices: AlignedSlices | None,
    late_tag: OutputTag | None,
) -> OperatorSpec:
    """The operator of a window that the fast paths do not serve; it runs behind a shuffle by the node's keys.

    Args:
        node: the window.
        aggregates: those of the node, bound.
        slices: of an aligned window.
        late_tag: where rows that are too late go.

    Raises:
        UnsupportedPlanError: window, trigger and evictor do not go together.
    """
    window = node.window
    rule = trigger_rule(node.trigger)
    if isinstance(window, windows.CountWindow):
        return _count(node, window, aggregates)
    if isinstance(window, windows.GlobalWindow) and node.evictor is None and global_fast_path(rule):
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
            assigner=slices or _unaligned(node.window),
            input_schema=node.input.schema,
            output_schema=node.schema,
            rule=rule,
            evictor=_evictor(node.evictor),
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


def _unaligned(window: windows.WindowSpec) -> SessionAssigner | GlobalAssigner:
    return SessionAssigner(window.gap_ms) if isinstance(window, windows.SessionWindow) else GlobalAssigner()


def trigger_rule(spec: windows.TriggerSpec | None) -> TriggerRule | None:
    """The rule of window operators that a trigger of the plan stands for; its delta must be a column by now."""
    if spec is None:
        return None
    return TriggerRule(
        count=spec.count,
        every_ms=spec.every_ms,
        late_count=spec.late_count,
        delta=column_position(spec.delta) if spec.delta is not None else None,
        threshold=spec.threshold,
        purge=spec.purge,
    )


def _evictor(spec: windows.EvictorSpec | None) -> Evictor | None:
    if spec is None:
        return None
    return CountEvictor(spec.count) if spec.count is not None else TimeEvictor(spec.time_ms or 0)


def _name(node: WindowAggregate) -> str:
    return node.hints.name or "window"
