"""The binder of one query text: binds each form of query, and knows what WITH names."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.frontend.sql.catalog import Catalog
from flowrun.frontend.sql.expressions.relations import OuterScope
from flowrun.frontend.sql.grammar.syntax import (
    CommonTable,
    Name,
    Ordered,
    OrderItem,
    QuerySyntax,
    Select,
    SetOperation,
    ValuesRows,
    WithQuery,
)
from flowrun.frontend.sql.queries.binding_context import BindingContext, Environment
from flowrun.frontend.sql.queries.bound_queries import Bound, Planned, SelectParts
from flowrun.frontend.sql.queries.grouping import GroupingPlanner
from flowrun.frontend.sql.queries.order_and_limit import ordered, output_order
from flowrun.frontend.sql.queries.select import SelectBinder, SelectPlanner
from flowrun.frontend.sql.queries.set_operations import combined, values
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.spans import error_at


class QueryBinder:
    """Binds one query text. Errors count places in that text; those that do not stand in each other's way are all collected."""

    def __init__(self, text: str, offset: int, catalog: Catalog, statement: QueryContext) -> None:
        self.context = BindingContext(text, offset, catalog, statement, self)
        self.root = Environment(self.context, {})

    def bind(self, query: QuerySyntax, environment: Environment, outer: OuterScope | None = None) -> Bound:
        """The plan of a query.

        Raises:
            ExpressionError: one thing is wrong.
            FailedError: what is wrong was added to the errors of the context.
        """
        match query:
            case Select():
                return self.finished(self.select_parts(query, environment, outer), None, environment)
            case Ordered():
                return self._ordered(query, environment, outer)
            case WithQuery():
                return self.bind(query.query, self._with(query.tables, environment), outer)
            case SetOperation():
                left, right = self.context.all_of(
                    [
                        lambda: self.bind(query.left, environment, outer),
                        lambda: self.bind(query.right, environment, outer),
                    ]
                )
                return Bound(combined(self.context.nodes, query, left.node, right.node, left.names), left.names)
            case ValuesRows():
                node = values(self.context, query, environment, outer)
                return Bound(node, node.schema.names)

    def select_parts(
        self, select: Select, environment: Environment, outer: OuterScope | None, order: Sequence[OrderItem] = ()
    ) -> SelectParts:
        """The bound clauses of a SELECT, before its nodes are made."""
        return SelectBinder(self.context, select, environment, outer).bound(order)

    def grouping(self, parts: SelectParts) -> GroupingPlanner:
        """What makes the groups of a bound SELECT."""
        return GroupingPlanner(self.context, parts)

    def finished(
        self, parts: SelectParts, limit: Ordered | None, environment: Environment, *, partition: int = 0
    ) -> Bound:
        """The plan of a bound SELECT; `limit` holds for each value of its first `partition` columns by itself."""
        planned = SelectPlanner(self.context, parts).planned()
        if limit is None:
            return Bound(
                self.context.nodes.first_columns(planned.node, len(planned.names), parts.syntax.span), planned.names
            )
        return Bound(ordered(self.context.nodes, limit, planned, environment, partition), planned.names)

    def _with(self, tables: Sequence[CommonTable], environment: Environment) -> Environment:
        known = dict(environment.tables)
        for table in tables:
            if table.name.text in known and any(t is not table and t.name.text == table.name.text for t in tables):
                self.context.errors.append(
                    error_at(f"'{table.name.text}' is defined twice in WITH", table.name.span, "rename one of them")
                )
            inner = Environment(self.context, dict(known))
            known[table.name.text] = self.context.attempt(lambda t=table, e=inner: self._common_table(t, e))  # type: ignore[misc]
        return Environment(self.context, known)

    def _common_table(self, table: CommonTable, environment: Environment) -> Bound:
        bound = self.bind(table.query, environment)
        return self.renamed(bound, table.columns, table.name) if table.columns else bound

    def renamed(self, bound: Bound, columns: Sequence[Name], at: Name) -> Bound:
        """The same rows, their columns named anew.

        Raises:
            ExpressionError: there are not as many names as columns.
        """
        if len(columns) != len(bound.names):
            span = (columns[0].span[0], columns[-1].span[1])
            raise error_at(
                f"{len(columns)} column names for {len(bound.names)} columns of '{at.text}'",
                span,
                "name all columns, or none",
            )
        return Bound(bound.node, tuple(c.text for c in columns))

    def _ordered(self, query: Ordered, environment: Environment, outer: OuterScope | None) -> Bound:
        inner = query.query
        if isinstance(inner, Ordered):
            bound = self.bind(inner, environment, outer)
            planned = Planned(bound.node, bound.names, ())
        elif isinstance(inner, Select):
            parts = self.select_parts(inner, environment, outer, query.order)
            return self.finished(parts, query, environment)
        else:
            bound = self.bind(inner, environment, outer)
            planned = Planned(bound.node, bound.names, output_order(query.order, bound, environment))
        return Bound(ordered(self.context.nodes, query, planned, environment), planned.names)
