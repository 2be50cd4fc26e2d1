"""The rule that does not look for duplicates where there are none."""

from __future__ import annotations

from flowrun.api.changelog import ChangelogMode
from flowrun.errors import OptionError
from flowrun.plan.changelog import node_mode
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Scan, walk_plan
from flowrun.plan.relational import GroupAggregate
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks
from flowrun.plan.unique_keys import Keys, node_unique_keys


def remove_needless_distinct(plan: Plan) -> Plan:
    """DISTINCT over columns that tell all rows apart already (the keys of an aggregation, deduplication, … below) goes, and its state
    with it.

    A primary key that a source merely declares does not count: nobody checks it. Not over rows that change: DISTINCT holds back
    changes of columns that it drops. Not steps that the user gave a uid or parallelism.
    """
    done: dict[int, PlanNode] = {}
    keys: dict[int, Keys] = {}
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        known = [keys[id(i)] for i in node.inputs]
        keys[id(node)] = frozenset() if isinstance(node, Scan) else node_unique_keys(node, known)
        if isinstance(rebuilt, GroupAggregate) and _is_needless(rebuilt, known[0]) and _appends(node.inputs[0]):
            rebuilt = _projection(rebuilt)
        done[id(node)] = rebuilt
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _is_needless(node: GroupAggregate, keys: Keys) -> bool:
    own = frozenset(node.keys)
    plain = node.hints.uid is None and node.hints.parallelism is None
    return plain and not node.aggregates and any(key <= own for key in keys)


def _appends(node: PlanNode) -> bool:
    """Whether the node only inserts; not known of a source that cannot be made, which is reported elsewhere."""
    modes: dict[int, ChangelogMode] = {}
    waiting = [node]
    while waiting:
        top = waiting[-1]
        missing = [i for i in top.inputs if id(i) not in modes]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        try:
            modes[id(top)] = node_mode(top, [modes[id(i)] for i in top.inputs])
        except OptionError:
            return False
    return modes[id(node)] is ChangelogMode.APPEND


def _projection(node: GroupAggregate) -> Calc:
    fields = node.input.schema.fields
    hints = NodeHints(name=node.hints.name, parallelism=node.input.hints.parallelism, location=node.hints.location)
    return Calc(node.schema, hints, node.input, tuple(ColumnRef(fields[k].type, k, fields[k].name) for k in node.keys))
