"""Correlated subqueries as ordinary ones: their rows for all values of the query around at once, with the columns that tell them apart.

A condition of the subquery that reads the query around becomes a condition of a join. Where rows are grouped, cut or counted, it must be an
equality, so that the inner side of it can be a key. (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015, for this case.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN, DataType
from flowrun.frontend.sql.query_nodes import compare, fail
from flowrun.frontend.sql.query_pending import OuterColumn, PendingOver, PendingSubquery, has, rewrite
from flowrun.frontend.sql.query_relations import Named, OuterScope
from flowrun.frontend.sql.query_results import Bound, Groups, SelectParts
from flowrun.frontend.sql.syntax import Ordered, QuerySyntax, Select, Span
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import Call, ColumnRef, Expression, Literal, columns_used
from flowrun.plan.nodes import PlanNode

if TYPE_CHECKING:
    from flowrun.frontend.sql.query_binder import Environment, QueryBinder

_REMEDY = "write a JOIN, or keep only conditions like inner.key = outer.key"


@record(eq=False, slots=False)
class SubqueryPlan:
    """A bound subquery: `parts` of a SELECT, or `bound` if it is another form. `limit` is what follows the SELECT."""

    types: tuple[DataType, ...]
    span: Span
    environment: Environment
    parts: SelectParts | None = None
    bound: Bound | None = None
    limit: Ordered | None = None

    @property
    def is_one_group(self) -> bool:
        """Whether it aggregates all of its rows to one."""
        return self.parts is not None and self.parts.is_one_group


@record
class SubqueryRows:
    """The rows of a subquery for all values of the query around: `width` columns that tell them apart, then those named `names`.

    `conditions` say which rows belong to a row around, over the columns and `OuterColumn`s.
    """

    node: PlanNode
    width: int
    names: tuple[str, ...]
    conditions: tuple[Expression, ...]

    def condition(self, outer: Sequence[Expression], shift: int) -> Expression | None:
        """The conditions over a row around, whose values are `outer`, followed at position `shift` by one of these rows."""
        return conjunction(joined(c, outer, shift) for c in self.conditions)


def joined(expression: Expression, outer: Sequence[Expression], shift: int) -> Expression:
    """An expression of the subquery over a row around, whose values are `outer`, followed at `shift` by a row of the subquery."""

    def move(node: Expression) -> Expression | None:
        if isinstance(node, OuterColumn):
            return outer[node.index]
        return ColumnRef(node.type, node.index + shift, node.name) if isinstance(node, ColumnRef) else None

    return rewrite(expression, move)


def bound_subquery(
    binder: QueryBinder, query: QuerySyntax, environment: Environment, outer: OuterScope, span: Span
) -> SubqueryPlan:
    """A subquery, bound and not yet planned; what it reads of the query around is then in `outer.captured`.

    Raises:
        ExpressionError: one thing is wrong.
        FailedError: what is wrong was added to the binder's errors.
    """
    limit = None
    if isinstance(query, Ordered):
        limit = query if query.limit is not None or query.offset is not None else None
        query = query.query if limit is None or isinstance(query.query, Select) else query
    if isinstance(query, Select):
        parts = binder.select_parts(query, environment, outer, limit.order if limit is not None else ())
        types = tuple(e.type for _, e in parts.items)
        return SubqueryPlan(types, span, environment, parts=parts, limit=limit)
    bound = binder.bind(query, environment, outer)
    if outer.captured:
        raise fail("a subquery that reads the query around must be a plain SELECT", span, _REMEDY)
    return SubqueryPlan(bound.node.schema.types[: len(bound.names)], span, environment, bound=bound)


class Decorrelation:
    """Plans the rows of one subquery."""

    def __init__(self, binder: QueryBinder, plan: SubqueryPlan) -> None:
        self._binder = binder
        self._plan = plan

    def rows(self, *, by_keys: bool = False, with_items: bool = True) -> SubqueryRows:
        """The subquery's rows.

        Args:
            by_keys: every condition must be an equality: the leading columns are keys.
            with_items: the select list is wanted; EXISTS only asks for rows.

        Raises:
            ExpressionError: it reads the query around in a way that no join can say.
        """
        plan = self._plan
        if plan.bound is not None:
            return SubqueryRows(plan.bound.node, 0, plan.bound.names, ())
        parts = plan.parts
        assert parts is not None
        if not parts.is_correlated:
            bound = self._binder.finished(parts, plan.limit, plan.environment)
            return SubqueryRows(bound.node, 0, bound.names, ())
        if not with_items and not parts.having:
            parts = replace(
                parts, items=(), spans=(), groups=None, order=(), syntax=replace(parts.syntax, distinct=False)
            )
            if plan.is_one_group:
                raise fail(
                    "EXISTS of an aggregate without GROUP BY is always true", plan.span, "leave it out, or add GROUP BY"
                )
        self._check(parts)
        limited = plan.limit is not None and with_items
        if by_keys or parts.is_grouped or limited or parts.syntax.distinct:
            return self._by_keys(parts, limited=limited)
        used = sorted({c for e in parts.correlated for c in columns_used(e)})
        columns: list[Named] = [(parts.relation.schema.names[c], parts.relation.column(c)) for c in used]
        if not columns and not parts.items:  # rows without columns cannot be counted
            columns.append(("ROW", Literal(BOOLEAN, True)))
        node = self._planned(parts, columns)
        places = {c: i for i, c in enumerate(used)}

        def move(e: Expression) -> Expression | None:
            return ColumnRef(e.type, places[e.index], e.name) if isinstance(e, ColumnRef) else None

        conditions = tuple(rewrite(c, move) for c in parts.correlated)
        return SubqueryRows(node, len(columns), tuple(n for n, _ in parts.items), conditions)

    def _check(self, parts: SelectParts) -> None:
        for condition in parts.correlated:
            if has(condition, PendingSubquery):
                raise fail("a subquery reads a query that is not the one right around it", self._plan.span, _REMEDY)
        for (_, item), span in zip(parts.items, parts.spans, strict=True):
            if has(item, OuterColumn):
                raise fail("the select list of this subquery reads the query around", span, _REMEDY)
            if has(item, PendingOver):
                raise fail("OVER is not possible in a subquery that reads the query around", span, _REMEDY)

    def keys(self) -> tuple[list[Expression], list[Expression]]:
        """The inner and the outer sides of the conditions, which are equalities.

        Raises:
            ExpressionError: one is not.
        """
        assert self._plan.parts is not None
        inner, outer = [], []
        for condition in self._plan.parts.correlated:
            sides = _sides(condition)
            if sides is None:
                raise fail(
                    f"the condition {condition} of this subquery is not an equality of inner and outer values",
                    self._plan.span,
                    _REMEDY,
                )
            inner.append(sides[0])
            outer.append(sides[1])
        return inner, outer

    def _by_keys(self, parts: SelectParts, *, limited: bool) -> SubqueryRows:
        inner, outer = self.keys()
        count = len(inner)
        if parts.is_grouped:
            known = parts.groups or Groups((), ((),), None, parts.syntax.span)
            sets = tuple((*range(count), *(k + count for k in s)) for s in known.sets)
            parts = replace(parts, groups=replace(known, keys=(*inner, *known.keys), sets=sets))
        columns = [(f"KEY${i}", e) for i, e in enumerate(inner)]
        node = self._planned(parts, columns, limited=limited)
        conditions = tuple(
            compare("=", o, ColumnRef(e.type, i, f"KEY${i}")) for i, (e, o) in enumerate(zip(inner, outer, strict=True))
        )
        return SubqueryRows(node, count, tuple(n for n, _ in parts.items), conditions)

    def _planned(self, parts: SelectParts, columns: Sequence[Named], *, limited: bool = False) -> PlanNode:
        spans = (*([parts.syntax.span] * len(columns)), *parts.spans)
        order = parts.order if limited else ()
        widened = replace(parts, correlated=(), items=(*columns, *parts.items), spans=spans, order=order)
        limit = self._plan.limit if limited else None
        return self._binder.finished(widened, limit, self._plan.environment, partition=len(columns)).node

    @property
    def is_unique(self) -> bool:
        """Whether there is at most one row for each value of the keys."""
        parts, limit = self._plan.parts, self._plan.limit
        if parts is None:
            return False
        if limit is not None and limit.limit is not None and limit.limit.name == "1":
            return True
        if parts.groups is None or len(parts.groups.sets) != 1 or parts.groups.window is not None:
            return False
        inner, _ = self.keys()
        return all(k in inner for k in parts.groups.keys)


def _sides(condition: Expression) -> tuple[Expression, Expression] | None:
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    for inner, outer in (condition.arguments, condition.arguments[::-1]):
        if not has(inner, OuterColumn) and columns_used(inner) and not columns_used(outer) and has(outer, OuterColumn):
            return inner, outer
    return None
