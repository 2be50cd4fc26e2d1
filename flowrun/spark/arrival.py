"""Finds the nodes that must carry the order in which their rows were read.

In the stream, rows that are equal in the columns of an ORDER BY stay in the order in which they arrived. On Spark there is no such order
unless the scans number their rows. The numbers are a column in every shuffle, and filters cannot be pushed below them: so only the scans
number their rows whose order some node needs.
"""

from __future__ import annotations

from flowrun.functions.registry import aggregate
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog, ToChangelog
from flowrun.plan.co_process import CoProcess
from flowrun.plan.conflicts import OnConflict, ResolveConflicts
from flowrun.plan.description import Meaning, Rows, node_description
from flowrun.plan.expressions import AggregateCall
from flowrun.plan.joins import TemporalJoin
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import Calc, Plan, PlanNode, Process, SideOutput, Split, Union, WindowAggregate, walk_plan
from flowrun.plan.relational import Deduplicate, GroupAggregate, OverAggregate, Rank, WindowRank
from flowrun.plan.windows import CountWindow, GlobalWindow

_KEEPING_ORDER = (Calc, Union, Split, SideOutput, ToChangelog, FromChangelog)
"""Nodes whose rows keep the order of arrival of the rows that they come from, besides nodes that pass on each row."""
_ORDERED = (Rank, Deduplicate, ChangelogNormalize, WindowRank, OverAggregate, MatchRecognize, Process, CoProcess)
"""Nodes whose result depends on the order in which rows with the same order columns, or the same time, arrive."""


def arrival_needs(plan: Plan) -> frozenset[int]:
    """The `id` of each node whose frame must carry the order of arrival of its rows."""
    needed: set[int] = set()
    for node in reversed(list(walk_plan(plan))):  # a node comes before the nodes that it reads
        if _orders_by_arrival(node) or (id(node) in needed and _keeps_order(node)):
            needed.update(id(i) for i in node.inputs)
        if isinstance(node, TemporalJoin):  # of versions with the same time the last one counts
            needed.add(id(node.right))
        if isinstance(node, TemporalJoin) and id(node) in needed:
            needed.add(id(node.inputs[0]))
    return frozenset(needed)


def _keeps_order(node: PlanNode) -> bool:
    """Whether the node's rows have the order of the rows that they come from, which is not known of a user's function."""
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
    """Whether the number of rows fires the windows, and not their time."""
    counted = node.trigger is not None and node.trigger.count is not None
    return isinstance(node.window, CountWindow) or (isinstance(node.window, GlobalWindow) and counted)


def is_order_sensitive(call: AggregateCall) -> bool:
    """Whether the result depends on the order of the rows (FIRST_VALUE, LISTAGG, …)."""
    return (
        call.function in ("FIRST_VALUE", "LAST_VALUE", "LISTAGG", "ARRAY_AGG") and aggregate(call.function) is not None
    )
