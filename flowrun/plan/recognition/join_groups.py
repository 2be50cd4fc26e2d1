"""Groups of inner joins: several joins as one set of tables and conditions, and the joins made of them again in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import JoinKind
from flowrun.core.types import BOOLEAN
from flowrun.plan.conditions import conjunction, conjuncts
from flowrun.plan.expressions import Call, ColumnRef, Expression, columns_used, remap_columns, substitute
from flowrun.plan.fallibility import may_fail
from flowrun.plan.joins import Join
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, walk_plan
from flowrun.plan.recognition.keys import equality
from flowrun.plan.recognition.nodes_made import auxiliary, renamed, unique_name
from flowrun.plan.rewrites.traversal import reader_counts, with_inputs, with_sinks

_ORDERED = frozenset(("<", "<=", ">", ">="))

Tree = int | tuple["Tree", "Tree"]
"""An order of joins: a table by number, or a join."""


def has_hints(join: Join) -> bool:
    """Whether the user says of the join itself how it is to run (uid, parallelism, time to live, …)."""
    own = join.hints
    return bool(own.uid or own.parallelism or own.slot_sharing_group or own.state_ttl_ms or not own.chaining)


# -- groups -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JoinGroup:
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

    @property
    def owners(self) -> list[int]:
        """The number of the table that each column belongs to."""
        return [number for number, table in enumerate(self.tables) for _ in table.schema]

    @property
    def written(self) -> list[tuple[frozenset[int], frozenset[int]]]:
        """The tables on the sides of each join as it is written, bottom up."""
        return [(frozenset(left), frozenset(right)) for _, left, right in self.joins]


class JoinGroups:
    """The groups of a plan.

    Args:
        plan: the plan.
        may_move: which inner joins belong to groups.
        may_pass: which Calcs between two of them may stand there.
    """

    def __init__(self, plan: Plan, may_move: Callable[[Join], bool], may_pass: Callable[[Calc], bool]) -> None:
        self._plan = plan
        self._accepts = may_move
        self._may_pass = may_pass
        self._single = {i for i, count in reader_counts(plan).items() if count == 1}
        self._inside = {
            id(below)
            for node in walk_plan(plan)
            if self._may_move(node)
            for i in node.inputs
            if (below := self._member_below(i)) is not None
        }

    def replaced(self, better: Callable[[Join, JoinGroup, Sequence[PlanNode]], PlanNode | None]) -> Plan:
        """The plan with other nodes for its groups.

        Args:
            better: given the topmost join, its group and what its tables have become, the node to take; None: the group stays.
        """
        done: dict[int, PlanNode] = {}
        for node in walk_plan(self._plan):
            rebuilt = with_inputs(node, tuple(done[id(i)] for i in node.inputs))
            if self._is_topmost(node):
                group = self._group(node)
                rebuilt = better(node, group, [done[id(t)] for t in group.tables]) or rebuilt
            done[id(node)] = rebuilt
        return with_sinks(self._plan, tuple(done[id(s)] for s in self._plan.sinks))

    def _may_move(self, node: PlanNode) -> TypeGuard[Join]:
        return isinstance(node, Join) and node.kind is JoinKind.INNER and self._accepts(node)

    def _is_topmost(self, node: PlanNode) -> TypeGuard[Join]:
        return self._may_move(node) and id(node) not in self._inside

    def _member_below(self, node: PlanNode) -> Join | None:
        """The join of the same group that gives a join's input, maybe through Calcs; None if there is none."""
        while isinstance(node, Calc) and id(node) in self._single and self._may_pass(node):
            node = node.input
        return node if id(node) in self._single and self._may_move(node) else None

    def _group(self, node: PlanNode, first: int = 0, offset: int = 0) -> JoinGroup:
        """The group of a join; tables are numbered from `first`, their columns from `offset` on."""
        if isinstance(node, Calc):
            inner = self._group(node.input, first, offset)
            inner.columns = tuple(substitute(p, inner.columns) for p in node.projections)
            return inner
        assert isinstance(node, Join)
        sides: list[JoinGroup] = []
        for child in node.inputs:
            if self._member_below(child) is not None:
                side = self._group(child, first, offset)
            else:
                passed = tuple(ColumnRef(f.type, offset + i, f.name) for i, f in enumerate(child.schema))
                side = JoinGroup([child], [], passed, [])
            sides.append(side)
            first += len(side.tables)
            offset += sum(len(t.schema) for t in side.tables)
        left, right = sides
        columns = left.columns + right.columns
        own = [substitute(c, columns) for c in _conditions(node)]
        middle = first - len(right.tables)
        join = (node, range(middle - len(left.tables), middle), range(middle, first))
        return JoinGroup(
            left.tables + right.tables,
            left.conditions + right.conditions + own,
            columns,
            [*left.joins, *right.joins, join],
        )


