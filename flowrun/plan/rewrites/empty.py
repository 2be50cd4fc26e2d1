"""The rule that does not compute what is known to be nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flowrun.core.semantics import JoinKind
from flowrun.plan.description import Rows, node_description
from flowrun.plan.expressions import ColumnRef, Expression, Literal
from flowrun.plan.joins import IntervalJoin, Join, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, SideOutput, Sink, Split, Union, walk_plan
from flowrun.plan.relational import GroupAggregate, Values
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks

_PLACES = (Sink, Split, SideOutput)
"""Nodes that stand for a place in the plan, whether rows come there or not."""


def remove_empty_parts(plan: Plan) -> Plan:
    """A filter that is never true, and what reads it, becomes no rows at all, as in Flink: its sources are not read. A union loses
    such members, an outer join the side that is never there. (A batch gives one row for an aggregate over nothing.)
    """
    sides = {id(n.input) for n in walk_plan(plan) if isinstance(n, SideOutput)}
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        one_row = plan.settings.is_batch and isinstance(rebuilt, GroupAggregate) and not rebuilt.keys
        done[id(node)] = rebuilt if one_row or id(node) in sides else _without_empty(rebuilt)
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def is_empty(node: PlanNode) -> bool:
    """Whether the node is known to have no row."""
    return isinstance(node, Values) and not node.rows


def _without_empty(node: PlanNode) -> PlanNode:
    match node:
        case Calc(condition=Literal(value=value)) if value is not True:  # FALSE or NULL
            return _nothing(node)
        case Union():
            return _union(node)
        case Join() | WindowJoin() | IntervalJoin() | TemporalJoin():
            return _join(node)
        case _ if len(node.inputs) == 1 and is_empty(node.inputs[0]) and _only_passes(node):
            return _nothing(node)
        case _:
            return node


def _only_passes(node: PlanNode) -> bool:
    """Whether it makes no row without one. Users' functions may."""
    return node_description(type(node)).rows is not Rows.USER and not isinstance(node, _PLACES)


def _nothing(node: PlanNode) -> Values:
    return Values(schema=node.schema, hints=_plain(node.hints), rows=())


def _plain(hints: NodeHints) -> NodeHints:
    return NodeHints(name=hints.name, location=hints.location)


def _union(node: Union) -> PlanNode:
    members = tuple(m for m in node.members if not is_empty(m))
    if len(members) == len(node.members):
        return node
    if not members:
        return _nothing(node)
    if len(members) == 1:
        return _calc(node, members[0], lambda i: _column(members[0], i))
    return replace(node, members=members)


def _join(node: Join | WindowJoin | IntervalJoin | TemporalJoin) -> PlanNode:
    left, right = is_empty(node.left), is_empty(node.right)
    kind = node.kind
    width = len(node.left.schema)
    if left:
        if not kind.keeps_right or right:
            return _nothing(node)
        # windows give their rows another event time, at another moment
        plain = isinstance(node, Join)
        return _calc(node, node.right, lambda i: _null_or(node, i, width, node.right)) if plain else node
    if right:
        if kind in (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI):
            return _nothing(node)
        return _calc(node, node.left, lambda i: _null_or(node, i, 0, node.left)) if isinstance(node, Join) else node
    return node


def _null_or(node: PlanNode, position: int, first: int, side: PlanNode) -> Expression:
    if first <= position < first + len(side.schema):
        return _column(side, position - first)
    return Literal(node.schema.types[position], None)


def _column(node: PlanNode, position: int) -> ColumnRef:
    field = node.schema.fields[position]
    return ColumnRef(field.type, position, field.name)


def _calc(node: PlanNode, source: PlanNode, column: Callable[[int], Expression]) -> Calc:
    """The node's columns made of those of `source`, in the task of the source."""
    hints = replace(_plain(node.hints), parallelism=source.hints.parallelism)
    return Calc(node.schema, hints, source, tuple(column(i) for i in range(len(node.schema))))
