"""Event time of nodes as it will be once recognition has found what general nodes stand for."""

from __future__ import annotations

from flowrun.core.semantics import TimeDomain
from flowrun.errors import PipelineError, UnsupportedPlanError
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.nodes import NodeHints, Plan, PlanNode, Sink, TableReference, walk_plan
from flowrun.plan.recognition import recognise
from flowrun.plan.relational import GroupAggregate, Over, WindowTableFunction
from flowrun.plan.traits import TraitIndex

_GENERAL = (Join, GroupAggregate, Over, TemporalJoin, WindowTableFunction)


def settled(node: PlanNode) -> PlanNode:
    """The node as recognition will make it; the node itself if nothing is to be found, or something is wrong that will be reported then."""
    plan = Plan("", (Sink(node.schema, NodeHints(), node, TableReference("rows", "blackhole", {})),))
    if not any(isinstance(n, _GENERAL) for n in walk_plan(plan)):
        return node
    try:
        return recognise(plan).sinks[0].input
    except (PipelineError, UnsupportedPlanError):
        return node


def has_event_time(node: PlanNode) -> bool:
    """Whether the rows will carry event time."""
    return node.event_time or settled(node).event_time


def time_column(node: PlanNode, domain: TimeDomain) -> int | None:
    """The column that is a time attribute of a clock: the one that the rows' event time is, else the first; None if there is none."""
    traits = TraitIndex()[settled(node)]
    found = [i for i in range(len(node.schema)) if traits.attribute(i) is domain]
    return next((i for i in found if traits.is_current(i)), found[0] if found else None)
