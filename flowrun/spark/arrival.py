"""Which nodes must carry the order in which their rows were read.

Rows that are equal in what a query orders by come in arrival order in the stream. On Spark there is no such order unless the scans
number their rows, which costs a column in every shuffle and keeps filters from being pushed below it: only what is asked for is numbered.
"""

from __future__ import annotations

from flowrun.functions.registry import aggregate
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.conflicts import OnConflict, ResolveConflicts
from flowrun.plan.description import Meaning, Rows, node_description
from flowrun.plan.expressions import AggregateCall
from flowrun.plan.joins import TemporalJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import Calc, Plan, PlanNode, Process, SideOutput, Split, Union, WindowAggregate, walk_plan
from flowrun.plan.relational import Deduplicate, GroupAggregate, OverAggregate, Rank, WindowRank
from flowrun.plan.windows import CountWindow, GlobalWindow

_KEEPING_ORDER = (Calc, Union, Split, SideOutput, ToChangelog, FromChangelog)
"""Besides those that pass on each row: nodes whose rows have an order of arrival because those that they come from have one."""
_ORDERED = (Rank, Deduplicate, ChangelogNormalize, WindowRank, OverAggregate, MatchRecognize, Process)
"""Nodes to which rows of equal order, or equal time, come one after the other."""


def arrival_needs(plan: Plan) -> frozenset[int]:
    """`id` of each node whose frame must carry the arrival of its rows."""
    needed: set[int] = set()
    for node in reversed(list(walk_plan(plan))):  # readers before what they read
        if _orders_by_arrival(node) or (id(node) in needed and _keeps_order(node)):
            needed.update(id(i) for i in node.inputs)
        if isinstance(node, TemporalJoin):  # of versions of the same time the one that came last counts
            needed.add(id(node.right))
        if isinstance(node, TemporalJoin) and id(node) in needed:
            needed.add(id(node.inputs[0]))
    return frozenset(needed)


def _keeps_order(node: PlanNode) -> bool:
    """Whether its rows arrive in the order of those that they come from; a user's function says nothing of it."""
    description = node_description(type(node))
    passes = description.rows in (Rows.EACH, Rows.REPEATED) and not description.of(Meaning.FUNCTION)
    return passes or isinstance(node, _KEEPING_ORDER)


def _orders_by_arrival(node: PlanNode) -> bool:
    if isinstance(node, WindowAggregate) and goes_by_count(node):
        return True
    if isinstance(node, GroupAggregate | WindowAggregate):
        return any(is_order_sensitive(call) for call in node.aggregates)
    if isinstance(node, ResolveConflicts):
        return node.action is OnConflict.NOTHING
    return isinstance(node, _ORDERED)


def goes_by_count(node: WindowAggregate) -> bool:
    """Whether it is the arrival of rows that fires the windows, and not the time of the rows."""
    counted = node.trigger is not None and node.trigger.count is not None
    return isinstance(node.window, CountWindow) or (isinstance(node.window, GlobalWindow) and counted)


def is_order_sensitive(call: AggregateCall) -> bool:
    """Whether the result depends on the order of the rows (FIRST_VALUE, LISTAGG, …)."""
    return (
        call.function in ("FIRST_VALUE", "LAST_VALUE", "LISTAGG", "ARRAY_AGG") and aggregate(call.function) is not None
    )
