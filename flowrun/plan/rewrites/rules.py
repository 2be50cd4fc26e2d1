"""The rules in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from flowrun.plan.nodes import Plan
from flowrun.plan.rewrites.calcs import merge_calcs, remove_identity_calcs
from flowrun.plan.rewrites.constants import fold_plan_constants
from flowrun.plan.rewrites.distinct import split_distinct_aggregates
from flowrun.plan.rewrites.empty import remove_empty_parts
from flowrun.plan.rewrites.filters import push_filter_hints
from flowrun.plan.rewrites.inference import infer_join_filters, infer_side_filters
from flowrun.plan.rewrites.limits import merge_limits
from flowrun.plan.rewrites.nested import prune_nested_columns
from flowrun.plan.rewrites.projections import prune_columns
from flowrun.plan.rewrites.pushing import push_filters
from flowrun.plan.rewrites.sharing import share_equal_nodes
from flowrun.plan.rewrites.unique import remove_needless_distinct

Rule: TypeAlias = Callable[[Plan], Plan]

# Folding first: a folded condition merges and pushes better, and shows what is empty. Identity Calcs go before pruning, so that pruning
# does not have to carry them along, and after it, because pruning makes new ones. Equal nodes are found before Calcs merge, while the
# parts of a query are still as it says them, and again when what nobody needs no longer tells them apart. What the sides of a join
# must satisfy is inferred once Calcs are merged, and then goes down with the other filters. Limits merge when Calcs between them no
# longer drop columns. Filters become hints of sources last, when a Calc stands right above its Scan.
RULES: tuple[Rule, ...] = (
    fold_plan_constants,
    remove_empty_parts,
    remove_identity_calcs,
    share_equal_nodes,
    merge_calcs,
    infer_side_filters,
    infer_join_filters,
    push_filters,
    merge_calcs,
    remove_needless_distinct,
    split_distinct_aggregates,
    prune_columns,
    share_equal_nodes,
    merge_calcs,
    merge_limits,
    remove_identity_calcs,
    prune_nested_columns,
    push_filter_hints,
)


def rules_with(join_order: Rule) -> tuple[Rule, ...]:
    """The rules with one that orders joins: behind those that filter tables, ahead of those that drop columns."""
    place = RULES.index(remove_needless_distinct)
    return (*RULES[:place], join_order, *RULES[place:])


def optimise(plan: Plan, rules: Sequence[Rule] = RULES) -> Plan:
    """The plan after every rule, each in turn. Rules are total: a plan that none applies to comes back as it is."""
    for rule in rules:
        plan = rule(plan)
    return plan
