"""Lowering of joins by key: regular joins, which are kept up to date, and joins of windows."""

from __future__ import annotations

from flowrun.errors import InternalError
from flowrun.graph.transformation import Transformation
from flowrun.lowering.inputs import Inputs
from flowrun.lowering.keyed import keyed_pair
from flowrun.lowering.settings import state_ttl_ms
from flowrun.operators.joins.factories import RegularJoinFactory, WindowJoinFactory
from flowrun.plan.compiled import predicate_of
from flowrun.plan.joins import Join, WindowJoin
from flowrun.plan.nodes import PlanNode, Settings
from flowrun.plan.row_errors import row_errors_of


def lower_join(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """A regular join behind shuffles by its keys; without keys it runs alone."""
    assert isinstance(node, Join)
    factory = RegularJoinFactory(
        schemas=(node.left.schema, node.right.schema),
        keys=(node.left_keys, node.right_keys),
        output_schema=node.schema,
        kind=node.kind,
        null_safe=node.null_safe,
        condition=predicate_of(node.condition),
        ttl_ms=(state_ttl_ms(node.hints, settings, 0), state_ttl_ms(node.hints, settings, 1)),
        name=node.hints.name or "join",
        errors=row_errors_of(node, settings),
    )
    return keyed_pair(node, factory, inputs.transformations, (node.left_keys, node.right_keys), "join")


def lower_window_join(node: PlanNode, inputs: Inputs, settings: Settings) -> Transformation:
    """A join of windows behind shuffles by its keys; without keys it runs alone."""
    assert isinstance(node, WindowJoin)
    if inputs.changing:
        raise InternalError("a join of windows over rows that change was planned; it should have been a regular join")
    factory = WindowJoinFactory(
        schemas=(node.left.schema, node.right.schema),
        keys=(node.left_keys, node.right_keys),
        windows=(node.left_window, node.right_window),
        output_schema=node.schema,
        kind=node.kind,
        condition=predicate_of(node.condition),
        domain=node.domain,
        name=node.hints.name or "window join",
        errors=row_errors_of(node, settings),
        time_zone=node.time_zone,
    )
    return keyed_pair(node, factory, inputs.transformations, (node.left_keys, node.right_keys), "window join")
