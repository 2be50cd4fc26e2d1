"""The rule that computes equal parts of a plan once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace
from typing import Any

from flowrun.core.schema import Schema
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression, walk
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import (
    Calc,
    NodeHints,
    Plan,
    PlanNode,
    Process,
    PythonMap,
    Scan,
    SideOutput,
    Sink,
    Split,
    WindowAggregate,
    walk_plan,
)
from flowrun.plan.relational import Expand, GroupAggregate, TableFunctionCall
from flowrun.plan.rewrites.traversal import map_expressions, with_inputs, with_sinks

_NEVER_SHARED = (Scan, Sink, Process, PythonMap, TableFunctionCall, Split, SideOutput)
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
    found: list[Expression] = []

    def collect(expression: Expression) -> Expression:
        found.append(expression)
        return expression

    map_expressions(node, collect)
    return all(is_deterministic(part) for expression in found for part in walk(expression))


def _same(left: PlanNode, right: PlanNode) -> bool:
    """Whether two nodes over the same inputs do the same; names of columns aside."""
    for entry in fields(left):
        if entry.name == "hints":
            continue
        if not _equal(getattr(left, entry.name), getattr(right, entry.name)):
            return False
    return True


def _equal(left: Any, right: Any) -> bool:  # Any: the fields of nodes are of many types
    if isinstance(left, Schema):
        return isinstance(right, Schema) and left.types == right.types
    if isinstance(left, PlanNode):
        return left is right
    if isinstance(left, AggregateCall) and isinstance(right, AggregateCall):
        return replace(left, name="") == replace(right, name="")
    if isinstance(left, tuple):
        return isinstance(right, tuple) and len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
