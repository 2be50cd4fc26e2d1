"""Window aggregations: which operator does them, and what stands around it (local aggregation, the shuffle by key)."""

from __future__ import annotations

from flowrun.api.aggregate import AggregateKernel, BoundAggregate
from flowrun.api.operator import ChainingStrategy, OperatorFactory, OutputTag
from flowrun.errors import InternalError, UnsupportedPlanError
from flowrun.functions.contract import Argument
from flowrun.functions.registry import aggregate
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
)
from flowrun.operators.aggregation.keys import NullKeyPolicy
from flowrun.operators.windows.assigners import (
    AlignedSlices,
    CumulativeSlices,
    SlidingSlices,
    TumblingSlices,
    WindowTime,
)
from flowrun.operators.windows.evictors import CountEvictor, Evictor, TimeEvictor
from flowrun.operators.windows.factories import (
    LocalSliceAggregateFactory,
    SessionWindowFactory,
    SliceWindowFactory,
    local_aggregation_applies,
)
from flowrun.operators.windows.general_factories import (
    CountWindowFactory,
    GeneralWindowFactory,
    GlobalAssigner,
    GlobalWindowFactory,
    SessionAssigner,
    TriggerRule,
    WindowAssigner,
    global_fast_path,
)
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, Literal
from flowrun.plan.nodes import (
    CountWindow,
    CumulativeWindow,
    EvictorSpec,
    GlobalWindow,
    SessionWindow,
    Settings,
    SlidingWindow,
    TriggerSpec,
    TumblingWindow,
    WindowAggregate,
)


def lower_window(node: WindowAggregate, source: Transformation, settings: Settings) -> Transformation:
    """The transformation of an aggregation whose input has been prepared (see `window_inputs`).

    Args:
        node: aggregates read columns only.
        source: what `node.input` became.
        settings: of the pipeline.
    """
    return _WindowLowering(node, source, settings).lower()


class _WindowLowering:
    def __init__(self, node: WindowAggregate, source: Transformation, settings: Settings) -> None:
        self._node = node
        self._source = source
        self._settings = settings
        self._aggregates = tuple(_bound(call) for call in node.aggregates)
        self._domain = WindowTime(node.domain.value)
        self._null_keys = NullKeyPolicy(node.null_keys.value)
        self._late_tag = OutputTag(node.late_tag, node.input.schema) if node.late_tag is not None else None

    def lower(self) -> Transformation:
        """The window's transformation over the shuffled, possibly pre-aggregated input."""
        window = self._node.window
        if isinstance(window, CountWindow):
            return self._count(window)
        if isinstance(window, GlobalWindow):
            return self._global()
        general = self._node.trigger is not None or self._node.evictor is not None
        if isinstance(window, SessionWindow):
            return self._general(SessionAssigner(window.gap_ms)) if general else self._session(window)
        slices = aligned_slices(window)
        return self._general(slices) if general else self._aligned(slices)

    # -- fast paths -------------------------------------------------------------------------------------------------

    def _aligned(self, slices: AlignedSlices) -> Transformation:
        node = self._node
        local = self._pre_aggregates()
        source, keys = self._source, node.keys
        if local:
            factory = LocalSliceAggregateFactory(
                keys=node.keys,
                aggregates=self._aggregates,
                assigner=slices,
                input_schema=node.input.schema,
                null_keys=self._null_keys,
            )
            source = self._local(factory)
            keys = tuple(range(len(node.keys)))
        window = SliceWindowFactory(
            keys=node.keys,
            aggregates=self._aggregates,
            assigner=slices,
            input_schema=node.input.schema,
            output_schema=node.schema,
            allowed_lateness_ms=node.allowed_lateness_ms,
            late_tag=self._late_tag,
            domain=self._domain,
            null_keys=self._null_keys,
            partial_input=local,
        )
        return self._keyed(window, source, keys)

    def _session(self, window: SessionWindow) -> Transformation:
        node = self._node
        factory = SessionWindowFactory(
            keys=node.keys,
            aggregates=self._aggregates,
            gap_ms=window.gap_ms,
            input_schema=node.input.schema,
            output_schema=node.schema,
            allowed_lateness_ms=node.allowed_lateness_ms,
            late_tag=self._late_tag,
            domain=self._domain,
            null_keys=self._null_keys,
        )
        return self._keyed(factory, self._source, node.keys)

    # -- windows of any other kind ----------------------------------------------------------------------------------

    def _count(self, window: CountWindow) -> Transformation:
        node = self._node
        if node.trigger is not None or node.evictor is not None:
            raise UnsupportedPlanError(
                f"the count window of '{self._name}' cannot have a trigger or evictor of its own",
                hint="use a global window with trigger: {count: …} and evictor: {count: …}",
            )
        factory = CountWindowFactory(
            keys=node.keys,
            aggregates=self._aggregates,
            size=window.size,
            slide=window.slide,
            input_schema=node.input.schema,
            output_schema=node.schema,
            null_keys=self._null_keys,
        )
        return self._keyed(factory, self._source, node.keys)

    def _global(self) -> Transformation:
        node = self._node
        rule = trigger_rule(node.trigger)
        if node.evictor is not None or not global_fast_path(rule):
            return self._general(GlobalAssigner())
        factory = GlobalWindowFactory(
            keys=node.keys,
            aggregates=self._aggregates,
            input_schema=node.input.schema,
            output_schema=node.schema,
            rule=rule,
            domain=self._domain,
            null_keys=self._null_keys,
        )
        return self._keyed(factory, self._source, node.keys)

    def _general(self, assigner: WindowAssigner) -> Transformation:
        """The operator that keeps the rows of open windows."""
        node = self._node
        try:
            factory = GeneralWindowFactory(
                keys=node.keys,
                aggregates=self._aggregates,
                assigner=assigner,
                input_schema=node.input.schema,
                output_schema=node.schema,
                rule=trigger_rule(node.trigger),
                evictor=_evictor(node.evictor),
                allowed_lateness_ms=node.allowed_lateness_ms,
                late_tag=self._late_tag,
                domain=self._domain,
                null_keys=self._null_keys,
            )
        except ValueError as error:
            raise UnsupportedPlanError(f"the window of '{self._name}': {error}", hint="use another trigger") from error
        return self._keyed(factory, self._source, node.keys)

    # -- around the window ------------------------------------------------------------------------------------------

    def _pre_aggregates(self) -> bool:
        """Whether rows are aggregated before the shuffle, too: where results stay the same.

        That does not depend on the parallelism: a savepoint must find its operators again at another one.
        """
        if not self._settings.local_aggregation:
            return False
        return local_aggregation_applies(
            self._aggregates,
            domain=self._domain,
            late_tag=self._late_tag,
            allowed_lateness_ms=self._node.allowed_lateness_ms,
        )

    def _local(self, factory: LocalSliceAggregateFactory) -> Transformation:
        """The pre-aggregation, in the task of the input."""
        hints = self._node.hints
        return OneInputTransformation(
            name=f"{self._name} (local)",
            schema=factory.output_schema,
            uid=f"{hints.stable_id}:local" if hints.stable_id else None,
            parallelism=_parallelism(self._source, self._settings.parallelism),
            slot_sharing_group=hints.slot_sharing_group,
            chaining=None if hints.chaining else ChainingStrategy.NEVER,
            factory=factory,
            input=self._source,
        )

    def _keyed(self, factory: OperatorFactory, source: Transformation, keys: tuple[int, ...]) -> Transformation:
        """The window operator behind a shuffle by its keys; without keys it runs alone."""
        node = self._node
        if keys:
            source = PartitionTransformation(
                name=f"{self._name} (by key)",
                schema=source.schema,
                input=source,
                partitioner=KeyGroupPartitioner(keys),
            )
        return OneInputTransformation(
            name=self._name,
            schema=node.schema,
            uid=node.hints.stable_id,
            parallelism=node.hints.parallelism if keys else 1,
            slot_sharing_group=node.hints.slot_sharing_group,
            chaining=None if node.hints.chaining else ChainingStrategy.NEVER,
            factory=factory,
            input=source,
            state_keys=keys,
        )

    @property
    def _name(self) -> str:
        return self._node.hints.name or "window"


