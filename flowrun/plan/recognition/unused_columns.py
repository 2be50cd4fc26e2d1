"""Columns that cost much and that nobody reads.

A rank: a top-N without it corrects only rows that enter or leave it, not those whose rank changes. An unnested collection: it would be
repeated for each of its elements. What stands above keeps its columns, with NULL in their place: pruning them is the optimiser's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.plan.expressions import Expression, Literal, columns_used, substitute
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, Plan, PlanNode, walk_plan
from flowrun.plan.recognition.nodes_made import columns
from flowrun.plan.relational import GroupAggregate, Rank, Unnest, WindowRank
from flowrun.plan.rewrites.traversal import with_inputs, with_sinks


def drop_unused_columns(plan: Plan) -> Plan:
    """The plan with `rank_column` and `keeps_collection` only where what they give is used."""
    used = _used_columns(plan)
    only_calcs = _read_by_calcs_only(plan)
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if _has_unused_rank(node, used, only_calcs) and isinstance(rebuilt, Rank | WindowRank):
            rebuilt = replace(rebuilt, schema=Schema(rebuilt.schema.fields[:-1]), rank_column=False)
        elif isinstance(rebuilt, Unnest) and rebuilt.collection not in used[id(node)]:
            rebuilt = replace(rebuilt, keeps_collection=False)
        elif isinstance(rebuilt, Calc) and _has_unused_rank(node.inputs[0], used, only_calcs):
            given: tuple[Expression, ...] = (*columns(rebuilt.input.schema), Literal(BIGINT, None))
            rebuilt = replace(rebuilt, projections=tuple(substitute(p, given) for p in rebuilt.projections))
        done[id(node)] = rebuilt
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _has_unused_rank(node: PlanNode, used: dict[int, set[int]], only_calcs: set[int]) -> bool:
    if not isinstance(node, Rank | WindowRank) or not node.rank_column or id(node) not in only_calcs:
        return False
    return len(node.schema) - 1 not in used[id(node)]


def _read_by_calcs_only(plan: Plan) -> set[int]:
    read: dict[int, bool] = {}
    for node in walk_plan(plan):
        for below in node.inputs:
            read[id(below)] = read.get(id(below), True) and isinstance(node, Calc)
    return {i for i, calcs in read.items() if calcs}


def _used_columns(plan: Plan) -> dict[int, set[int]]:
    """For each node, by identity, the columns that matter to what is above; all of them where that is not followed."""
    nodes = list(walk_plan(plan))
    used: dict[int, set[int]] = {id(n): set() for n in nodes}
    for node in reversed(nodes):
        own = used[id(node)]
        match node:
            case Calc():
                used[id(node.input)] |= _columns(
                    [node.projections[i] for i in own] + ([] if node.condition is None else [node.condition])
                )
            case Join():
                width = len(node.left.schema)
                both = own | _columns([] if node.condition is None else [node.condition])
                used[id(node.left)] |= {c for c in both if c < width} | set(node.left_keys)
                used[id(node.right)] |= {c - width for c in both if c >= width} | set(node.right_keys)
            case GroupAggregate():
                calls = [e for c in node.aggregates for e in (*c.arguments, *([] if c.filter is None else [c.filter]))]
                used[id(node.input)] |= set(node.keys) | _columns(calls)
            case Unnest():
                used[id(node.input)] |= {c for c in own if c < len(node.input.schema)} | {node.collection}
            case _:
                for below in node.inputs:
                    used[id(below)] |= set(range(len(below.schema)))
    return used


def _columns(expressions: Iterable[Expression]) -> set[int]:
    return {c for e in expressions for c in columns_used(e)}
