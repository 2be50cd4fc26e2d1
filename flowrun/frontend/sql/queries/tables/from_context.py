"""What the tables of one FROM share while they are bound, and the relations of single tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from flowrun.core.record import record
from flowrun.frontend.sql.expressions.query_expressions import Clause, QueryExpressionBinder
from flowrun.frontend.sql.expressions.relations import OuterScope, QueryScope, Relation, Source
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.queries.binding_context import BindingContext, Environment
from flowrun.frontend.sql.queries.bound_queries import Bound
from flowrun.frontend.sql.queries.hints import Lifetimes
from flowrun.frontend.sql.queries.nodes import NodeMaker
from flowrun.frontend.sql.spans import error_at
from flowrun.plan.expressions import ColumnRef


@record
class FromContext:
    """One FROM.

    Attributes:
        context: of the query text.
        environment: what names of tables mean in it.
        outer: the query around, if FROM may read it.
        lifetimes: what hints say of the tables' state.
    """

    context: BindingContext
    environment: Environment
    outer: OuterScope | None
    lifetimes: Lifetimes = field(default_factory=dict)

    @property
    def nodes(self) -> NodeMaker:
        """Makes the query's nodes."""
        return self.context.nodes

    def expressions(self, relation: Relation, clause: Clause = Clause.FROM) -> QueryExpressionBinder:
        """A binder of expressions over a relation."""
        return QueryExpressionBinder(QueryScope(relation=relation, outer=self.outer), clause, self.environment)

    def with_alias(self, relation: Relation, alias: Name, columns: Sequence[Name]) -> Relation:
        """The relation as one table of that name, its columns named anew if names are given.

        Raises:
            ExpressionError: there are not as many names as columns.
        """
        items = relation.star()
        if not all(isinstance(e, ColumnRef) for _, e in items):
            node = self.nodes.calc(relation.node, items, alias.span)
            relation = plain(Bound(node, tuple(n for n, _ in items)), None)
            items = relation.star()
        names = [n for n, _ in items]
        if columns:
            if len(columns) != len(items):
                span = (columns[0].span[0], columns[-1].span[1])
                counted = f"{len(columns)} column names for {len(items)} columns of '{alias.text}'"
                raise error_at(counted, span, f"its columns are {', '.join(names)}")
            names = [c.text for c in columns]
        positions = tuple(e.index for _, e in items if isinstance(e, ColumnRef))
        source = Source(alias.text, tuple(names), positions)
        return Relation(relation.node, (source,), window_columns=relation.window_columns)


def plain(bound: Bound, alias: str | None) -> Relation:
    """The rows of a query as one table."""
    return Relation(bound.node, (Source(alias, bound.names, tuple(range(len(bound.names)))),))


def with_window_columns(relation: Relation, names: tuple[str, ...]) -> Relation:
    """The relation, which is one table, with its last columns as those of windows, under other names."""
    if not names:
        return relation
    source = relation.sources[0]
    kept = len(source.columns) - len(names)
    windows = tuple((n, relation.column(c, n)) for n, c in zip(names, source.columns[kept:], strict=True))
    rows = replace(source, names=source.names[:kept], columns=source.columns[:kept])
    return replace(relation, sources=(rows,), window_columns=windows)


def renamed(relation: Relation, names: tuple[str, ...]) -> Relation:
    """The relation's only table with other column names."""
    return replace(relation, sources=(replace(relation.sources[0], names=names),))
