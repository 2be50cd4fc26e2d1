"""The order of inner joins: a table that nothing connects to those before it waits until one has come that does.

`FROM a, b, c WHERE a.x = c.x AND b.y = c.y` joins a with c, then with b: in the order that is written, every row of a would be joined
with every row of b. A table that nothing connects at all is joined last. Orders without such products stay as they are written, so
that what users know of their joins, and what savepoints hold of them, stays true. (By sizes: `flowrun.plan.join_order`.)
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.plan.expressions import ColumnRef
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, Plan, PlanNode
from flowrun.plan.recognition.join_groups import (
    JoinGroup,
    JoinGroups,
    Link,
    Rebuilding,
    Tree,
    has_hints,
    link_of,
    tables_of,
)


def order_joins(plan: Plan) -> Plan:
    """The plan with its groups of inner joins in an order with fewer products of unconnected tables, where there is one.

    Joins with hints of the user's own (uid, parallelism, time to live, …) stay, as do those of conditions that are not the same each time.
    """
    return JoinGroups(plan, _may_move, _chooses_columns).replaced(_ordered)


def _may_move(join: Join) -> bool:
    return not join.left_keys and not has_hints(join)


def _chooses_columns(calc: Calc) -> bool:
    return calc.condition is None and all(isinstance(p, ColumnRef) for p in calc.projections)


def _ordered(root: Join, group: JoinGroup, tables: Sequence[PlanNode]) -> PlanNode | None:
    """The group of a topmost join in a better order; None if it stays."""
    count = len(group.tables)
    if count < 3 or not all(is_deterministic(c) for c in group.conditions):
        return None
    links = [link_of(c, group.owners, by_times=True) for c in group.conditions]
    tree = _connected_order(count, links)
    if _cost(_joins_of(tree), links) >= _cost(group.written, links):
        return None
    return Rebuilding(group, links, tables).restored(tree, root)


def _cost(joins: Sequence[tuple[frozenset[int], frozenset[int]]], links: Sequence[Link]) -> tuple[int, int, int]:
    """What an order is judged by: joins that have nothing to go by, those of them without any condition, and joins over such joins."""
    unkeyed = [pair for pair in joins if not any(link.joins(*pair) for link in links)]
    products = sum(not any(link.spans(*pair) for link in links) for pair in unkeyed)
    above = sum(a | b < left | right for a, b in unkeyed for left, right in joins)
    return len(unkeyed), products, above


def _joins_of(tree: Tree) -> list[tuple[frozenset[int], frozenset[int]]]:
    if isinstance(tree, int):
        return []
    return [*_joins_of(tree[0]), *_joins_of(tree[1]), (tables_of(tree[0]), tables_of(tree[1]))]


def _connected_order(count: int, links: Sequence[Link]) -> Tree:
    """Chains of tables that keys connect, in written order where that is possible; then the chains by other conditions."""
    waiting = list(range(count))
    chains: list[Tree] = []
    while waiting:
        tree: Tree = waiting.pop(0)
        while (following := _next(tree, waiting, links)) is not None:
            waiting.remove(following)
            tree = (tree, following)
        chains.append(tree)
    return _chained(chains, links)


def _next(tree: Tree, waiting: Sequence[int], links: Sequence[Link]) -> int | None:
    placed = tables_of(tree)
    return next((t for t in waiting if any(k.joins(placed, frozenset((t,))) for k in links)), None)


def _chained(chains: list[Tree], links: Sequence[Link]) -> Tree:
    tree = chains.pop(0)
    while chains:
        placed = tables_of(tree)
        costs = [_cost([(placed, tables_of(c))], links) for c in chains]
        tree = (tree, chains.pop(costs.index(min(costs))))
    return tree
