"""The rule that computes equal parts of a plan once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from flowrun.core.schema import Schema
from flowrun.plan.description import Meaning, node_description, part_description
from flowrun.plan.expressions import ColumnRef, Expression, walk
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, SideOutput, Sink, Split, WindowAggregate, walk_plan
from flowrun.plan.relational import Expand, GroupAggregate
from flowrun.plan.rewrites.traversal import expressions_of, with_inputs, with_sinks

_NEVER_SHARED = (Sink, Split, SideOutput)
"""Nodes that stand for a place in the plan, and not for rows alone. Sources and what calls users' functions are not shared, either."""
_BY_POSITION = (Calc, Expand, GroupAggregate, WindowAggregate)
"""Nodes to which the names of their input's columns are nothing: they neither read them nor send batches on as they came."""


def share_equal_nodes(plan: Plan) -> Plan:
    """Nodes that do the same with the same inputs become one, whatever their columns are called: a query that names a subquery twice
    computes it once, and keeps its state once.

    Not what calls users' functions or gives another result each time, and not steps that the user gave a uid, parallelism or slots.
    """
    readers: dict[int, list[PlanNode]] = defaultdict(list)
    for node in walk_plan(plan):
        for child in node.inputs:
            readers[id(child)].append(node)
    done: dict[int, PlanNode] = {}
    known: dict[tuple[object, ...], list[PlanNode]] = defaultdict(list)
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        done[id(node)] = rebuilt
        if isinstance(node, _NEVER_SHARED) or not node.inputs or not _is_plain(node.hints) or not _repeats(rebuilt):
            continue
        alike = known[type(node), tuple(map(id, rebuilt.inputs)), rebuilt.schema.types]
        for other in alike:
            if _same(rebuilt, other):
                by_position = all(isinstance(r, _BY_POSITION) for r in readers[id(node)])
                done[id(node)] = other if by_position else _renamed(other, rebuilt.schema)
                break
        else:
            alike.append(rebuilt)
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _renamed(node: PlanNode, schema: Schema) -> PlanNode:
    """The node's columns under the names of `schema`."""
    if node.schema.names == schema.names:
        return node
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return Calc(schema, replace(node.hints, place=None), node, columns)


def _is_plain(hints: NodeHints) -> bool:
    """Whether the user said nothing special about the step."""
    placed = hints.uid is not None or hints.parallelism is not None or hints.slot_sharing_group is not None
    return not placed and hints.chaining and not hints.state_ttl_ms


def _repeats(node: PlanNode) -> bool:
    """Whether computing it twice gives the same."""
    if node_description(type(node)).of(Meaning.FUNCTION):
        return False
    return all(is_deterministic(part) for expression in expressions_of(node) for part in walk(expression))


def _same(left: PlanNode, right: PlanNode) -> bool:
    """Whether two nodes of a kind over the same inputs do the same; names of columns aside."""
    described = node_description(type(left)).fields
    return all(
        _equal(getattr(left, name), getattr(right, name))
        for name, f in described.items()
        if f.meaning is not Meaning.LABEL
    )


def _equal(left: object, right: object) -> bool:
    if isinstance(left, Schema):
        return isinstance(right, Schema) and left.types == right.types
    if isinstance(left, PlanNode):
        return left is right
    if isinstance(left, tuple):
        return isinstance(right, tuple) and len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, Expression) or type(left) is not type(right) or (part := part_description(type(left))) is None:
        return bool(left == right)
    return all(
        _equal(getattr(left, name), getattr(right, name))
        for name, f in part.fields.items()
        if f.meaning is not Meaning.LABEL
    )
