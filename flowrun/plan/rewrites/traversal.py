"""Rebuilding a plan bottom-up while shared nodes stay shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from flowrun.errors import InternalError
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import (
    Calc,
    Plan,
    PlanNode,
    Process,
    PythonMap,
    Scan,
    SideOutput,
    Sink,
    Split,
    Union,
    WindowAggregate,
    walk_plan,
)
from flowrun.plan.relational import (
    AssignTime,
    Deduplicate,
    Expand,
    GroupAggregate,
    IntervalJoin,
    Join,
    LookupJoin,
    Over,
    OverAggregate,
    Rank,
    TableFunctionCall,
    TemporalJoin,
    TemporalSort,
    Unnest,
    WindowJoin,
    WindowRank,
    WindowTableFunction,
)

_ONE_INPUT = (
    Calc, Split, SideOutput, PythonMap, Process, WindowAggregate, Sink, AssignTime, Expand, Unnest, TableFunctionCall,
    WindowTableFunction, GroupAggregate, Over, OverAggregate, Rank, Deduplicate, WindowRank, TemporalSort, LookupJoin, MatchRecognize,
    ToChangelog, FromChangelog, ChangelogNormalize, ResolveConflicts,
)  # fmt: skip
_TWO_INPUTS = (Join, WindowJoin, IntervalJoin, TemporalJoin)


def with_inputs(node: PlanNode, inputs: tuple[PlanNode, ...]) -> PlanNode:
    """The node reading `inputs` instead; the very node if nothing changes."""
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)):
        return node
    if isinstance(node, Union):
        return replace(node, members=inputs)
    if isinstance(node, _ONE_INPUT):
        return replace(node, input=inputs[0])
    if isinstance(node, _TWO_INPUTS):
        return replace(node, left=inputs[0], right=inputs[1])
    raise InternalError(f"a {type(node).__name__} cannot be given other inputs")


def map_plan(plan: Plan, rewrite: Callable[[PlanNode], PlanNode]) -> Plan:
    """The plan with every node replaced by `rewrite(node)`, whose inputs have been rewritten before it."""
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        done[id(node)] = rewrite(with_inputs(node, tuple(done[id(i)] for i in node.inputs)))
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
    """The node with every expression that it evaluates replaced."""
    match node:
        case Scan():
            mark = node.watermark
            if mark is not None:
                punctuation = rewrite(mark.punctuation) if mark.punctuation is not None else None
                mark = replace(mark, time=rewrite(mark.time), punctuation=punctuation)
            return replace(node, projections=tuple(rewrite(p) for p in node.projections), watermark=mark)
        case Calc():
            condition = rewrite(node.condition) if node.condition is not None else None
            return replace(node, projections=tuple(rewrite(p) for p in node.projections), condition=condition)
        case Split():
            return replace(node, branches=tuple((name, rewrite(e)) for name, e in node.branches))
        case WindowAggregate():
            trigger = node.trigger
            if trigger is not None and trigger.delta is not None:
                trigger = replace(trigger, delta=rewrite(trigger.delta))
            return replace(node, aggregates=tuple(_map_call(a, rewrite) for a in node.aggregates), trigger=trigger)
        case _:
            return _map_relational(node, rewrite)


def _map_relational(node: PlanNode, rewrite: Callable[[Expression], Expression]) -> PlanNode:
    match node:
        case GroupAggregate():
            return replace(node, aggregates=tuple(_map_call(a, rewrite) for a in node.aggregates))
        case OverAggregate():
            return replace(node, calls=tuple(_map_call(c, rewrite) for c in node.calls))
        case Over():
            return replace(node, calls=tuple(replace(c, call=_map_call(c.call, rewrite)) for c in node.calls))
        case Expand():
            return replace(node, projections=tuple(tuple(rewrite(e) for e in p) for p in node.projections))
        case TableFunctionCall():
            return replace(node, arguments=tuple(rewrite(a) for a in node.arguments))
        case Join() | WindowJoin() | IntervalJoin() | TemporalJoin():
            return replace(node, condition=rewrite(node.condition)) if node.condition is not None else node
        case LookupJoin():
            condition = rewrite(node.condition) if node.condition is not None else None
            return replace(node, keys=tuple((rewrite(e), c) for e, c in node.keys), condition=condition)
        case _:
            return node


def _map_call(call: AggregateCall, rewrite: Callable[[Expression], Expression]) -> AggregateCall:
    condition = rewrite(call.filter) if call.filter is not None else None
    return replace(call, arguments=tuple(rewrite(a) for a in call.arguments), filter=condition)
