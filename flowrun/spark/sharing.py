"""Decides which rows Spark keeps because several steps or sinks read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, SideOutput, Sink, Split, Union, walk_plan
from flowrun.plan.relational import AssignTime, Expand, Unnest, Values, WindowTableFunction

_CHEAP = (Calc, Union, Split, SideOutput, AssignTime, Expand, Unnest, Values, WindowTableFunction, Sink)
"""Nodes that cost less to compute again than to keep. Files are read again, too: each reader wants other columns."""
FILES = "filesystem"


def kept_nodes(plan: Plan, is_hosted: Callable[[PlanNode], bool]) -> Mapping[int, int]:
    """`id` of each node whose rows are computed once and kept → position of the last sink that reads them.

    Rows are kept if several nodes read them and they are expensive: they need a shuffle, Python, or a source that is no file, which might
    give other rows if it is read again.

    Args:
        plan: the optimised plan.
        is_hosted: whether a node runs in Python workers.
    """
    readers = Counter(id(i) for node in walk_plan(plan) for i in node.inputs)
    costly: dict[int, bool] = {}
    kept: set[int] = set()
    for node in walk_plan(plan):
        own = is_hosted(node) or not (isinstance(node, _CHEAP) or _is_file(node))
        costly[id(node)] = own or any(costly[id(i)] and id(i) not in kept for i in node.inputs)
        if costly[id(node)] and readers[id(node)] > 1:
            kept.add(id(node))
    return _last_readers(plan, kept)


def _is_file(node: PlanNode) -> bool:
    return isinstance(node, Scan) and node.table.connector == FILES


def _last_readers(plan: Plan, kept: set[int]) -> Mapping[int, int]:
    last: dict[int, int] = {}
    for position, sink in enumerate(plan.sinks):
        stack: list[PlanNode] = [sink]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if id(node) in kept:
                last[id(node)] = position
            stack.extend(node.inputs)
    return last
