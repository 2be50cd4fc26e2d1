"""Rules on Calcs: neighbours become one, and those that do nothing go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess, Literal, columns_used, substitute, walk
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Settings
from flowrun.plan.rewrites.traversal import SoleInputs, map_plan, map_with_sole_inputs


def merge_calcs(plan: Plan) -> Plan:
    """A Calc that only another Calc reads becomes part of it, so that rows are filtered and projected in one pass.

    Not if an expression would be evaluated twice or a random one on other rows; not across steps that the user gave different
    parallelism, slots or `on_error`, or took out of their chain.
    """

    def merge(node: PlanNode, sole: SoleInputs) -> PlanNode:
        below = node.inputs[0] if node.inputs else node
        if not isinstance(node, Calc) or not isinstance(below, Calc) or id(below) not in sole:
            return node
        if not _may_share_operator(node, below, plan.settings) or not _may_inline(node, below):
            return node
        return replace(
            node,
            input=below.input,
            projections=tuple(substitute(p, below.projections) for p in node.projections),
            condition=conjunction(
                (*conjuncts(below.condition), *conjuncts(_substituted(node.condition, below.projections)))
            ),
            hints=_merged_hints(node.hints, below.hints),
        )

    return map_with_sole_inputs(plan, merge)


def remove_identity_calcs(plan: Plan) -> Plan:
    """A Calc that passes every row and column on under the same names goes, unless the user gave it a parallelism or slots."""

    def remove(node: PlanNode) -> PlanNode:
        return node.input if isinstance(node, Calc) and _is_identity(node) else node

    return map_plan(plan, remove)


def _is_identity(calc: Calc) -> bool:
    hints = calc.hints
    if calc.condition is not None or calc.required is not None or calc.schema.names != calc.input.schema.names:
        return False
    if hints.parallelism is not None or hints.slot_sharing_group is not None or not hints.chaining:
        return False
    return all(isinstance(p, ColumnRef) and p.index == i for i, p in enumerate(calc.projections))


def _may_share_operator(upper: Calc, lower: Calc, settings: Settings) -> bool:
    if upper.required is not None or lower.required is not None:
        return False
    above, below = upper.hints, lower.hints
    same = above.parallelism == below.parallelism and above.slot_sharing_group == below.slot_sharing_group
    same = same and (above.on_error or settings.on_error) is (below.on_error or settings.on_error)
    return same and above.chaining and below.chaining


def _may_inline(above: Calc, below: Calc) -> bool:
    """Whether every computed column of `below` is still evaluated at most once a row, and on the same rows if it is random.

    Projections of one Calc share equal sub-expressions, but not with its condition.
    """
    projected = Counter(e.index for x in above.projections for e in walk(x) if isinstance(e, ColumnRef))
    tested = columns_used(above.condition) if above.condition is not None else frozenset()
    for index, projection in enumerate(below.projections):
        if is_cheap(projection):
            continue
        if is_deterministic(projection):
            if index in tested and projected[index]:
                return False
        elif projected[index] > 1 or (projected[index] and above.condition is not None) or index in tested:
            return False
    return True


def is_cheap(expression: Expression) -> bool:
    """Whether it costs next to nothing to evaluate it twice: a column, a field of one, a constant."""
    while isinstance(expression, FieldAccess):
        expression = expression.operand
    return isinstance(expression, ColumnRef | Literal)


def _substituted(expression: Expression | None, columns: tuple[Expression, ...]) -> Expression | None:
    return None if expression is None else substitute(expression, columns)


def _merged_hints(above: NodeHints, below: NodeHints) -> NodeHints:
    names = [n for n in (below.name, above.name) if n is not None]
    if len(names) == 2:
        below_step, above_step = (n.partition(".")[0] for n in names)
        if below_step == above_step:  # parts of one step
            names = names[:1] if "." in names[1] else names[1:]
    return replace(above, name=", ".join(dict.fromkeys(names)) or None, uid=above.uid or below.uid)
