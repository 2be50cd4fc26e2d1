"""Rebuilding a plan bottom-up while shared nodes stay shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from flowrun.errors import InternalError
from flowrun.plan.description import Meaning, node_description, part_description
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.nodes import Plan, PlanNode, Sink, walk_plan

Holder = TypeVar("Holder", bound=Any)
"""A node, or a part of one."""
Sought = TypeVar("Sought", Expression, AggregateCall)


def with_inputs(node: PlanNode, inputs: tuple[PlanNode, ...]) -> PlanNode:
    """The node reading `inputs` instead; the very node if nothing changes."""
    if node.inputs == inputs:  # nodes compare by identity
        return node
    return replace(node, **input_fields(node, inputs))


def input_fields(node: PlanNode, inputs: tuple[PlanNode, ...]) -> dict[str, Any]:
    """The values of the fields that hold what a node reads, by name, for `replace`."""
    description = node_description(type(node))
    (first, *_) = names = description.inputs
    if description.fields[first].meaning is Meaning.INPUTS:
        return {first: inputs}
    return dict(zip(names, inputs, strict=True))


def map_plan(plan: Plan, rewrite: Callable[[PlanNode], PlanNode]) -> Plan:
    """The plan with every node replaced by `rewrite(node)`, whose inputs have been rewritten before it."""
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        done[id(node)] = rewrite(with_inputs(node, tuple(done[id(i)] for i in node.inputs)))
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


SoleInputs = Mapping[int, PlanNode]
"""Rewritten nodes that one node reads, by identity. It holds them, so that no other node gets the identity of one."""


def map_with_sole_inputs(plan: Plan, rewrite: Callable[[PlanNode, SoleInputs], PlanNode]) -> Plan:
    """`map_plan` for rules that go into what they read: only where nobody else reads it."""
    readers = reader_counts(plan)
    sole: dict[int, PlanNode] = {}
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rewritten = rewrite(with_inputs(node, tuple(done[id(i)] for i in node.inputs)), sole)
        done[id(node)] = rewritten
        if readers[id(node)] == 1:
            sole[id(rewritten)] = rewritten
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def with_sinks(plan: Plan, sinks: tuple[PlanNode, ...]) -> Plan:
    """The plan with other sinks. Raises InternalError if one of them is no sink."""
    checked = tuple(s for s in sinks if isinstance(s, Sink))
    if len(checked) != len(sinks):
        raise InternalError("a rewrite replaced a sink by something else")
    return replace(plan, sinks=checked)


def reader_counts(plan: Plan) -> Counter[int]:
    """How many nodes read each node, by identity."""
    return Counter(id(i) for node in walk_plan(plan) for i in node.inputs)


def map_expressions(node: PlanNode, rewrite: Callable[[Expression], Expression]) -> PlanNode:
    """The node with every expression replaced that it evaluates on the rows it reads; the very node if nothing changes.

    Not those over the rows of a match, which are made of other parts, nor those over the rows of a table that it looks up.
    """
    return _with_mapped(node, node_description(type(node)).evaluated, Expression, rewrite)


def map_aggregate_calls(node: PlanNode, rewrite: Callable[[AggregateCall], AggregateCall]) -> PlanNode:
    """The node with every aggregate replaced that it computes of the rows it reads; the very node if nothing changes."""
    return _with_mapped(node, node_description(type(node)).evaluated, AggregateCall, rewrite)


def expressions_of(node: PlanNode) -> list[Expression]:
    """The expressions that a node evaluates on the rows it reads."""
    return list(_found_in(node, Expression))


def aggregate_calls_of(node: PlanNode) -> list[AggregateCall]:
    """The aggregates that a node computes of the rows it reads."""
    return list(_found_in(node, AggregateCall))


def _mapped(
    value: Any, kind: type[Sought], rewrite: Callable[[Sought], Sought]
) -> Any:  # Any: what a field holds, and the same again
    """A field's value with what is of a kind in it replaced, the very value if nothing changes."""
    if isinstance(value, kind):
        return rewrite(value)
    if isinstance(value, tuple):
        mapped = tuple(_mapped(v, kind, rewrite) for v in value)
        return value if all(a is b for a, b in zip(value, mapped, strict=True)) else mapped
    description = part_description(type(value))
    return value if description is None else _with_mapped(value, description.evaluated, kind, rewrite)


def _with_mapped(
    holder: Holder, names: Iterable[str], kind: type[Sought], rewrite: Callable[[Sought], Sought]
) -> Holder:
    """The node, or the part of one, with what is of a kind in some fields replaced; the very one if nothing changes."""
    changes = {}
    for name in names:
        held = getattr(holder, name)
        changed = _mapped(held, kind, rewrite)
        if changed is not held:
            changes[name] = changed
    return replace(holder, **changes) if changes else holder


def _found_in(node: PlanNode, kind: type[Sought]) -> Iterator[Sought]:
    for name in node_description(type(node)).evaluated:
        yield from _found(getattr(node, name), kind)


def _found(value: object, kind: type[Sought]) -> Iterator[Sought]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _found(entry, kind)
    elif (description := part_description(type(value))) is not None:
        for name in description.evaluated:
            yield from _found(getattr(value, name), kind)
