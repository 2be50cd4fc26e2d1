"""Lowering of the updating group aggregation: the operator, and the aggregation of each batch before the shuffle by key."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy
from flowrun.graph.transformation import OneInputTransformation, Transformation
from flowrun.lowering.aggregate_calls import bound_aggregate
from flowrun.lowering.change_order import keep_changes_in_order
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed, producing_parallelism
from flowrun.lowering.settings import state_ttl_ms
from flowrun.operators.updating.factories import GroupAggregateFactory, LocalGroupAggregateFactory
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.relational import GroupAggregate

_NAME = "group aggregate"


def lower_group_aggregate(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """A `GroupAggregate` whose input has been prepared (see `window_inputs`).

    Whether there is a local aggregation does not depend on the parallelism: a savepoint must find its operators again at another one.
    """
    assert isinstance(node, GroupAggregate)
    aggregates = tuple(bound_aggregate(call) for call in node.aggregates)
    schema = node.input.schema
    retracting = inputs.changing
    local = LocalGroupAggregateFactory(node.keys, aggregates, schema, retracting=retracting)
    merges = settings.local_aggregation and local.layout.is_mergeable
    source, keys = inputs.only, node.keys
    if merges:
        source, keys = _local(node, local, source, settings), tuple(range(len(node.keys)))
    factory = GroupAggregateFactory(
        node.keys,
        aggregates,
        schema,
        node.schema,
        retracting=retracting,
        partial_input=merges,
        ttl_ms=state_ttl_ms(node.hints, settings),
    )
    return keyed(node, factory, source, keys, _NAME)


def _local(
    node: GroupAggregate, factory: LocalGroupAggregateFactory, source: Transformation, settings: Settings
) -> Transformation:
    """The aggregation of each batch, in the task of the input."""
    hints = node.hints
    local = OneInputTransformation(
        name=f"{hints.name or _NAME} (local)",
        schema=factory.output_schema,
        uid=f"{hints.stable_id}:local" if hints.stable_id else None,
        parallelism=None if factory.retracting else producing_parallelism(source, settings.parallelism),
        slot_sharing_group=hints.slot_sharing_group,
        chaining=None if hints.chaining else ChainingStrategy.NEVER,
        factory=factory,
        input=source,
    )
    if factory.retracting:
        keep_changes_in_order(local, settings.parallelism)
    return local
