"""The order of inner joins: a table that nothing connects to those before it waits until one has come that does.

`FROM a, b, c WHERE a.x = c.x AND b.y = c.y` joins a with c, then with b: in the order that is written, every row of a would be joined
with every row of b. A table that nothing connects at all is joined last. Orders without such products stay as they are written, so
that what users know of their joins, and what savepoints hold of them, stays true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import Call, ColumnRef, Expression, columns_used, remap_columns, substitute
from flowrun.plan.fallibility import is_deterministic, may_fail
from flowrun.plan.nodes import Calc, Plan, PlanNode, walk_plan
from flowrun.plan.recognition.keys import equality
from flowrun.plan.recognition.nodes_made import auxiliary, renamed, unique_name
from flowrun.plan.relational import Join, JoinKind
from flowrun.plan.rewrites.traversal import reader_counts, with_inputs, with_sinks

_ORDERED = frozenset(("<", "<=", ">", ">="))


def order_joins(plan: Plan) -> Plan:
    """The plan with its groups of inner joins in an order with fewer products of unconnected tables, where there is one.

    Joins with hints of the user's own (uid, parallelism, time to live, …) stay, as do those of conditions that are not the same each time.
    """
    readers = reader_counts(plan)
    single = {i for i, count in readers.items() if count == 1}
    groups = [n for n in walk_plan(plan) if _may_move(n)]
    inside = {id(below) for n in groups for i in n.inputs if (below := _member_below(i, single)) is not None}
    done: dict[int, PlanNode] = {}
    for node in walk_plan(plan):
        rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
        if isinstance(node, Join) and _may_move(node) and id(node) not in inside:
            rebuilt = _ordered(node, single, done) or rebuilt
        done[id(node)] = rebuilt
    return with_sinks(plan, tuple(done[id(s)] for s in plan.sinks))


def _may_move(node: PlanNode) -> bool:
    if not isinstance(node, Join) or node.kind is not JoinKind.INNER or node.left_keys:
        return False
    own = node.hints
    return not (own.uid or own.parallelism or own.slot_sharing_group or own.state_ttl_ms) and own.chaining


def _member_below(node: PlanNode, single: set[int]) -> Join | None:
    """The join of the same group that gives a join's input, maybe through Calcs that only choose columns; None if there is none."""
    while isinstance(node, Calc) and id(node) in single and _chooses_columns(node):
        node = node.input
    return node if isinstance(node, Join) and id(node) in single and _may_move(node) else None


def _chooses_columns(calc: Calc) -> bool:
    return calc.condition is None and all(isinstance(p, ColumnRef) for p in calc.projections)


