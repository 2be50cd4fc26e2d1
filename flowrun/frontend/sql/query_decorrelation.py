"""Correlated subqueries as ordinary ones: their rows for all values of the query around at once, with the columns that tell them apart.

There are two ways. Where only conditions of WHERE read the query around, they become conditions of a join; where rows are grouped, cut or
counted besides, these conditions must be equalities, so that the inner side of each can be a key. That needs no state but the join's. All
other subqueries are planned as they are and become a dependent join with the values that they read (`query_dependent_joins.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN, DataType
from flowrun.frontend.sql.expression_trees import compare, has, rewrite
from flowrun.frontend.sql.places import Span
from flowrun.frontend.sql.query_dependent_joins import DependentJoin, domain_of
from flowrun.frontend.sql.query_nodes import NodeMaker
from flowrun.frontend.sql.query_pending import OuterColumn, PendingOver, PendingSubquery
from flowrun.frontend.sql.query_relations import Named, OuterScope
from flowrun.frontend.sql.query_results import Bound, Groups, SelectParts
from flowrun.frontend.sql.syntax import Ordered, QuerySyntax, Select
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import Call, ColumnRef, Expression, Literal, columns_used
from flowrun.plan.nodes import PlanNode

if TYPE_CHECKING:
    from flowrun.frontend.sql.query_binder import Environment, QueryBinder


@record(eq=False, slots=False)
class SubqueryPlan:
    """A bound subquery: `parts` of a SELECT, or `bound` if it is another form. `limit` is what follows the SELECT.

    `is_correlated`: it reads the query around.
    """

    types: tuple[DataType, ...]
    span: Span
    environment: Environment
    parts: SelectParts | None = None
    bound: Bound | None = None
    limit: Ordered | None = None
    is_correlated: bool = False

    @property
    def is_one_group(self) -> bool:
        """Whether it aggregates all of its rows to one."""
        return self.parts is not None and self.parts.is_one_group

    @property
    def is_group_by_keys(self) -> bool:
        """Whether it is one group for all rows around, or for each value of columns that they are equal to."""
        parts, bounds = self.parts, self.limit
        if parts is None or not parts.is_one_group or parts.qualify:
            return False
        skips = bounds is not None and (
            bounds.offset is not None or (bounds.limit is not None and bounds.limit.name == "0")
        )
        return not skips and self.equalities is not None

    @property
    def has_having(self) -> bool:
        """Whether groups are left out."""
        return self.parts is not None and bool(self.parts.having)

    @property
    def joins_by_conditions(self) -> bool:
        """Whether only conditions of WHERE, over values, read the query around."""
        parts = self.parts
        if parts is None or parts.is_correlated_beyond_where:
            return False
        return not any(has(c, PendingSubquery) for c in parts.correlated) and not any(
            has(e, PendingOver) for e in parts.outputs
        )

    @property
    def equalities(self) -> tuple[list[Expression], list[Expression]] | None:
        """The inner and the outer sides of the conditions by which the query around is read; None if not all are equalities."""
        if self.parts is None or not self.joins_by_conditions:
            return None
        sides = [_sides(c) for c in self.parts.correlated]
        known = [s for s in sides if s is not None]
        return ([i for i, _ in known], [o for _, o in known]) if len(known) == len(sides) else None

    @property
    def is_unique(self) -> bool:
        """Whether there is at most one row for each row around."""
        parts, limit = self.parts, self.limit
        if parts is None:
            return False
        if self.is_one_group or (limit is not None and limit.limit is not None and limit.limit.name == "1"):
            return True
        if parts.groups is None or len(parts.groups.sets) != 1 or parts.groups.window is not None:
            return False
        keys = self.equalities
        return keys is not None and all(k in keys[0] for k in parts.groups.keys)


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
        return SubqueryPlan(types, span, environment, parts=parts, limit=limit, is_correlated=bool(outer.captured))
    bound = binder.bind(query, environment, outer)
    types = bound.node.schema.types[: len(bound.names)]
    return SubqueryPlan(types, span, environment, bound=bound, is_correlated=bool(outer.captured))


class Decorrelation:
    """Plans the rows of one subquery.

    Args:
        binder: of the query text.
        plan: the bound subquery.
        around: the rows around it.
        outer: the values that it reads, over the columns of `around`.
    """

    def __init__(self, binder: QueryBinder, plan: SubqueryPlan, around: PlanNode, outer: Sequence[Expression]) -> None:
        self._binder = binder
        self._plan = plan
        self._around = around
        self._outer = outer

    def rows(self, *, by_keys: bool = False, with_items: bool = True) -> SubqueryRows:
        """The subquery's rows.

        Args:
            by_keys: every condition must be an equality: the leading columns are keys.
            with_items: the select list is wanted; EXISTS only asks for rows.

        Raises:
            ExpressionError: it reads the query around where no join can say it.
        """
        plan = self._plan
        if not plan.is_correlated:
            bound = self._bound()
            return SubqueryRows(bound.node, 0, bound.names, ())
        parts = plan.parts
        if parts is None or not plan.joins_by_conditions:
            return self._by_domain()
        limited = plan.limit is not None and with_items
        if not with_items and not parts.having:
            parts = replace(
                parts, items=(), spans=(), groups=None, order=(), syntax=replace(parts.syntax, distinct=False)
            )
        if by_keys or parts.is_grouped or limited or parts.syntax.distinct:
            keys = plan.equalities
            return self._by_domain() if keys is None or plan.is_one_group else self._by_keys(parts, *keys, limited)
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

    def _bound(self) -> Bound:
        plan = self._plan
        if plan.bound is not None:
            return plan.bound
        assert plan.parts is not None
        return self._binder.finished(plan.parts, plan.limit, plan.environment)

    def _by_domain(self) -> SubqueryRows:
        plan, nodes = self._plan, self._binder.nodes
        bound = self._bound()
        domain = domain_of(nodes, self._around, self._outer, plan.span)
        node = DependentJoin(nodes, domain, plan.span).with_rows_of(bound.node)
        conditions = tuple(
            compare("IS NOT DISTINCT FROM", OuterColumn(f.type, i, f.name), ColumnRef(f.type, i, f.name))
            for i, f in enumerate(domain.schema)
        )
        return SubqueryRows(node, len(domain.schema), bound.names, conditions)

    def _by_keys(
        self, parts: SelectParts, inner: Sequence[Expression], outer: Sequence[Expression], limited: bool
    ) -> SubqueryRows:
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


def subquery_rows(
    binder: QueryBinder, use: PendingSubquery, around: PlanNode, *, by_keys: bool = False, with_items: bool = True
) -> SubqueryRows:
    """The rows of a subquery of an expression, for the rows around it; see `Decorrelation.rows`."""
    return Decorrelation(binder, use.plan, around, use.outer).rows(by_keys=by_keys, with_items=with_items)


def marker(nodes: NodeMaker, node: PlanNode, width: int, span: Span) -> PlanNode:
    """Each value of the first `width` columns once, followed by TRUE."""
    columns: list[Named] = [(f.name, ColumnRef(f.type, i, f.name)) for i, f in enumerate(node.schema.fields[:width])]
    return nodes.distinct(nodes.calc(node, [*columns, ("PRESENT", Literal(BOOLEAN, True))], span), span)


def _sides(condition: Expression) -> tuple[Expression, Expression] | None:
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    for inner, outer in (condition.arguments, condition.arguments[::-1]):
        if not has(inner, OuterColumn) and columns_used(inner) and not columns_used(outer) and has(outer, OuterColumn):
            return inner, outer
    return None
