"""The rules that find what must hold on one side of a join: from the other side, and from a condition over both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flowrun.plan.changelog_nodes import ToChangelog
from flowrun.plan.conditions import conjuncts, may_move
from flowrun.plan.description import Passed, node_description
from flowrun.plan.disjunctions import implied
from flowrun.plan.expressions import ColumnRef, Expression, columns_used, remap_columns
from flowrun.plan.joins import IntervalJoin, Join, WindowJoin
from flowrun.plan.nodes import Calc, Plan, PlanNode, Split, WindowAggregate, walk_plan
from flowrun.plan.relational import GroupAggregate, TableFunctionCall, Unnest
from flowrun.plan.rewrites.conditions import (
    LEFT_MATCHES_ONLY,
    RIGHT_MATCHES_ONLY,
    filtering_calc,
    key_pairs,
    moved,
)
from flowrun.plan.rewrites.traversal import map_plan, with_inputs, with_sinks

Facts = tuple[Expression, ...]
"""Conditions over a node's columns that hold of every row."""

_NOT_FOLLOWED = (Split, Unnest, TableFunctionCall, ToChangelog)
"""Nodes whose output begins with the columns of their input, too, past which conditions are not followed."""
_MOST = 64
"""No more facts of a node than so many are followed."""


def infer_join_filters(plan: Plan) -> Plan:
    """What holds of the keys on one side of a join is asked of the other, too: of `a.k = b.k AND a.k = 5`, `b.k = 5`. It goes on
    through further joins on the same keys.

    Not on a side whose rows come out without a match.
    """
    done: dict[int, PlanNode] = {}
    facts: dict[int, Facts] = {}  # of the rewritten node, by identity of the one before
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        known = [facts[id(i)] for i in node.inputs]
        if isinstance(rebuilt, Join | WindowJoin | IntervalJoin):
            rebuilt, known = _inferred(rebuilt, known)
        done[id(node)] = rebuilt
        facts[id(node)] = tuple(dict.fromkeys(_facts(rebuilt, known)))[:_MOST]
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def infer_side_filters(plan: Plan) -> Plan:
    """What every branch of an OR in a join's condition asks of one side is asked of that side's rows before they are joined: of
    `(a.x = 1 AND b.y = 2) OR (a.x = 3 AND b.y = 4)`, `a.x = 1 OR a.x = 3` and `b.y = 2 OR b.y = 4`.

    The condition stays. Not on a side whose rows come out without a match.
    """

    def rewrite(node: PlanNode) -> PlanNode:
        if not isinstance(node, Join | WindowJoin | IntervalJoin):
            return node
        width = len(node.left.schema)
        parts = conjuncts(node.condition)
        if node.kind in LEFT_MATCHES_ONLY:
            found = _implied_parts(parts, lambda columns: max(columns) < width)
            if found:
                node = replace(node, left=filtering_calc(node.left, found, node.hints))
        if node.kind in RIGHT_MATCHES_ONLY:
            found = _implied_parts(parts, lambda columns: min(columns) >= width)
            if found:
                below = [remap_columns(p, {i: i - width for i in columns_used(p)}) for p in found]
                node = replace(node, right=filtering_calc(node.right, below, node.hints))
        return node

    return map_plan(plan, rewrite)


def _implied_parts(parts: Facts, reads: Callable[[frozenset[int]], bool]) -> list[Expression]:
    return [own for part in parts if (own := implied(part, reads)) is not None]


def _inferred(node: Join | WindowJoin | IntervalJoin, known: list[Facts]) -> tuple[PlanNode, list[Facts]]:
    pairs = key_pairs(node)
    left, right = known
    for_right = _missing(left, right, dict(pairs)) if node.kind in RIGHT_MATCHES_ONLY else ()
    for_left = _missing(right, left, {b: a for a, b in pairs}) if node.kind in LEFT_MATCHES_ONLY else ()
    if for_right:
        node = replace(node, right=filtering_calc(node.right, for_right, node.hints))
    if for_left:
        node = replace(node, left=filtering_calc(node.left, for_left, node.hints))
    return node, [left + for_left, right + for_right]


def _missing(known: Facts, there: Facts, columns: dict[int, int]) -> Facts:
    """What is known of one side's keys and not yet of the other's."""
    over = (moved(fact, columns) for fact in known)
    return tuple(fact for fact in over if fact is not None and fact not in there)


def _facts(node: PlanNode, known: list[Facts]) -> Facts:
    match node:
        case Calc():
            # only the first of several columns that pass the same one on: enough to infer from
            passed = {p.index: i for i, p in reversed(list(enumerate(node.projections))) if isinstance(p, ColumnRef)}
            return _moved((*filter(may_move, conjuncts(node.condition)), *known[0]), passed)
        case GroupAggregate() | WindowAggregate():
            return _moved(known[0], {k: i for i, k in reversed(list(enumerate(node.keys)))})
        case Join() | WindowJoin() | IntervalJoin():
            return _of_join(node, *known)
        case _:
            output = node_description(type(node)).output
            followed = output and isinstance(output[0], Passed) and not isinstance(node, _NOT_FOLLOWED)
            return known[0] if followed else ()


def _moved(facts: Facts, columns: dict[int, int]) -> Facts:
    over = (moved(fact, columns) for fact in facts)
    return tuple(fact for fact in over if fact is not None)


def _of_join(node: Join | WindowJoin | IntervalJoin, left: Facts, right: Facts) -> Facts:
    """Facts of both sides, but of one that may be missing; the left rows of SEMI and ANTI are as they were."""
    width = len(node.left.schema)
    facts: Facts = () if node.kind.keeps_right else left
    if not node.kind.keeps_left and not node.kind.left_only:
        facts += _moved(right, {i: width + i for fact in right for i in columns_used(fact)})
    return facts
