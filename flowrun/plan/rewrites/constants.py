"""The rule that evaluates what does not depend on rows."""

from __future__ import annotations

from dataclasses import replace

from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import Call, Expression, Literal, transform
from flowrun.plan.fallibility import is_deterministic, may_fail
from flowrun.plan.folding import fold_constants
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin, WindowJoin
from flowrun.plan.nodes import Calc, Plan, PlanNode
from flowrun.plan.rewrites.traversal import map_expressions, map_plan

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "LIKE")


def fold_plan_constants(plan: Plan) -> Plan:
    """Constant subexpressions become literals, and comparisons with NULL are NULL; a condition that is always true goes, and so does one
    that is asked twice.

    A constant that cannot be computed (1 / 0) stays: it fails when, and only if, a row reaches it.
    """

    def fold(node: PlanNode) -> PlanNode:
        folded = map_expressions(node, _folded)
        if isinstance(folded, Calc | Join | WindowJoin | IntervalJoin | TemporalJoin | LookupJoin):
            condition = _simplified(folded.condition)
            if condition is not folded.condition:
                return replace(folded, condition=condition)
        return folded

    return map_plan(plan, fold)


def _folded(expression: Expression) -> Expression:
    """Constants as literals; what is compared with NULL is NULL."""
    return fold_constants(transform(fold_constants(expression), _compared))


def _compared(expression: Expression) -> Expression:
    if not isinstance(expression, Call) or expression.function not in _COMPARISONS:
        return expression
    unknown = any(isinstance(a, Literal) and a.value is None for a in expression.arguments)
    harmless = not any(may_fail(a) or not is_deterministic(a) for a in expression.arguments)
    return Literal(expression.type, None) if unknown and harmless else expression


def _simplified(condition: Expression | None) -> Expression | None:
    if isinstance(condition, Literal):
        return None if condition.value is True else condition
    kept: list[Expression] = []
    parts = conjuncts(condition)
    for part in parts:
        if part not in kept or not is_deterministic(part):
            kept.append(part)
    return condition if len(kept) == len(parts) else conjunction(kept)