# -- groups -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Inner joins as one: the tables in written order, and conditions over all of their columns side by side.

    Attributes:
        tables: as they are in the plan before.
        conditions: all parts.
        columns: of the topmost join, over the columns of the tables.
        joins: bottom up, each with the numbers of the tables on its sides.
    """

    tables: list[PlanNode]
    conditions: list[Expression]
    columns: tuple[Expression, ...]
    joins: list[tuple[Join, range, range]]


def _group(node: PlanNode, single: set[int], first: int = 0, offset: int = 0) -> _Group:
    """The group of a join; tables are numbered from `first`, their columns from `offset` on."""
    if isinstance(node, Calc):
        inner = _group(node.input, single, first, offset)
        inner.columns = tuple(substitute(p, inner.columns) for p in node.projections)
        return inner
    assert isinstance(node, Join)
    sides: list[_Group] = []
    for child in node.inputs:
        if _member_below(child, single) is not None:
            side = _group(child, single, first, offset)
        else:
            side = _Group(
                [child], [], tuple(ColumnRef(f.type, offset + i, f.name) for i, f in enumerate(child.schema)), []
            )
        sides.append(side)
        first += len(side.tables)
        offset += sum(len(t.schema) for t in side.tables)
    left, right = sides
    columns = left.columns + right.columns
    own = [substitute(c, columns) for c in conjuncts(node.condition)]
    middle = first - len(right.tables)
    join = (node, range(middle - len(left.tables), middle), range(middle, first))
    return _Group(
        left.tables + right.tables, left.conditions + right.conditions + own, columns, [*left.joins, *right.joins, join]
    )


# -- connections --------------------------------------------------------------------------------------------------------------


@record
class _Link:
    """A condition and the tables that it reads.

    `sides` are set if it is an equality or a comparison of times, which joins can go by: the tables of the one and the other side.
    """

    condition: Expression
    tables: frozenset[int]
    sides: tuple[frozenset[int], frozenset[int]] | None

    def joins(self, left: frozenset[int], right: frozenset[int]) -> bool:
        """Whether a join of the two sets of tables can go by it."""
        if self.sides is None:
            return False
        a, b = self.sides
        return (a <= left and b <= right) or (a <= right and b <= left)

    def spans(self, left: frozenset[int], right: frozenset[int]) -> bool:
        """Whether it is tested where the two sets of tables are joined."""
        return self.tables <= left | right and bool(self.tables & left) and bool(self.tables & right)


def _link(condition: Expression, owners: Sequence[int]) -> _Link:
    def tables(expression: Expression) -> frozenset[int]:
        return frozenset(owners[i] for i in columns_used(expression))

    compared: tuple[Expression, Expression] | None = None
    found = equality(condition)
    if found is not None:
        compared = found[0], found[1]
    elif isinstance(condition, Call) and condition.function in _ORDERED and condition.arguments[0].type.is_timestamp:
        compared = condition.arguments[0], condition.arguments[1]
    sides = None if compared is None else (tables(compared[0]), tables(compared[1]))
    if sides is not None and (not all(sides) or sides[0] & sides[1]):
        sides = None
    return _Link(condition, tables(condition), sides)


# -- orders -------------------------------------------------------------------------------------------------------------------

_Tree = int | tuple["_Tree", "_Tree"]
"""A table by number, or a join."""


def _tables(tree: _Tree) -> frozenset[int]:
    return frozenset((tree,)) if isinstance(tree, int) else _tables(tree[0]) | _tables(tree[1])


def _cost(joins: Sequence[tuple[frozenset[int], frozenset[int]]], links: Sequence[_Link]) -> tuple[int, int, int]:
    """What an order is judged by: joins that have nothing to go by, those of them without any condition, and joins over such joins."""
    unkeyed = [pair for pair in joins if not any(link.joins(*pair) for link in links)]
    products = sum(not any(link.spans(*pair) for link in links) for pair in unkeyed)
    above = sum(a | b < left | right for a, b in unkeyed for left, right in joins)
    return len(unkeyed), products, above


def _joins_of(tree: _Tree) -> list[tuple[frozenset[int], frozenset[int]]]:
    if isinstance(tree, int):
        return []
    return [*_joins_of(tree[0]), *_joins_of(tree[1]), (_tables(tree[0]), _tables(tree[1]))]


def _connected_order(count: int, links: Sequence[_Link]) -> _Tree:
    """Chains of tables that keys connect, in written order where that is possible; then the chains by other conditions."""
    waiting = list(range(count))
    chains: list[_Tree] = []
    while waiting:
        tree: _Tree = waiting.pop(0)
        while (following := _next(tree, waiting, links)) is not None:
            waiting.remove(following)
            tree = (tree, following)
        chains.append(tree)
    return _chained(chains, links)


def _next(tree: _Tree, waiting: Sequence[int], links: Sequence[_Link]) -> int | None:
    placed = _tables(tree)
    return next((t for t in waiting if any(k.joins(placed, frozenset((t,))) for k in links)), None)


def _chained(chains: list[_Tree], links: Sequence[_Link]) -> _Tree:
    tree = chains.pop(0)
    while chains:
        placed = _tables(tree)
        costs = [_cost([(placed, _tables(c))], links) for c in chains]
        tree = (tree, chains.pop(costs.index(min(costs))))
    return tree


# -- rebuilding ---------------------------------------------------------------------------------------------------------------


def _ordered(root: Join, single: set[int], done: dict[int, PlanNode]) -> PlanNode | None:
    """The group of a topmost join in a better order; None if it stays."""
    group = _group(root, single)
    count = len(group.tables)
    if count < 3 or not all(is_deterministic(c) for c in group.conditions):
        return None
    owners = [number for number, table in enumerate(group.tables) for _ in table.schema]
    links = [_link(c, owners) for c in group.conditions]
    written = [(frozenset(left), frozenset(right)) for _, left, right in group.joins]
    tree = _connected_order(count, links)
    if _cost(_joins_of(tree), links) >= _cost(written, links):
        return None
    return _Rebuilding(group, links, [done[id(t)] for t in group.tables]).restored(tree, root)


class _Rebuilding:
    """Makes the joins of a tree; each takes the hints of one that was written, bottom up."""

    def __init__(self, group: _Group, links: Sequence[_Link], tables: Sequence[PlanNode]) -> None:
        self._group = group
        self._tables = tables
        self._written = iter(group.joins)
        self._left = list(links)
        self._offsets = [0]
        for table in tables:
            self._offsets.append(self._offsets[-1] + len(table.schema))

    def restored(self, tree: _Tree, root: Join) -> PlanNode:
        """The columns of the topmost join as it was, over the tree."""
        node, places = self._made(tree, top=True)
        positions = [places[c.index] for c in self._group.columns if isinstance(c, ColumnRef)]
        return renamed(node, root.schema, positions, auxiliary(root.hints, "columns"))

    def _made(self, tree: _Tree, *, top: bool = False) -> tuple[PlanNode, dict[int, int]]:
        """The join, and where each column of the tables side by side is in it."""
        if isinstance(tree, int):
            first = self._offsets[tree]
            return self._tables[tree], {first + i: i for i in range(len(self._tables[tree].schema))}
        (left, places), (right, more) = (self._made(side) for side in tree)
        width = len(left.schema)
        places = places | {c: width + p for c, p in more.items()}
        parts = self._taken(_tables(tree[0]), _tables(tree[1]), top=top)
        condition = conjunction(remap_columns(p, {c: places[c] for c in columns_used(p)}) for p in parts)
        written, _, _ = next(self._written)
        fields: list[Field] = []
        taken: set[str] = set()
        for field in (*left.schema.fields, *right.schema.fields):
            fields.append(replace(field, name=unique_name(field.name, taken)))
            taken.add(fields[-1].name)
        join = Join(Schema(tuple(fields)), written.hints, left, right, JoinKind.INNER, condition=condition)
        return join, places

    def _taken(self, left: frozenset[int], right: frozenset[int], *, top: bool) -> list[Expression]:
        """The conditions tested at a join. What may fail and is no key waits for the last join, where the fewest rows come to it."""
        both = left | right
        here = [
            k
            for k in self._left
            if top or (k.tables and k.tables <= both and (k.joins(left, right) or not may_fail(k.condition)))
        ]
        self._left = [k for k in self._left if k not in here]
        return [k.condition for k in sorted(here, key=lambda k: may_fail(k.condition) and not k.joins(left, right))]
