"""ORDER BY, OFFSET, LIMIT and FETCH: a top-N where there is a limit, else a sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from flowrun.core.semantics import RankFunction, SortKey, TimeDomain
from flowrun.core.types import BOOLEAN
from flowrun.frontend.sql.expressions.over import null_order
from flowrun.frontend.sql.expressions.query_expressions import Clause, QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import QueryScope, Relation, Source
from flowrun.frontend.sql.grammar.syntax import Ordered, OrderItem
from flowrun.frontend.sql.queries.binding_context import Environment
from flowrun.frontend.sql.queries.bound_queries import Bound, Planned
from flowrun.frontend.sql.queries.nodes import NodeMaker
from flowrun.frontend.sql.queries.select import sort_expression
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.plan.expressions import ColumnRef, Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.nodes import Calc, PlanNode
from flowrun.plan.relational import LAST_RANK, Rank, TemporalSort


def ordered(
    nodes: NodeMaker, query: Ordered, planned: Planned, environment: Environment, partition: int = 0
) -> PlanNode:
    """The rows in order, cut to what OFFSET and LIMIT say, without the columns that serve only the order.

    The bounds hold for each value of the first `partition` columns by itself.

    Raises:
        ExpressionError: a bound is no number.
    """
    node = planned.node
    offset = 0 if query.offset is None else _count(query.offset, "OFFSET", environment)
    width = len(planned.names)
    if query.limit is not None or offset:
        limit = None if query.limit is None else _count(query.limit, "LIMIT", environment)
        if limit == 0:
            return nodes.filter(node, [Literal(BOOLEAN, False)], query.span, width)
        bound = query.limit if query.limit is not None else query.offset
        hints = nodes.hints("limit", query.span if query.limit is not None or bound is None else span_of(bound))
        order = planned.order
        node = Rank(
            node.schema,
            hints,
            node,
            tuple(range(partition)),
            order,
            RankFunction.ROW_NUMBER,
            offset + 1,
            LAST_RANK if limit is None else offset + limit,
            False,
        )
    elif planned.order:
        span = (query.order[0].span[0], query.order[-1].span[1])
        node = TemporalSort(node.schema, nodes.hints("sort", span), node, planned.order, TimeDomain.EVENT)
    return nodes.first_columns(node, width, query.span)


def with_optional_order(node: PlanNode) -> PlanNode:
    """A query as a view: its rows are a table, so that a sort at its end need not be possible."""
    if isinstance(node, Calc):
        input = with_optional_order(node.input)
        return node if input is node.input else replace(node, input=input)
    return replace(node, optional=True) if isinstance(node, TemporalSort) else node


def output_order(order: Sequence[OrderItem], bound: Bound, environment: Environment) -> tuple[SortKey, ...]:
    """The order of a query whose output columns only can be named: a set operation, or VALUES.

    Raises:
        ExpressionError: an entry is no output column.
    """
    relation = Relation(bound.node, (Source(None, bound.names, tuple(range(len(bound.names)))),))
    binder = QueryExpressionBinder(QueryScope(relation=relation), Clause.ORDER_BY, environment)
    items = relation.star()
    keys = []
    for item in order:
        value = sort_expression(item, binder, items)
        if not isinstance(value, ColumnRef):
            raise error_at(
                "ORDER BY takes only output columns here", item.span, "select from the query in FROM: SELECT … FROM (…)"
            )
        keys.append(SortKey(value.index, item.descending, null_order(item)))
    return tuple(keys)


def _count(node: exp.Expression, what: str, environment: Environment) -> int:
    nothing = Relation(environment.context.nodes.one_row(span_of(node)), ())
    bound = QueryExpressionBinder(QueryScope(relation=nothing), Clause.LIMIT, environment).bind(node)
    value = fold_constants(bound)
    if not isinstance(value, Literal) or not value.type.is_integer or value.value is None or value.value < 0:
        raise error_at(f"{what} needs a whole number, this is {bound}", span_of(node))
    return int(value.value)
