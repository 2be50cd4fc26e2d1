"""The rule that filters rows as early as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from flowrun.plan.conditions import conjunction, conjuncts, may_move
from flowrun.plan.description import Passed, Taken, node_description
from flowrun.plan.disjunctions import implied
from flowrun.plan.expressions import ColumnRef, Expression, columns_used, substitute
from flowrun.plan.joins import IntervalJoin, Join, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, Plan, PlanNode, Union, WindowAggregate
from flowrun.plan.relational import Expand, Unnest, WindowTableFunction
from flowrun.plan.rewrites.calcs import is_cheap
from flowrun.plan.rewrites.conditions import (
    LEFT_FILTERED,
    LEFT_MATCHES_ONLY,
    RIGHT_FILTERED,
    RIGHT_MATCHES_ONLY,
    TwoInputs,
    filtering_calc,
    key_pairs,
    moved,
)
from flowrun.plan.rewrites.traversal import SoleInputs, map_with_sole_inputs, with_inputs
from flowrun.plan.windows import CountWindow, CustomWindow, GlobalWindow, SessionWindow

Places = tuple[tuple[int, Expression], ...]
"""Inputs by number, and the condition over each one's columns."""


def push_filters(plan: Plan) -> Plan:
    """Conditions above a node that only they read go below it where that keeps the result: conditions on the keys of an aggregation,
    ranking, OVER or pattern, on the side of a join that they read (on its keys: on both sides), on what a union, window table
    function, lookup, UNNEST or sort passes on.

    Not conditions that may fail or are not the same each time: below they would be tested on other rows.
    """
    return map_with_sole_inputs(plan, lambda node, sole: _pushed(node, sole) if isinstance(node, Calc) else node)


def _pushed(calc: Calc, sole: SoleInputs) -> Calc:
    """The Calc with what may go below its input gone there, as far down as it goes."""
    node = calc.input
    if calc.condition is None or id(node) not in sole:
        return calc
    stay: list[Expression] = []
    down: dict[int, list[Expression]] = defaultdict(list)
    for part in conjuncts(calc.condition):
        places = places_below(node, part) if may_move(part) else ()
        if not places:
            stay.append(part)
            places = implied_on_sides(node, part)
        for number, over in places:
            down[number].append(over)
    if not down:
        return calc
    inputs = tuple(
        _pushed(filtering_calc(child, list(dict.fromkeys(down[i])), calc.hints), sole) if i in down else child
        for i, child in enumerate(node.inputs)
    )
    return Calc(calc.schema, calc.hints, with_inputs(node, inputs), calc.projections, conjunction(stay))


def places_below(node: PlanNode, part: Expression) -> Places:
    """Where a condition on the node's output may be tested instead, all of them; none: only above."""
    match node:
        case Join() | WindowJoin() | IntervalJoin() | TemporalJoin():
            return _around_join(node, part)
        case Union():
            return tuple((i, part) for i in range(len(node.members)))
        case Calc():
            return _through_calc(node, part)
        case _:
            over = moved(part, passed_columns(node))
            return () if over is None else ((0, over),)


def implied_on_sides(node: PlanNode, part: Expression) -> Places:
    """What a disjunction over both sides of a join asks of each side by itself, where that may be tested below the join."""
    if not isinstance(node, Join | WindowJoin | IntervalJoin | TemporalJoin):
        return ()
    width = len(node.left.schema)
    on_left = implied(part, lambda columns: max(columns) < width)
    on_right = implied(part, lambda columns: min(columns) >= width)
    return tuple(place for own in (on_left, on_right) if own is not None for place in _around_join(node, own))


def passed_columns(node: PlanNode) -> dict[int, int]:
    """Output columns by which rows may be left out before a node with one input as well as after it, and where the input has them."""
    match node:
        case WindowAggregate():
            plain = node.trigger is None and node.evictor is None and node.late_tag is None
            by_key = plain and not isinstance(node.window, CountWindow | GlobalWindow | CustomWindow)
            return _columns_of_groups(node) if by_key else {}
        case WindowTableFunction():
            # a row that is left out could have joined two sessions, unless all rows of its key are
            session = isinstance(node.window, SessionWindow)
            return _same(node.keys if session else range(len(node.input.schema)))
        case Unnest():
            kept = node.keeps_collection
            return _same(i for i in range(len(node.input.schema)) if kept or i != node.collection)
        case Expand():
            return _in_all_sets(node)
        case _:
            return _columns_of_groups(node)


def _columns_of_groups(node: PlanNode) -> dict[int, int]:
    """Output columns that say to which rows a row belongs, and where the input has them; all that are passed on if it belongs to none."""
    description = node_description(type(node))
    groups = [f.name for f in description.over_inputs if f.groups]
    match description.output:
        case (Taken(field=name), *_) if name in groups:
            return dict(enumerate(getattr(node, name)))
        case (Passed(), *_) if groups:
            return _same(c for name in groups for c in getattr(node, name))
        case (Passed(), *_) if description.row_by_row:
            return _same(range(len(node.inputs[0].schema)))
        case _:
            return {}


def _same(columns: Iterable[int]) -> dict[int, int]:
    return {c: c for c in columns}


def _in_all_sets(node: Expand) -> dict[int, int]:
    """Columns that every grouping set passes on."""
    found = {}
    for position, expressions in enumerate(zip(*node.projections, strict=True)):
        first = expressions[0]
        if isinstance(first, ColumnRef) and all(e == first for e in expressions):
            found[position] = first.index
    return found


def _through_calc(node: Calc, part: Expression) -> Places:
    """Below a Calc that could not be merged, if the condition reads only what it passes on."""
    passed = all(is_cheap(node.projections[c]) for c in columns_used(part))
    return ((0, substitute(part, node.projections)),) if passed else ()


def _around_join(node: TwoInputs, part: Expression) -> Places:
    """On the side that it reads, if the join keeps no row of the other without a match; on keys, on the other side, too.

    The right side of a temporal join holds versions: without some of them an older one would be found.
    """
    width = len(node.left.schema)
    pairs = key_pairs(node)
    temporal = isinstance(node, TemporalJoin)
    left = moved(part, {i: i for i in range(width)})
    if left is not None:
        if node.kind not in LEFT_FILTERED:
            return ()
        other = None if temporal or node.kind not in RIGHT_MATCHES_ONLY else moved(part, dict(pairs))
        return ((0, left),) if other is None else ((0, left), (1, other))
    right = moved(part, {width + i: i for i in range(len(node.right.schema))})
    if right is None or node.kind not in RIGHT_FILTERED or temporal:
        return ()
    other = moved(part, {width + b: a for a, b in pairs}) if node.kind in LEFT_MATCHES_ONLY else None
    return ((1, right),) if other is None else ((1, right), (0, other))
