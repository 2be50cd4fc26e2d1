"""Whether what an operator reads may change."""

from __future__ import annotations

from flowrun.plan.changelog import ChangelogMode, node_mode
from flowrun.plan.nodes import PlanNode


def takes_changes(node: PlanNode) -> bool:
    """Whether any input of a node updates or deletes rows.

    Raises:
        OptionError: a source cannot be made from its options.
    """
    modes: dict[int, ChangelogMode] = {}
    waiting = list(node.inputs)
    while waiting:
        current = waiting[-1]
        missing = [i for i in current.inputs if id(i) not in modes]
        if missing:
            waiting.extend(missing)
            continue
        modes[id(current)] = node_mode(current, [modes[id(i)] for i in current.inputs])
        waiting.pop()
    return any(modes[id(i)] is not ChangelogMode.APPEND for i in node.inputs)
