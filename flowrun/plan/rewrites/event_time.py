"""Which nodes' event time anything after them goes by."""

from __future__ import annotations

from flowrun.core.semantics import TimeDomain
from flowrun.plan.conflicts import ResolveConflicts
from flowrun.plan.description import Meaning, Rows, node_description
from flowrun.plan.nodes import Plan, PlanNode, Sink, walk_plan
from flowrun.plan.relational import (
    Deduplicate,
    WindowTableFunction,
)
from flowrun.plan.windows import SessionWindow

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
    description = node_description(type(node))
    match node:
        case ResolveConflicts():
            return True  # watermarks say when rows are compared
        case Sink():
            return any(key.startswith(_COMMIT) for key in node.table.options)
        case WindowTableFunction(window=window) if not isinstance(window, SessionWindow):
            return False  # the window of a row is that of its time column
        case Deduplicate():
            return False
        case _:
            timed = any(getattr(node, f.name) is TimeDomain.EVENT for f in description.of(Meaning.CLOCK))
            return timed or description.rows is Rows.USER
