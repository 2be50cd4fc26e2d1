"""What DESCRIBE and SHOW answer of the tables, views, functions and catalogs of a script."""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.frontend.sql.catalog import (
    DEFAULT_CATALOG,
    DEFAULT_DATABASE,
    Catalog,
    CatalogTable,
    CatalogView,
    TablePath,
)
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.catalogs import ScriptCatalogs, marked, spans_of
from flowrun.frontend.sql.script.listings import (
    created_catalog,
    created_table,
    created_view,
    described_catalog,
    described_table,
    described_view,
    function_names,
    listed,
)
from flowrun.frontend.sql.script.statements import Listing, ObjectKind
from flowrun.frontend.sql.script.tables import DeclaredTable, ScriptTables
from flowrun.frontend.sql.spans import Span, error_at

Question = (
    statements.Describe
    | statements.DescribeCatalog
    | statements.Show
    | statements.ShowColumns
    | statements.ShowCreate
)  # fmt: skip
"""The statements that are answered here."""


class ScriptAnswers:
    """Answers questions about what a script knows so far.

    Args:
        catalog: its tables, views and functions.
        tables: as they are declared.
        catalogs: those that it has created.
    """

    def __init__(self, catalog: Catalog, tables: ScriptTables, catalogs: ScriptCatalogs) -> None:
        self._catalog = catalog
        self._tables = tables
        self._catalogs = catalogs

    def answer(self, question: Question, span: Span) -> str | None:
        """The answer, as text; None: it would have to be asked of a catalog, and nobody looks at it here.

        Args:
            question: the statement.
            span: where it stands.

        Raises:
            ExpressionError: what it names does not exist, or cannot be asked.
            NoticedError: it is in a catalog that failed before, which has been reported.
        """
        match question:
            case statements.Show():
                return self._listed(question, span)
            case statements.DescribeCatalog(name=name):
                return described_catalog(*self._catalogs.options_of(name))
            case statements.ShowCreate(kind=ObjectKind.CATALOG, name=(name,)):
                return created_catalog(*self._catalogs.options_of(name))
            case statements.ShowCreate(kind=kind, name=name):
                return self._created(kind, name)
            case statements.Describe(name=name):
                return self._described(name, None)
            case statements.ShowColumns(name=name, chosen=chosen):
                return self._described(name, chosen)

    # -- tables --------------------------------------------------------------------------------------------------------------

    def _described(self, name: tuple[Name, ...], chosen: statements.NameFilter | None) -> str:
        relation, made, _ = self._named(name)
        if isinstance(relation, CatalogView):
            return described_view(relation.node.schema, chosen)
        return described_table(_known(made), chosen)

    def _created(self, kind: ObjectKind, name: tuple[Name, ...]) -> str:
        relation, made, path = self._named(name)
        is_view = isinstance(relation, CatalogView)
        if is_view != (kind is ObjectKind.VIEW):
            other = "VIEW" if is_view else "TABLE"
            shown = ".".join(n.text for n in name)
            raise error_at(f"'{shown}' is a {other.lower()}", name[-1].span, f"SHOW CREATE {other} {shown}")
        return created_view(relation, path) if isinstance(relation, CatalogView) else created_table(_known(made), path)

    def _named(self, name: tuple[Name, ...]) -> tuple[CatalogTable | CatalogView, DeclaredTable | None, TablePath]:
        with marked([n.span for n in name]):
            path = self._catalog.path([n.text for n in name])
            return self._catalog.relation(path), self._tables.declared(path), path

    # -- lists ---------------------------------------------------------------------------------------------------------------

    def _listed(self, show: statements.Show, span: Span) -> str | None:
        of_catalog = show.listing is Listing.DATABASES
        spans = spans_of(show.scope, of_catalog=of_catalog) if show.scope else [span]
        with marked(spans):
            names = self._names(show, [n.text for n in show.scope])
        return None if names is None else listed(show.listing, names, show.chosen)

    def _names(self, show: statements.Show, scope: list[str]) -> Iterable[str] | None:
        current = self._catalog.current
        match show.listing:
            case Listing.TABLES | Listing.VIEWS:
                return self._relations(scope, only_views=show.listing is Listing.VIEWS)
            case Listing.FUNCTIONS | Listing.USER_FUNCTIONS:
                self._catalogs.database(scope or [DEFAULT_CATALOG, DEFAULT_DATABASE])
                return function_names(self._catalog, only_users=show.listing is Listing.USER_FUNCTIONS)
            case Listing.DATABASES:
                catalog = scope[0] if scope else current[0]
                return None if self._is_kept(catalog) else self._catalogs.databases(catalog)
            case Listing.CATALOGS:
                return self._catalogs.names
            case Listing.CURRENT_CATALOG:
                return [current[0]]
            case Listing.CURRENT_DATABASE:
                return [current[1]]
            case Listing.MODULES:
                return ["core"]
            case Listing.JARS:
                return []

    def _relations(self, scope: list[str], *, only_views: bool) -> Iterable[str] | None:
        database = self._catalogs.database(scope)
        path = TablePath(*database, "")
        if path.is_local:
            return [n for n, r in self._catalog.relations.items() if isinstance(r, CatalogView) or not only_views]
        if self._is_kept(database[0]):
            return None
        declared = {
            p.name: isinstance(r, CatalogView)
            for p, r in self._catalog.elsewhere.items()
            if p.database_path == database
        }
        own = {name for name, is_view in declared.items() if is_view or not only_views}
        return own | (set(self._catalogs.tables(database, only_views=only_views)) - declared.keys())

    def _is_kept(self, catalog: str) -> bool:
        return self._catalogs.are_kept and catalog != DEFAULT_CATALOG


def _known(made: DeclaredTable | None) -> DeclaredTable:
    assert made is not None
    return made
