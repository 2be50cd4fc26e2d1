"""Subqueries in ON of outer joins.

Such a condition cannot be a filter behind the join, since it decides which rows find no match. So the rows of the other side are paired
first with the values that ON reads of the kept side, each once; the pairs for which ON is true are then what the kept side is joined with.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.semantics import JoinKind
from flowrun.frontend.sql.expressions.relations import Named
from flowrun.frontend.sql.expressions.trees import rewrite
from flowrun.frontend.sql.queries.nodes import NodeMaker, identity, joined_schema
from flowrun.frontend.sql.queries.subqueries.dependent_joins import same_values
from flowrun.frontend.sql.queries.subqueries.planner import SubqueryPlanner
from flowrun.frontend.sql.spans import Span
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import ColumnRef, Expression, Literal, columns_used
from flowrun.plan.nodes import PlanNode, Union


class OuterJoinWithSubqueries:
    """A LEFT, RIGHT or FULL join some of whose conditions hold subqueries.

    Args:
        nodes: makes the nodes.
        planner: plans the subqueries.
        left, right: the two sides.
        plain, subqueries: the conditions without and with subqueries, over the columns of both sides.
        span: of ON.
    """

    def __init__(
        self,
        nodes: NodeMaker,
        planner: SubqueryPlanner,
        left: PlanNode,
        right: PlanNode,
        plain: Sequence[Expression],
        subqueries: Sequence[Expression],
        span: Span,
    ) -> None:
        self._nodes = nodes
        self._planner = planner
        self._sides = (left, right)
        self._plain = plain
        self._subqueries = subqueries
        self._span = span

    def joined(self, kind: JoinKind) -> PlanNode:
        """The join: columns of the left side, then of the right.

        Raises:
            ExpressionError: a subquery that cannot be planned; marks the place.
        """
        if kind is not JoinKind.FULL:
            return self._keeping(0 if kind is JoinKind.LEFT else 1)
        left, right = self._sides
        found = self._keeping(0)
        alone = self._nodes.join(
            right, (pairs := self._pairs(1)), JoinKind.ANTI, self._same(1, pairs), self._span, "anti"
        )
        columns: list[Named] = [(f.name, Literal(f.type, None)) for f in left.schema]
        schema = joined_schema(left.schema, right.schema, kind)
        named = [(n, e) for n, (_, e) in zip(schema.names, [*columns, *identity(alone.schema)], strict=True)]
        return Union(
            schema, self._nodes.hints("union", self._span), (found, self._nodes.calc(alone, named, self._span))
        )

    def _keeping(self, side: int) -> PlanNode:
        """All rows of one side, each with the rows of the other one for which ON is true."""
        kept, other = self._sides[side], self._sides[1 - side]
        pairs = self._pairs(side)
        joined = self._nodes.join(kept, pairs, JoinKind.LEFT, self._same(side, pairs), self._span)
        columns = [e for _, e in identity(joined.schema)]
        found = [columns[: len(kept.schema)], columns[len(joined.schema) - len(other.schema) :]]
        if side == 1:
            found.reverse()
        kind = JoinKind.LEFT if side == 0 else JoinKind.RIGHT
        names = joined_schema(self._sides[0].schema, self._sides[1].schema, kind).names
        return self._nodes.calc(joined, list(zip(names, [*found[0], *found[1]], strict=True)), self._span)

    def _read(self, side: int) -> list[int]:
        """The columns of a side that ON reads, at their places within the side; at least one."""
        used = {c for e in (*self._plain, *self._subqueries) for c in columns_used(e)}
        start = 0 if side == 0 else len(self._sides[0].schema)
        own = range(start, start + len(self._sides[side].schema))
        return sorted(c - start for c in used if c in own) or [0]

    def _pairs(self, side: int) -> PlanNode:
        """What ON reads of a side, each once, with the rows of the other side for which ON is true."""
        read, width = self._read(side), len(self._sides[0].schema)
        kept, other = self._sides[side], self._sides[1 - side]
        values = [identity(kept.schema)[c] for c in read]
        domain = self._nodes.distinct(self._nodes.calc(kept, values, self._span), self._span)

        def place(column: int) -> int:
            is_right = column >= width
            own = column - width if is_right else column
            return read.index(own) if is_right == bool(side) else own + len(read)

        def moved(expression: Expression) -> Expression:
            return rewrite(
                expression, lambda e: ColumnRef(e.type, place(e.index), e.name) if isinstance(e, ColumnRef) else None
            )

        condition = conjunction(moved(e) for e in self._plain)
        node = self._nodes.join(domain, other, JoinKind.INNER, condition, self._span)
        return self._planner.filtered(node, [moved(e) for e in self._subqueries], self._span)

    def _same(self, side: int, pairs: PlanNode) -> Expression | None:
        kept, read = self._sides[side], self._read(side)
        width = len(kept.schema)
        left = [identity(kept.schema)[c][1] for c in read]
        right = [ColumnRef(f.type, width + i, f.name) for i, f in enumerate(pairs.schema.fields[: len(read)])]
        return conjunction(same_values(left, right))
