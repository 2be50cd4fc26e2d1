"""Conditions moved to where they mean most: from above a join into it, and from a join to the input that they read.

`FROM a, b WHERE a.id = b.id` is a join with keys only so; `rn = 1` above a join shows a top-N below it only so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowrun.core.semantics import JoinKind
from flowrun.plan.conditions import conjunction, conjuncts, may_move
from flowrun.plan.disjunctions import factored
from flowrun.plan.expressions import Expression, columns_used, substitute
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.joins import Join, TemporalJoin
from flowrun.plan.nodes import Calc, Plan, PlanNode, walk_plan
from flowrun.plan.recognition.nodes_made import auxiliary, filtered
from flowrun.plan.recognition.sides import Side, is_true, over_right, rejects_missing, side_of
from flowrun.plan.rewrites.traversal import map_plan, reader_counts, with_inputs, with_sinks

_WHERE_BELOW = {
    JoinKind.INNER: (Side.LEFT, Side.RIGHT),
    JoinKind.LEFT: (Side.LEFT,),
    JoinKind.RIGHT: (Side.RIGHT,),
    JoinKind.FULL: (),
    JoinKind.SEMI: (Side.LEFT,),
    JoinKind.ANTI: (Side.LEFT,),
}
"""Inputs that may be filtered by what holds of the result."""

_ON_BELOW = {
    JoinKind.INNER: (Side.LEFT, Side.RIGHT),
    JoinKind.LEFT: (Side.RIGHT,),
    JoinKind.RIGHT: (Side.LEFT,),
    JoinKind.FULL: (),
    JoinKind.SEMI: (Side.LEFT, Side.RIGHT),
    JoinKind.ANTI: (Side.RIGHT,),
}
"""Inputs that may be filtered by the join's own condition: those of which rows without match do not come out."""

_KEEPS_LEFT = {JoinKind.LEFT: JoinKind.INNER, JoinKind.FULL: JoinKind.RIGHT}
_KEEPS_RIGHT = {JoinKind.RIGHT: JoinKind.INNER, JoinKind.FULL: JoinKind.LEFT}


def factor_conditions(plan: Plan) -> Plan:
    """The plan with what all branches of an OR ask in front of it: an equality there is a key of a join only so."""

    def rewrite(node: PlanNode) -> PlanNode:
        if not isinstance(node, Calc | Join | TemporalJoin) or node.condition is None:
            return node
        condition = factored(node.condition)
        return node if condition == node.condition else replace(node, condition=condition)

    return map_plan(plan, rewrite)


def push_into_joins(plan: Plan) -> Plan:
    """The plan with conditions over joins in them or below them. A join that several nodes read stays as it is."""
    readers = reader_counts(plan)
    pushing = _Pushing()
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rewritten = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(rewritten, Join):
            rewritten = pushing.own_condition(rewritten)
        elif isinstance(rewritten, Calc):
            rewritten = pushing.filter(rewritten)
        done[id(node)] = rewritten
        if readers[id(node)] == 1:
            pushing.owned(rewritten)
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


class _Pushing:
    """Rewrites nodes; `_single` are those that one node reads (held, so that their identities stay unique)."""

    def __init__(self) -> None:
        self._single: dict[int, PlanNode] = {}

    def owned(self, node: PlanNode) -> PlanNode:
        """Note that only one node reads this one."""
        self._single[id(node)] = node
        return node

    def own_condition(self, join: Join) -> Join:
        """The join with those parts of its condition that read one input tested below it, where that is the same."""
        width = len(join.left.schema)
        parts = [c for c in conjuncts(join.condition) if not is_true(c)]
        below: dict[Side, list[Expression]] = {Side.LEFT: [], Side.RIGHT: []}
        rest: list[Expression] = []
        for part in parts:
            side = side_of(part, width)
            (below[side] if side in _ON_BELOW[join.kind] and may_move(part) else rest).append(part)
        return replace(self._with_filters(join, below), condition=conjunction(rest))

    def filter(self, calc: Calc) -> PlanNode:
        """The Calc with what its condition says of a join below in that join, if nothing else reads it."""
        steps: list[Calc] = []
        node = calc.input
        while isinstance(node, Calc) and id(node) in self._single:
            steps.append(node)
            node = node.input
        if calc.condition is None or not isinstance(node, Join) or id(node) not in self._single:
            return calc
        parts = {p: _through(p, steps) for p in conjuncts(calc.condition)}
        known = {p: over for p, over in parts.items() if over is not None}
        join, moved = self._with_where(node, known)
        if not moved:
            return calc if join is node else self._rebuilt(calc, steps, join)
        remaining = conjunction(p for p in conjuncts(calc.condition) if p not in moved)
        return self._rebuilt(replace(calc, condition=remaining), steps, join)

    def _rebuilt(self, calc: Calc, steps: list[Calc], join: Join) -> Calc:
        below: PlanNode = self.owned(join)
        for step in reversed(steps):
            below = self.owned(replace(step, input=below))
        return replace(calc, input=below)

    def _with_where(self, join: Join, parts: dict[Expression, Expression]) -> tuple[Join, set[Expression]]:
        """The join with conditions over its result taken in, and which of them were."""
        width = len(join.left.schema)
        kind = _simplified(join.kind, parts.values(), width)
        if kind is not join.kind:
            join = self.own_condition(replace(join, kind=kind))
        below: dict[Side, list[Expression]] = {Side.LEFT: [], Side.RIGHT: []}
        inside: list[Expression] = []
        moved = set()
        for part, over in parts.items():
            side = side_of(over, width)
            if side in _WHERE_BELOW[join.kind] and may_move(over):
                below[side].append(over)
            elif side is Side.BOTH and join.kind is JoinKind.INNER and is_deterministic(over):
                inside.append(over)
            else:
                continue
            moved.add(part)
        if not moved:
            return join, moved
        condition = conjunction([*conjuncts(join.condition), *inside])
        return replace(self._with_filters(join, below), condition=condition), moved

    def _with_filters(self, join: Join, below: dict[Side, list[Expression]]) -> Join:
        width = len(join.left.schema)
        left, right = join.left, join.right
        if below[Side.LEFT]:
            left = self._filtered(left, below[Side.LEFT], join, "left")
        if below[Side.RIGHT]:
            right = self._filtered(right, [over_right(p, width) for p in below[Side.RIGHT]], join, "right")
        return join if left is join.left and right is join.right else replace(join, left=left, right=right)

    def _filtered(self, node: PlanNode, parts: list[Expression], join: Join, side: str) -> PlanNode:
        made = filtered(node, parts, auxiliary(join.hints, side))
        assert isinstance(made, Calc)
        return self.owned(self.filter(made))


def _through(condition: Expression, steps: list[Calc]) -> Expression | None:
    """The condition over what is below the steps, highest first; None if it reads what they compute at random."""
    for step in steps:
        if not all(is_deterministic(step.projections[i]) for i in columns_used(condition)):
            return None
        condition = substitute(condition, step.projections)
    return condition


def _simplified(kind: JoinKind, conditions: Iterable[Expression], width: int) -> JoinKind:
    """The join's kind, if rows without match on one side cannot satisfy what is asked of the result."""
    for condition in conditions:
        if kind.keeps_left and rejects_missing(condition, width, Side.RIGHT):
            kind = _KEEPS_LEFT[kind]
        if kind.keeps_right and rejects_missing(condition, width, Side.LEFT):
            kind = _KEEPS_RIGHT[kind]
    return kind
