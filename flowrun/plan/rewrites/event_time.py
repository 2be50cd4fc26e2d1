"""Which nodes' event time anything after them goes by."""

from __future__ import annotations

from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.matching import MatchRecognize
from flowrun.plan.nodes import (
    Plan,
    PlanNode,
    Process,
    PythonMap,
    SessionWindow,
    Sink,
    TimeDomain,
    WindowAggregate,
    walk_plan,
)
from flowrun.plan.relational import (
    IntervalJoin,
    OverAggregate,
    TemporalJoin,
    TemporalSort,
    WindowJoin,
    WindowRank,
    WindowTableFunction,
)

_TIMED = (
    WindowAggregate,
    WindowJoin,
    WindowRank,
    IntervalJoin,
    TemporalJoin,
    OverAggregate,
    TemporalSort,
    MatchRecognize,
)
_COMMIT = "sink.partition-commit."


def with_used_event_time(plan: Plan) -> frozenset[int]:
    """Identities of the nodes whose rows' event time or watermarks make a difference to a result: windows, joins and sorts by event
    time, users' functions, ON CONFLICT, and sinks that mark complete partitions, stand after them.
    """
    used: set[int] = set()
    for node in reversed(list(walk_plan(plan))):  # readers before what they read
        if id(node) in used or _uses(node):
            used.update(id(i) for i in node.inputs)
    return frozenset(used)


def _uses(node: PlanNode) -> bool:
    match node:
        case Process() | PythonMap() | ResolveConflicts():
            return True
        case Sink():
            return any(key.startswith(_COMMIT) for key in node.table.options)
        case WindowTableFunction():
            return isinstance(node.window, SessionWindow) and node.domain is TimeDomain.EVENT
        case _ if isinstance(node, _TIMED):
            return node.domain is TimeDomain.EVENT
        case _:
            return False
