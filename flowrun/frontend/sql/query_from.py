"""FROM → a relation: named tables, subqueries, windows, joins, UNNEST and table functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.catalog import FunctionKind
from flowrun.frontend.sql.match_recognize import bind_match
from flowrun.frontend.sql.places import FlinkSyntaxError, error_at
from flowrun.frontend.sql.query_changelog import changelog_relation, is_changelog_function
from flowrun.frontend.sql.query_expressions import Clause, QueryExpressionBinder
from flowrun.frontend.sql.query_hints import Lifetimes
from flowrun.frontend.sql.query_joins import JoinBinder
from flowrun.frontend.sql.query_process import process_relation
from flowrun.frontend.sql.query_relations import OuterScope, QueryScope, Relation, Source, unique_names
from flowrun.frontend.sql.query_results import Bound, FailedError
from flowrun.frontend.sql.query_sets import values
from flowrun.frontend.sql.query_tables import read_table
from flowrun.frontend.sql.query_unnest import LateralTables
from flowrun.frontend.sql.query_windows import is_window_function, windowed
from flowrun.frontend.sql.syntax import (
    AliasedTable,
    DerivedTable,
    FunctionTable,
    JoinTable,
    MatchTable,
    Name,
    NamedTable,
    Ordered,
    TableArgument,
    TableSyntax,
    UnnestTable,
    ValuesRows,
    without_alias,
)
from flowrun.plan.expressions import ColumnRef

if TYPE_CHECKING:
    from flowrun.frontend.sql.query_binder import Environment, QueryBinder


class FromBinder:
    """Binds the tables of one FROM; `lifetimes` is what hints say of their state."""

    def __init__(
        self,
        binder: QueryBinder,
        environment: Environment,
        outer: OuterScope | None,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.binder = binder
        self.environment = environment
        self.outer = outer
        self.lifetimes: Lifetimes = lifetimes or {}

    def expressions(self, relation: Relation, clause: Clause = Clause.FROM) -> QueryExpressionBinder:
        """A binder of expressions over a relation."""
        return QueryExpressionBinder(QueryScope(relation=relation, outer=self.outer), clause, self.environment)

    def relation(self, table: TableSyntax) -> Relation:
        """The rows of a table expression.

        Raises:
            ExpressionError: one thing is wrong.
            FailedError: what is wrong was added to the binder's errors.
        """
        match table:
            case AliasedTable():
                return self._aliased(table)
            case NamedTable():
                return self._named(table)
            case DerivedTable():
                return self._derived(table)
            case ValuesRows():
                node = values(self.binder, table, self.environment, self.outer)
                return plain(Bound(node, node.schema.names), None)
            case JoinTable():
                return self._joined(table)
            case FunctionTable() if is_window_function(table.name.text):
                return self._windowed(table)
            case FunctionTable() if is_changelog_function(table.name.text):
                return changelog_relation(self, table)
            case FunctionTable() if self._is_process(table.name.text):
                return process_relation(self, table)
            case FunctionTable() | UnnestTable():
                one = Relation(self.binder.nodes.one_row(table.span), ())
                return LateralTables(self).appended(one, table)
            case MatchTable():
                return self._matched(table)

    def _is_process(self, function: str) -> bool:
        known = self.binder.user_functions.find(function)
        return known is not None and known.kind is FunctionKind.PROCESS

    def _takes_tables(self, function: str) -> bool:
        return is_window_function(function) or is_changelog_function(function) or self._is_process(function)

    # -- single tables -------------------------------------------------------------------------------------------------------

    def _named(self, table: NamedTable) -> Relation:
        if table.as_of is not None:
            raise error_at(
                "FOR SYSTEM_TIME AS OF is possible only on the right of a join",
                table.span,
                "write left JOIN versions FOR SYSTEM_TIME AS OF left.time ON …",
            )
        name = table.parts[-1].text
        if len(table.parts) == 1 and name in self.environment.tables:
            known = self.environment.tables[name]
            if known is None:
                raise FailedError
            return plain(known, name)
        return plain(read_table(self.binder, table), name)

    def _derived(self, table: DerivedTable) -> Relation:
        query = table.query
        if isinstance(query, Ordered) and query.limit is None and query.offset is None:
            query = query.query  # the order of a subquery means nothing
        if table.lateral:
            raise error_at(
                "LATERAL needs a table before it", table.span, "leave LATERAL out, or write FROM t, LATERAL (…)"
            )
        return plain(self.binder.bind(query, self.environment, self.outer), None)

    def _aliased(self, table: AliasedTable) -> Relation:
        relation = self.relation(table.table)
        if isinstance(table.table, UnnestTable) and len(relation.sources[0].names) == 1 and not table.columns:
            relation = renamed(relation, (table.alias.text,))
        return self.with_alias(relation, table.alias, table.columns)

    def with_alias(self, relation: Relation, alias: Name, columns: Sequence[Name]) -> Relation:
        """The relation as one table of that name, its columns named anew if names are given.

        Raises:
            ExpressionError: there are not as many names as columns.
        """
        items = relation.star()
        if not all(isinstance(e, ColumnRef) for _, e in items):
            node = self.binder.nodes.calc(relation.node, items, alias.span)
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
        return Relation(relation.node, (Source(alias.text, tuple(names), positions),))

    def _windowed(self, table: FunctionTable) -> Relation:
        data = next((a.value for a in table.arguments if isinstance(a.value, TableArgument)), None)
        if data is None:
            hint = f"usage: {table.name.text.upper()}(TABLE t, DESCRIPTOR(ts), …)"
            raise error_at(f"the first argument of {table.name.text.upper()} must be a table", table.span, hint)
        inner = self.relation(data.table)
        items = inner.star()
        node = windowed(self.binder.nodes, table, inner, self.expressions(inner))
        names = [*(n for n, _ in items)]
        width = len(inner.schema)
        positions = [e.index for _, e in items if isinstance(e, ColumnRef)]
        added = list(range(width, len(node.schema)))
        names += unique_names([*names, *("window_start", "window_end", "window_time")])[len(names) :]
        alias = inner.sources[0].alias if len(inner.sources) == 1 else None
        return Relation(node, (Source(alias, tuple(names), (*positions, *added)),))

    def _matched(self, table: MatchTable) -> Relation:
        inner = self.relation(table.input)
        _, alias, _ = without_alias(table.input)
        items = inner.star()
        node = self.binder.nodes.calc(inner.node, items, table.span)
        hints = self.binder.nodes.hints("match", table.span)
        try:
            matched = bind_match(self.binder.text, table.body, node, tuple(n for n, _ in items), hints)
        except FlinkSyntaxError as error:
            raise ExpressionError(error.message, offset=error.start, length=error.length, hint=error.hint) from None
        return plain(Bound(matched, matched.schema.names), None if alias is None else alias.text)

    # -- joins ---------------------------------------------------------------------------------------------------------------

    def _joined(self, table: JoinTable) -> Relation:
        right, _, _ = without_alias(table.right)
        joins = JoinBinder(self)
        if isinstance(right, UnnestTable) or (
            isinstance(right, FunctionTable) and not self._takes_tables(right.name.text)
        ):
            return LateralTables(self).joined(self.relation(table.left), table)
        if isinstance(right, DerivedTable) and right.lateral:
            return LateralTables(self).query(self.relation(table.left), table)
        if isinstance(right, NamedTable) and right.as_of is not None:
            unversioned = replace(right, as_of=None)
            _, alias, columns = without_alias(table.right)
            versions: TableSyntax = unversioned
            if alias is not None:
                versions = AliasedTable(table.right.span, unversioned, alias, columns)
            left_side, right_side = self.binder.all_of(
                [partial(self.relation, table.left), partial(self.relation, versions)]
            )
            return joins.temporal(left_side, right_side, table, right)
        left_side, right_side = self.binder.all_of(
            [partial(self.relation, table.left), partial(self.relation, table.right)]
        )
        return joins.regular(left_side, right_side, table)


def plain(bound: Bound, alias: str | None) -> Relation:
    """The rows of a query as one table."""
    return Relation(bound.node, (Source(alias, bound.names, tuple(range(len(bound.names)))),))


def renamed(relation: Relation, names: tuple[str, ...]) -> Relation:
    """The relation's only table with other column names."""
    return replace(relation, sources=(replace(relation.sources[0], names=names),))
