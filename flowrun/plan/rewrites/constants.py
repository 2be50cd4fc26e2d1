"""The rule that evaluates what does not depend on rows."""

from __future__ import annotations

from dataclasses import replace

from flowrun.plan.expressions import Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.nodes import Calc, Plan, PlanNode
from flowrun.plan.rewrites.traversal import map_expressions, map_plan


def fold_plan_constants(plan: Plan) -> Plan:
    """Constant subexpressions become literals, and a condition that is always true goes.

    A constant that cannot be computed (1 / 0) stays: it fails when, and only if, a row reaches it.
    """

    def fold(node: PlanNode) -> PlanNode:
        folded = map_expressions(node, fold_constants)
        if isinstance(folded, Calc) and isinstance(folded.condition, Literal) and folded.condition.value is True:
            folded = replace(folded, condition=None)
        return folded

    return map_plan(plan, fold)