def aligned_slices(window: TumblingWindow | SlidingWindow | CumulativeWindow) -> AlignedSlices:
    """The slices of an aligned window."""
    match window:
        case TumblingWindow():
            return TumblingSlices(window.size_ms, window.offset_ms)
        case SlidingWindow():
            return SlidingSlices(window.size_ms, window.slide_ms, window.offset_ms)
        case CumulativeWindow():
            return CumulativeSlices(window.size_ms, window.step_ms, window.offset_ms)


def trigger_rule(spec: TriggerSpec | None) -> TriggerRule | None:
    """The rule of window operators that a trigger of the plan stands for; its delta must be a column by now."""
    if spec is None:
        return None
    return TriggerRule(
        count=spec.count,
        every_ms=spec.every_ms,
        late_count=spec.late_count,
        delta=_position(spec.delta) if spec.delta is not None else None,
        threshold=spec.threshold,
        purge=spec.purge,
    )


def _evictor(spec: EvictorSpec | None) -> Evictor | None:
    if spec is None:
        return None
    return CountEvictor(spec.count) if spec.count is not None else TimeEvictor(spec.time_ms or 0)


def _bound(call: AggregateCall) -> BoundAggregate:
    return BoundAggregate(
        name=call.name,
        kernel=_kernel(call),
        argument=_position(call.arguments[0]) if call.arguments else None,
        filter=_position(call.filter) if call.filter is not None else None,
        distinct=call.distinct,
        argument_text=call.argument_text,
        filter_text=call.filter_text,
    )


def _kernel(call: AggregateCall) -> AggregateKernel:
    """The aggregate for these argument types, as the binder resolved it."""
    function = aggregate(call.function)
    if function is None:
        raise InternalError(f"the aggregate {call.function} is not registered")
    arguments = [Argument(a.type, getattr(a, "value", None), isinstance(a, Literal)) for a in call.arguments]
    _, kernel = function.type_rule(arguments)
    return kernel


def _position(expression: Expression) -> int:
    if not isinstance(expression, ColumnRef):
        raise InternalError(f"the input of an aggregation was not prepared: {expression} is no column")
    return expression.index


def _parallelism(transformation: Transformation, default: int) -> int:
    """Parallelism of the operators that produce a transformation's rows; of a union, the highest."""
    while isinstance(transformation, SideOutputTransformation | PartitionTransformation):
        transformation = transformation.input
    if isinstance(transformation, UnionTransformation):
        return max(_parallelism(m, default) for m in transformation.members)
    return transformation.parallelism or default
