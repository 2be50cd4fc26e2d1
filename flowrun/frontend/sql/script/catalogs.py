"""The catalogs of a script: made by CREATE CATALOG, and asked for the tables that statements name.

A table is asked for once. What the catalog says of it is kept, as the statement that would declare it, and goes with the job: who compiles
the script again (a worker, `flowrun resume` without a file) is given that, and asks no catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from flowrun.api.table_catalog import CatalogType, StoredTable, TableCatalog
from flowrun.connectors.catalogs import TYPE, catalog_type_named, catalog_type_names
from flowrun.core.options import parse_options
from flowrun.errors import ConnectorError, ExpressionError, OptionError, SetupError, did_you_mean
from flowrun.frontend.sql.catalog import (
    DEFAULT_CATALOG,
    DEFAULT_DATABASE,
    Catalog,
    CatalogTable,
    NoticedError,
    TablePath,
    UnresolvedNameError,
    written,
)
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script.statements import CreateCatalog, CreateTable, OptionSyntax
from flowrun.frontend.sql.script.stored_tables import stored_syntax, stored_text
from flowrun.frontend.sql.script.tables import ScriptTables
from flowrun.frontend.sql.script.text import ScriptText
from flowrun.frontend.sql.spans import SeveralErrors, Span, error_at
from flowrun.plan.tables import learn_secrets_of_options, secret_options

T = TypeVar("T")

_CATALOG, _DATABASE, _TABLE = range(3)
_CONNECTOR = "connector"
_MADE_KNOWN = f"CREATE CATALOG makes one known; a script's own tables are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}"


@dataclass(slots=True, eq=False)
class _Created:
    """A catalog that the script has created.

    Attributes:
        key: its name, and its number if there were others of this name: what its tables are kept under.
        failed: it could not be asked, which has been reported.
    """

    syntax: CreateCatalog
    type: CatalogType
    tables: TableCatalog
    key: str
    failed: bool = False


class ScriptCatalogs:
    """Creates and drops catalogs, and finds what is in them.

    Args:
        script: the text.
        catalog: learns what is current, and asks this for tables.
        tables: declares those that are found.
        kept: what catalogs said when the script was compiled first, by `found`'s keys; None: this is the first time.
    """

    def __init__(
        self, script: ScriptText, catalog: Catalog, tables: ScriptTables, kept: Mapping[str, str] | None
    ) -> None:
        self._script = script
        self._catalog = catalog
        self._tables = tables
        self._kept = kept
        self._created: dict[str, _Created] = {}
        self._numbers: dict[str, int] = {}
        self._known: dict[TablePath, CatalogTable | None] = {}
        self.found: dict[str, str] = {}
        """Statements that declare the tables which the script names, by their full names; they hold no secrets."""
        catalog.foreign = self

    @property
    def are_kept(self) -> bool:
        """Whether somebody else has asked the catalogs: nothing is to be listed then."""
        return self._kept is not None

    @property
    def names(self) -> list[str]:
        """Of all catalogs."""
        return [DEFAULT_CATALOG, *self._created]

    def close(self) -> None:
        """Disconnect from all catalogs."""
        for created in self._created.values():
            created.tables.close()

    # -- statements ----------------------------------------------------------------------------------------------------------

    def create(self, statement: CreateCatalog) -> None:
        """Make a catalog known; nothing is asked of it.

        Raises:
            ExpressionError: the name is taken, or options are wrong.
        """
        name, span = statement.name.text, statement.name.span
        if name in self.names:
            if statement.if_not_exists:
                return
            earlier = self._created.get(name)
            where = "" if earlier is None else f" in line {self._script.locate(*earlier.syntax.name.span).line}"
            hint = "choose another name" + (f", or DROP CATALOG {name} before" if earlier is not None else "")
            raise error_at(f"catalog '{name}' exists already{where}", span, hint)
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        type, tables = opened_catalog(statement)
        self._created[name] = _Created(statement, type, tables, name if number == 1 else f"{name}#{number}")

    def drop(self, name: Name, *, if_exists: bool) -> None:
        """Forget a catalog, and what the script has declared in it.

        Raises:
            ExpressionError: there is none, or names that say none are in it.
        """
        if name.text == DEFAULT_CATALOG:
            raise error_at(f"{DEFAULT_CATALOG} cannot be dropped", name.span)
        if name.text not in self._created:
            if if_exists:
                return
            raise self._unknown_catalog(name.text, "DROP CATALOG IF EXISTS …").at(spans_of((name,), of_catalog=True))
        if self._catalog.current[0] == name.text:
            hint = f"USE CATALOG {DEFAULT_CATALOG} before it"
            raise error_at(f"catalog '{name.text}' is in use and cannot be dropped", name.span, hint)
        self._created.pop(name.text).tables.close()
        for path in [p for p in (*self._known, *self._catalog.elsewhere) if p.catalog == name.text]:
            self._tables.forget(path)
            self._known.pop(path, None)
            self._catalog.forget(path)

    def use(self, path: Sequence[Name], *, catalog: bool) -> None:
        """Look up names that say no catalog, or database, in this one.

        Raises:
            ExpressionError: there is none.
            NoticedError: the catalog failed before, which has been reported.
        """
        with marked(spans_of(path, of_catalog=catalog)):
            if not catalog:
                self._catalog.current = self.database([n.text for n in path])
            elif path[0].text == DEFAULT_CATALOG:
                self._catalog.current = (DEFAULT_CATALOG, DEFAULT_DATABASE)
            else:
                self._catalog.current = (path[0].text, self._named(path[0].text).tables.default_database)

    def database(self, names: Sequence[str]) -> tuple[str, str]:
        """The catalog and database that a name of one or two parts stands for; the current ones for none.

        Raises:
            UnresolvedNameError: there is no such catalog or database, or it cannot be asked.
            NoticedError: the catalog failed before, which has been reported.
        """
        if not names:
            return self._catalog.current
        catalog, database = (self._catalog.current[0], names[0]) if len(names) == 1 else names
        if catalog == DEFAULT_CATALOG:
            if database != DEFAULT_DATABASE:
                raise self._unknown_database(catalog, database, (DEFAULT_DATABASE,))
        elif not self.are_kept:
            created = self._named(catalog)
            known = self._ask(created, created.tables.databases)
            if database not in known:
                raise self._unknown_database(catalog, database, known)
        return catalog, database

    def databases(self, catalog: str) -> list[str]:
        """Names of all databases of a catalog. Raises as `database`."""
        if catalog == DEFAULT_CATALOG:
            return [DEFAULT_DATABASE]
        created = self._named(catalog)
        return list(self._ask(created, created.tables.databases))

    def tables(self, database: tuple[str, str], *, only_views: bool = False) -> list[str]:
        """Names of all tables and views in a database that is not local, without those that the script declares. Raises as `database`."""
        created = self._named(database[0])
        question = created.tables.views if only_views else created.tables.tables
        names = self._ask(created, lambda: question(database[1]))
        if names is None:
            raise self._unknown_database(*database, self._ask(created, created.tables.databases))
        return list(names)

    def options_of(self, name: Name) -> tuple[CreateCatalog, frozenset[str]]:
        """(the statement that made a catalog, keys of its options that are not shown).

        Raises:
            ExpressionError: there is none.
        """
        with marked(spans_of((name,), of_catalog=True)):
            created = self._named(name.text)
        options = created.syntax.options
        filled = {o.key for o in options if any(p.secret for p in self._script.pieces_in(*o.value_span))}
        return created.syntax, secret_options(created.type.options, [o.key for o in options]) | filled

    def new_table(self, path: TablePath, statement: CreateTable) -> CreateTable:
        """What CREATE TABLE says of a table that is not local, with the options that the catalog's tables have.

        Raises:
            ExpressionError: the catalog takes no new tables, or the table cannot be one of it.
            UnresolvedNameError: there is no such catalog.
        """
        created, span = self._named(path.catalog), statement.name[-1].span
        if statement.temporary:
            return statement
        if not created.type.creates_tables:
            raise self._takes_none(path, span, "TABLE")
        given = next((o for o in statement.options if o.key == _CONNECTOR), None)
        if given is not None:
            hint = f"leave it out, or declare a table of another connector: CREATE TEMPORARY TABLE {path}"
            raise error_at(f"catalog '{path.catalog}' says which connector its tables have", given.key_span, hint)
        return self._with_options(created, path, statement, span)

    def check_new_view(self, path: TablePath, span: Span, *, temporary: bool) -> None:
        """Pass if a script may declare a view of this name. Raises as `new_table`."""
        if path.is_local:
            return
        self._named(path.catalog)
        if not temporary:
            raise self._takes_none(path, span, "VIEW")

    def _takes_none(self, path: TablePath, span: Span, what: str) -> ExpressionError:
        there = written((DEFAULT_CATALOG, DEFAULT_DATABASE, path.name))
        hint = f"CREATE TEMPORARY {what} declares one for this script alone; so does CREATE {what} {there}"
        return error_at(f"catalog '{path.catalog}' takes no new {what.lower()}s", span, hint)

    # -- tables --------------------------------------------------------------------------------------------------------------

    def __call__(self, path: TablePath) -> CatalogTable | None:
        """See `ForeignTables`."""
        if path not in self._known:
            self._known[path] = self._find(path)
        return self._known[path]

    def _find(self, path: TablePath) -> CatalogTable | None:
        created = self._named(path.catalog)
        key = written((created.key, path.database, path.name))
        text = (self._kept or {}).get(key)
        if text is None:
            stored = self._ask(created, lambda: created.tables.table(path.database, path.name))
            if stored is None:
                self._check_database(created, path)
                return None
            _check_usable(path, stored)
            text = stored_text(path.name, stored)
        self.found[key] = text
        span = created.syntax.name.span
        syntax = self._with_options(created, path, stored_syntax(text, span), span)
        return self._tables.declare_found(path, span, syntax).table

    def _check_database(self, created: _Created, path: TablePath) -> None:
        """Raise UnresolvedNameError if it is the database that is not there; who wrote schema.table is told how to."""
        known = self._ask(created, created.tables.databases)
        if path.database in known:
            return
        problem = self._unknown_database(path.catalog, path.database, known)
        catalog, database = self._catalog.current
        inner = f"{path.database}.{path.name}"
        if catalog == path.catalog and self._ask(created, lambda: created.tables.table(database, inner)) is not None:
            problem.hint = f"quote schema and table as one name: {written((inner,))}"
        raise problem

    def names_in(self, path: TablePath) -> Sequence[str]:
        """See `ForeignTables`."""
        return self.tables(path.database_path)

    def _with_options(self, created: _Created, path: TablePath, table: CreateTable, span: Span) -> CreateTable:
        """The table with the options of its catalog, which stand where the catalog has those that they come from."""
        of_catalog = {o.key: o for o in created.syntax.options}
        own = {o.key for o in table.options}
        more = []
        for key, value in created.tables.options_of(path.database, path.name).items():
            origin = of_catalog.get(created.type.origins.get(key, key))
            place = span if origin is None else origin.value_span
            if key not in own:
                more.append(OptionSyntax(key, span if origin is None else origin.key_span, value, place))
        return replace(table, options=(*more, *table.options))

    # -- asking --------------------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> _Created:
        created = self._created.get(name)
        if created is None:
            raise self._unknown_catalog(name)
        return created

    def _unknown_catalog(self, name: str, otherwise: str = _MADE_KNOWN) -> UnresolvedNameError:
        hint = did_you_mean(name, self.names) if self._created else otherwise
        return UnresolvedNameError(f"catalog '{name}' does not exist", hint or otherwise, _CATALOG)

    def _unknown_database(self, catalog: str, name: str, known: Sequence[str]) -> UnresolvedNameError:
        hint = did_you_mean(name, known) or f"SHOW DATABASES FROM {written((catalog,))} lists them"
        return UnresolvedNameError(f"database '{name}' does not exist in catalog '{catalog}'", hint, _DATABASE)

    def _ask(self, created: _Created, question: Callable[[], T]) -> T:
        """The answer of a catalog. One that failed is not asked again: a server that hangs would be waited for again and again."""
        if created.failed:
            raise NoticedError
        try:
            return question()
        except (ConnectorError, SetupError) as error:
            created.failed = True
            name = created.syntax.name.text
            message = error.message if f"'{name}'" in error.message else f"catalog '{name}': {error.message}"
            hint = error.hint or f"check the options of CREATE CATALOG {written((name,))}"
            raise UnresolvedNameError(message, hint, _CATALOG) from error


def opened_catalog(statement: CreateCatalog) -> tuple[CatalogType, TableCatalog]:
    """The catalog that a statement describes.

    Raises:
        ExpressionError: its options are wrong.
    """
    options = {o.key: o for o in statement.options}
    span = statement.name.span
    given = options.pop(TYPE, None)
    if given is None:
        known = " or ".join(f"'{name}'" for name in catalog_type_names())
        raise error_at(f"the option '{TYPE}' is missing", span, f"WITH ('{TYPE}' = …, …): {known}")
    try:
        type = catalog_type_named(given.value)
    except OptionError as error:
        raise error_at(error.message, given.value_span, error.hint) from None
    values = {key: option.value for key, option in options.items()}
    learn_secrets_of_options(type.options, values)
    parsed, problems = parse_options(type.options, values, f"catalog type '{type.name}'")
    if not problems:
        try:
            return type, type.open(statement.name.text, parsed)
        except OptionError as error:
            problems = [error]
    raise SeveralErrors([error_at(p.message, _place(p, options, span), p.hint) for p in problems])


def _place(problem: OptionError, options: Mapping[str, OptionSyntax], otherwise: Span) -> Span:
    option = options.get(problem.option)
    if option is None:
        return otherwise
    return option.key_span if " has no option " in problem.message else option.value_span


def _check_usable(path: TablePath, table: StoredTable) -> None:
    """Raise UnresolvedNameError for a table that a query cannot be bound over."""
    hint = "declare it with CREATE TABLE, with the columns that you need"
    if not table.columns:
        raise UnresolvedNameError(f"table {path} has no columns", hint)
    for column in table.columns:
        if column.type is None:
            message = f"column '{column.name}' of {path} is {column.shown}, which flowrun has no type for"
            raise UnresolvedNameError(message, hint)


def spans_of(path: Sequence[Name], *, of_catalog: bool) -> list[Span]:
    """Where the parts of a name stand that ends with a database, or is that of a catalog, for `UnresolvedNameError.at`."""
    spans = [part.span for part in path]
    return spans * (_TABLE + 1) if of_catalog else [*spans, spans[-1]]


@contextmanager
def marked(spans: Sequence[Span]) -> Iterator[None]:
    """What is wrong with a name inside becomes an error that marks the part of it: see `UnresolvedNameError.at`."""
    try:
        yield
    except UnresolvedNameError as problem:
        raise problem.at(spans) from None
