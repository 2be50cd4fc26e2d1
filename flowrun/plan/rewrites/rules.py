"""The rules in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flowrun.plan.nodes import Plan
from flowrun.plan.rewrites.calcs import merge_calcs, remove_identity_calcs
from flowrun.plan.rewrites.constants import fold_plan_constants
from flowrun.plan.rewrites.filters import push_filter_hints
from flowrun.plan.rewrites.projections import prune_columns

Rule: TypeAlias = Callable[[Plan], Plan]

# Folding first: a folded condition merges and pushes better. Identity Calcs go before pruning, so that pruning does not have to
# carry them along, and after it, because pruning makes new ones. Filters are pushed last, when a Calc stands right above its Scan.
RULES: tuple[Rule, ...] = (
    fold_plan_constants,
    remove_identity_calcs,
    merge_calcs,
    prune_columns,
    remove_identity_calcs,
    push_filter_hints,
)


def optimise(plan: Plan) -> Plan:
    """The plan after every rule, each once and in order. Rules are total: a plan that none applies to comes back as it is."""
    for rule in RULES:
        plan = rule(plan)
    return plan
