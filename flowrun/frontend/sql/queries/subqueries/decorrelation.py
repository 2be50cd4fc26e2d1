"""Correlated subqueries as ordinary ones: their rows for all values of the query around at once, with the columns that tell them apart.

There are two ways. Where only conditions of WHERE read the query around, they become conditions of a join; where rows are grouped, cut or
counted besides, these conditions must be equalities, so that the inner side of each can be a key. That needs no state but the join's. All
other subqueries are planned as they are and become a dependent join with the values that they read (`dependent_joins.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN
from flowrun.frontend.sql.expressions.pending import OuterColumn, PendingSubquery
from flowrun.frontend.sql.expressions.relations import Named
from flowrun.frontend.sql.expressions.trees import compare, rewrite
from flowrun.frontend.sql.queries.binding_context import BindingContext, SubqueryPlan
from flowrun.frontend.sql.queries.bound_queries import Bound, Groups, SelectParts
from flowrun.frontend.sql.queries.nodes import NodeMaker
from flowrun.frontend.sql.queries.subqueries.dependent_joins import DependentJoin, domain_of
from flowrun.frontend.sql.spans import Span
from flowrun.plan.conditions import conjunction
from flowrun.plan.expressions import ColumnRef, Expression, Literal, columns_used
from flowrun.plan.nodes import PlanNode


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


class Decorrelation:
    """Plans the rows of one subquery.

    Args:
        context: of the query text.
        plan: the bound subquery.
        around: the rows around it.
        outer: the values that it reads, over the columns of `around`.
    """

    def __init__(
        self, context: BindingContext, plan: SubqueryPlan, around: PlanNode, outer: Sequence[Expression]
    ) -> None:
        self._context = context
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
        return self._context.queries.finished(plan.parts, plan.limit, plan.environment)

    def _by_domain(self) -> SubqueryRows:
        plan, nodes = self._plan, self._context.nodes
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
        return self._context.queries.finished(widened, limit, self._plan.environment, partition=len(columns)).node


def subquery_rows(
    context: BindingContext, use: PendingSubquery, around: PlanNode, *, by_keys: bool = False, with_items: bool = True
) -> SubqueryRows:
    """The rows of a subquery of an expression, for the rows around it; see `Decorrelation.rows`."""
    return Decorrelation(context, context.subquery(use.number), around, use.outer).rows(
        by_keys=by_keys, with_items=with_items
    )


def marker(nodes: NodeMaker, node: PlanNode, width: int, span: Span) -> PlanNode:
    """Each value of the first `width` columns once, followed by TRUE."""
    columns: list[Named] = [(f.name, ColumnRef(f.type, i, f.name)) for i, f in enumerate(node.schema.fields[:width])]
    return nodes.distinct(nodes.calc(node, [*columns, ("PRESENT", Literal(BOOLEAN, True))], span), span)