def _conditions(join: Join) -> list[Expression]:
    """What a join asks of its columns, keys included."""
    width = len(join.left.schema)
    null_safe = join.null_safe or (False,) * len(join.left_keys)
    found: list[Expression] = []
    for a, b, safe in zip(join.left_keys, join.right_keys, null_safe, strict=True):
        sides = (_column(join.left.schema, a, 0), _column(join.right.schema, b, width))
        found.append(Call(BOOLEAN, "IS NOT DISTINCT FROM" if safe else "=", sides))
    return [*found, *conjuncts(join.condition)]


def _column(schema: Schema, index: int, offset: int) -> ColumnRef:
    return ColumnRef(schema.types[index], offset + index, schema.names[index])


# -- connections --------------------------------------------------------------------------------------------------------------


@record
class Link:
    """A condition and the tables that it reads.

    `sides` are set if it is an equality, or a comparison of times, which joins can go by: the tables of the one and the other side.
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


def link_of(condition: Expression, owners: Sequence[int], *, by_times: bool) -> Link:
    """The link that a condition is; `by_times`: a comparison of times is one that joins can go by."""

    def tables(expression: Expression) -> frozenset[int]:
        return frozenset(owners[i] for i in columns_used(expression))

    compared: tuple[Expression, Expression] | None = None
    found = equality(condition)
    if found is not None:
        compared = found[0], found[1]
    elif by_times and isinstance(condition, Call) and condition.function in _ORDERED:
        first, second = condition.arguments
        compared = (first, second) if first.type.is_timestamp else None
    sides = None if compared is None else (tables(compared[0]), tables(compared[1]))
    if sides is not None and (not all(sides) or sides[0] & sides[1]):
        sides = None
    return Link(condition, tables(condition), sides)


# -- rebuilding ---------------------------------------------------------------------------------------------------------------


class Rebuilding:
    """Makes the joins of a tree; each takes the hints of one that was written, bottom up.

    Args:
        group: the joins as they are.
        links: its conditions.
        tables: what its tables have become.
        hints: of a join, from those of the written one and the tables on its sides.
        finish: makes the node of a join; its columns stay.
    """

    def __init__(
        self,
        group: JoinGroup,
        links: Sequence[Link],
        tables: Sequence[PlanNode],
        hints: Callable[[NodeHints, frozenset[int], frozenset[int]], NodeHints] = lambda written, _left, _right: (
            written
        ),
        finish: Callable[[Join], PlanNode] = lambda join: join,
    ) -> None:
        self._group = group
        self._tables = tables
        self._written = iter(group.joins)
        self._hints = hints
        self._finish = finish
        self._left = list(links)
        self._offsets = [0]
        for table in tables:
            self._offsets.append(self._offsets[-1] + len(table.schema))

    def restored(self, tree: Tree, root: Join) -> PlanNode:
        """The columns of the topmost join as it was, over the tree."""
        node, places = self._made(tree, top=True)
        hints = auxiliary(root.hints, "columns")
        columns = [remap_columns(c, {i: places[i] for i in columns_used(c)}) for c in self._group.columns]
        plain = [c.index for c in columns if isinstance(c, ColumnRef)]
        if len(plain) == len(columns):
            return renamed(node, root.schema, plain, hints)
        return Calc(root.schema, hints, node, tuple(columns))

    def _made(self, tree: Tree, *, top: bool = False) -> tuple[PlanNode, dict[int, int]]:
        """The join, and where each column of the tables side by side is in it."""
        if isinstance(tree, int):
            first = self._offsets[tree]
            return self._tables[tree], {first + i: i for i in range(len(self._tables[tree].schema))}
        (left, places), (right, more) = (self._made(side) for side in tree)
        width = len(left.schema)
        places = places | {c: width + p for c, p in more.items()}
        sides = tables_of(tree[0]), tables_of(tree[1])
        parts = self._taken(*sides, top=top)
        condition = conjunction(remap_columns(p, {c: places[c] for c in columns_used(p)}) for p in parts)
        written, _, _ = next(self._written)
        fields: list[Field] = []
        taken: set[str] = set()
        for field in (*left.schema.fields, *right.schema.fields):
            fields.append(replace(field, name=unique_name(field.name, taken)))
            taken.add(fields[-1].name)
        hints = self._hints(written.hints, *sides)
        join = Join(Schema(tuple(fields)), hints, left, right, JoinKind.INNER, condition=condition)
        return self._finish(join), places

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


def tables_of(tree: Tree) -> frozenset[int]:
    """The tables that an order joins.

    >>> sorted(tables_of(((0, 2), 1)))
    [0, 1, 2]
    """
    return frozenset((tree,)) if isinstance(tree, int) else tables_of(tree[0]) | tables_of(tree[1])
