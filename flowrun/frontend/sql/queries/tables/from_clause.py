"""FROM → a relation: named tables, subqueries, windows, joins, UNNEST and table functions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.catalog import CatalogView, FunctionKind
from flowrun.frontend.sql.expressions.relations import Relation, Source, unique_names
from flowrun.frontend.sql.grammar import syntax
from flowrun.frontend.sql.queries.bound_queries import Bound, FailedError
from flowrun.frontend.sql.queries.set_operations import values
from flowrun.frontend.sql.queries.tables.catalog_tables import read_table, relation_named
from flowrun.frontend.sql.queries.tables.changelog_functions import changelog_relation, is_changelog_function
from flowrun.frontend.sql.queries.tables.from_context import FromContext, plain, renamed, with_window_columns
from flowrun.frontend.sql.queries.tables.joins import JoinBinder
from flowrun.frontend.sql.queries.tables.lateral import LateralTables
from flowrun.frontend.sql.queries.tables.match_recognize import bind_match
from flowrun.frontend.sql.queries.tables.process_functions import process_relation
from flowrun.frontend.sql.queries.tables.windows import is_window_function, windowed
from flowrun.frontend.sql.spans import FlinkSyntaxError, error_at
from flowrun.plan.expressions import ColumnRef


class FromBinder:
    """Binds the tables of one FROM."""

    def __init__(self, scope: FromContext) -> None:
        self._scope = scope
        self._context = scope.context
        self._nodes = scope.nodes

    def relation(self, table: syntax.TableSyntax) -> Relation:
        """The rows of a table expression.

        Raises:
            ExpressionError: one thing is wrong.
            FailedError: what is wrong was added to the context's errors.
        """
        match table:
            case syntax.AliasedTable():
                return self._aliased(table)
            case syntax.NamedTable():
                return self._named(table)
            case syntax.DerivedTable():
                return self._derived(table)
            case syntax.ValuesRows():
                node = values(self._context, table, self._scope.environment, self._scope.outer)
                return plain(Bound(node, node.schema.names), None)
            case syntax.JoinTable():
                return self._joined(table)
            case syntax.FunctionTable() if is_window_function(table.name.text):
                return self._windowed(table)
            case syntax.FunctionTable() if is_changelog_function(table.name.text):
                return changelog_relation(self._scope, table, self.relation)
            case syntax.FunctionTable() if self._is_process(table.name.text):
                return process_relation(self._scope, table, self.relation)
            case syntax.FunctionTable() | syntax.UnnestTable():
                one = Relation(self._nodes.one_row(table.span), ())
                return LateralTables(self._scope).appended(one, table)
            case syntax.MatchTable():
                return self._matched(table)

    def _is_process(self, function: str) -> bool:
        known = self._context.user_functions.find(function)
        return known is not None and known.kind is FunctionKind.PROCESS

    def _takes_tables(self, function: str) -> bool:
        return is_window_function(function) or is_changelog_function(function) or self._is_process(function)

    # -- single tables -------------------------------------------------------------------------------------------------------

    def _named(self, table: syntax.NamedTable) -> Relation:
        if table.as_of is not None:
            raise error_at(
                "FOR SYSTEM_TIME AS OF is possible only on the right of a join",
                table.span,
                "write left JOIN versions FOR SYSTEM_TIME AS OF left.time ON …",
            )
        name = table.parts[-1].text
        if len(table.parts) == 1 and name in self._scope.environment.tables:
            known = self._scope.environment.tables[name]
            if known is None:
                raise FailedError
            return plain(known, name)
        relation = plain(read_table(self._context, table), name)
        view = relation_named(self._context, table)
        return with_window_columns(relation, view.window_columns) if isinstance(view, CatalogView) else relation

    def _derived(self, table: syntax.DerivedTable) -> Relation:
        query = table.query
        if isinstance(query, syntax.Ordered) and query.limit is None and query.offset is None:
            query = query.query  # the order of a subquery means nothing
        if table.lateral:
            raise error_at(
                "LATERAL needs a table before it", table.span, "leave LATERAL out, or write FROM t, LATERAL (…)"
            )
        return plain(self._context.queries.bind(query, self._scope.environment, self._scope.outer), None)

    def _aliased(self, table: syntax.AliasedTable) -> Relation:
        relation = self.relation(table.table)
        if isinstance(table.table, syntax.UnnestTable) and len(relation.sources[0].names) == 1 and not table.columns:
            relation = renamed(relation, (table.alias.text,))
        return self._scope.with_alias(relation, table.alias, table.columns)

    def _windowed(self, table: syntax.FunctionTable) -> Relation:
        data = next((a.value for a in table.arguments if isinstance(a.value, syntax.TableArgument)), None)
        if data is None:
            hint = f"usage: {table.name.text.upper()}(TABLE t, DESCRIPTOR(ts), …)"
            raise error_at(f"the first argument of {table.name.text.upper()} must be a table", table.span, hint)
        inner = self.relation(data.table)
        items = inner.star()
        node = windowed(self._nodes, table, inner, self._scope.expressions(inner))
        names = [*(n for n, _ in items)]
        width = len(inner.schema)
        positions = [e.index for _, e in items if isinstance(e, ColumnRef)]
        added = list(range(width, len(node.schema)))
        names += unique_names([*names, *("window_start", "window_end", "window_time")])[len(names) :]
        alias = inner.sources[0].alias if len(inner.sources) == 1 else None
        return Relation(node, (Source(alias, tuple(names), (*positions, *added)),))

    def _matched(self, table: syntax.MatchTable) -> Relation:
        inner = self.relation(table.input)
        _, alias, _ = syntax.without_alias(table.input)
        items = inner.star()
        node = self._nodes.calc(inner.node, items, table.span)
        hints = self._nodes.hints("match", table.span)
        try:
            matched = bind_match(self._context.text, table.body, node, tuple(n for n, _ in items), hints)
        except FlinkSyntaxError as error:
            raise ExpressionError(error.message, offset=error.offset, length=error.length, hint=error.hint) from None
        return plain(Bound(matched, matched.schema.names), None if alias is None else alias.text)

    # -- joins ---------------------------------------------------------------------------------------------------------------

    def _joined(self, table: syntax.JoinTable) -> Relation:
        right, _, _ = syntax.without_alias(table.right)
        joins = JoinBinder(self._scope)
        if isinstance(right, syntax.UnnestTable) or (
            isinstance(right, syntax.FunctionTable) and not self._takes_tables(right.name.text)
        ):
            return LateralTables(self._scope).joined(self.relation(table.left), table)
        if isinstance(right, syntax.DerivedTable) and right.lateral:
            return LateralTables(self._scope).query(self.relation(table.left), table)
        if isinstance(right, syntax.NamedTable) and right.as_of is not None:
            unversioned = replace(right, as_of=None)
            _, alias, columns = syntax.without_alias(table.right)
            versions: syntax.TableSyntax = unversioned
            if alias is not None:
                versions = syntax.AliasedTable(table.right.span, unversioned, alias, columns)
            left_side, right_side = self._context.all_of(
                [partial(self.relation, table.left), partial(self.relation, versions)]
            )
            return joins.temporal(left_side, right_side, table, right)
        left_side, right_side = self._context.all_of(
            [partial(self.relation, table.left), partial(self.relation, table.right)]
        )
        return joins.regular(left_side, right_side, table)
