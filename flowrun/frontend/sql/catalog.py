"""What names of a SQL script mean: tables, views and functions, as far as its statements have been read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import ExpressionError, Location, did_you_mean, near_matches
from flowrun.frontend.sql.spans import Span, error_at
from flowrun.plan.nodes import PlanNode, Scan, TableReference

if TYPE_CHECKING:
    from flowrun.api.accumulators import AccumulatorForm

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"

_CATALOG, _DATABASE, _TABLE = range(3)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


class NoticedError(Exception):
    """A statement is wrong, or needs something that is; that has been reported."""


class UnresolvedNameError(Exception):
    """A name stands for nothing; `part` says which of catalog (0), database (1) and table (2) is meant, -1 all of it."""

    def __init__(self, message: str, hint: str | None, part: int = _TABLE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.part = part

    def at(self, spans: Sequence[Span]) -> ExpressionError:
        """The error that marks the part, where the parts of the name that are written stand at `spans`, the last one last."""
        index = self.part - (_TABLE + 1 - len(spans))
        whole = (spans[0][0], spans[-1][1])
        return error_at(self.message, spans[index] if min(index, self.part) >= 0 else whole, self.hint)


@record
class TablePath:
    """The full name of a table or view."""

    catalog: str
    database: str
    name: str

    @property
    def is_local(self) -> bool:
        """Whether it is in the catalog and database that scripts declare their own tables in."""
        return self.database_path == (DEFAULT_CATALOG, DEFAULT_DATABASE)

    @property
    def database_path(self) -> tuple[str, str]:
        """Catalog and database."""
        return self.catalog, self.database

    def __str__(self) -> str:
        """How it is called in plans and messages: the name alone if it is local, else as a query may write it.

        >>> str(TablePath("default_catalog", "default_database", "a.b")), str(TablePath("pg", "shop", "public.orders"))
        ('a.b', 'pg.shop.`public.orders`')
        """
        return self.name if self.is_local else written((self.catalog, self.database, self.name))


def written(names: Iterable[str]) -> str:
    """Names as a query writes them, with dots between them."""
    return ".".join(n if _PLAIN_NAME.fullmatch(n) else "`" + n.replace("`", "``") + "`" for n in names)


class FunctionKind(Enum):
    """What a user's Python function takes and gives."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"
    PROCESS = "process table"


@record
class Parameter:
    """A parameter of a process table function besides its table: the type that its constant is converted to, None: any."""

    name: str
    type: DataType | None
    required: bool


@record
class ProcessSignature:
    """How a process table function is called.

    Attributes:
        table: name of the argument that is the table.
        keyed: it keeps state a key, so that its table needs PARTITION BY.
        passes_columns: all columns of the table go before its own.
        parameters: of its class, in order.
    """

    table: str
    keyed: bool
    passes_columns: bool
    parameters: tuple[Parameter, ...]


@record
class UserFunction:
    """A function made by CREATE FUNCTION … LANGUAGE PYTHON.

    Attributes:
        name: in SQL.
        reference: `module:name`, looked up in `search_path` before Python's own path.
        arguments: declared types; None: any number of any types.
        result: type of the value; of a table function the ROW of its columns.
        vectorised: takes and gives Arrow arrays, one entry a row.
        deterministic: same arguments, same result.
        retractable: an aggregate that can take rows back.
        overloads: further (types of arguments, type of the result) that it may be called with.
        required: the least number of arguments; None: all that `arguments` has.
        process: of a process table function: how it is called.
        accumulator: of an aggregate: what its accumulators are.
    """

    name: str
    kind: FunctionKind
    reference: str
    arguments: tuple[DataType, ...] | None
    result: DataType
    vectorised: bool = False
    deterministic: bool = True
    search_path: tuple[str, ...] = ()
    retractable: bool = False
    overloads: tuple[tuple[tuple[DataType, ...], DataType], ...] = ()
    required: int | None = None
    process: ProcessSignature | None = None
    accumulator: AccumulatorForm | None = None


@dataclass(slots=True, eq=False)
class CatalogTable:
    """A table made by CREATE TABLE, or found in a catalog.

    Attributes:
        schema: all columns that a query sees, in declared order: physical, computed and metadata ones.
        physical: columns that the connector delivers or takes.
        reference: connector and options. Options are checked for the role (source, sink, lookup) in which the table is first used.
        scan: reads the table; made once when a query first names it, so that all queries of a script share one scan.
        primary_key: names of the columns of PRIMARY KEY … NOT ENFORCED.
        location: of the name in CREATE TABLE; of one that was found, in CREATE CATALOG.
        path: its full name; None: it belongs to no script.
    """

    name: str
    schema: Schema
    physical: Schema
    reference: TableReference
    primary_key: tuple[str, ...] = ()
    location: Location | None = None
    scan: Scan | None = None
    path: TablePath | None = None


@dataclass(slots=True, eq=False)
class CatalogView:
    """A view made by CREATE VIEW: bound once when it was created, so that all its readers share its nodes.

    Attributes:
        window_columns: names of its last columns, which bound the windows that its rows are grouped by: they stand for the group, so that
            they are known beside aggregates but not inside them, where a column of the rows may have the same name.
    """

    name: str
    node: PlanNode
    location: Location | None = None
    text: str = ""
    window_columns: tuple[str, ...] = ()


def columns_of(relation: CatalogTable | CatalogView) -> Schema:
    """The columns that queries see."""
    return relation.node.schema if isinstance(relation, CatalogView) else relation.schema


class ForeignTables(Protocol):
    """Gives the tables of catalogs that a script has created."""

    def __call__(self, path: TablePath) -> CatalogTable | None:
        """A table that is not local; None: the database has none of this name.

        Raises:
            UnresolvedNameError: there is no such catalog or database, it cannot be asked, or the table cannot be used.
            NoticedError: the catalog failed before, which has been reported.
        """
        ...

    def names_in(self, path: TablePath) -> Sequence[str]:
        """Names of all tables that are in the same database."""
        ...


@dataclass(slots=True)
class Catalog:
    """Tables, views and functions by name. Names of tables are case-sensitive, names of functions are not (kept in upper case).

    Attributes:
        relations: the local tables and views.
        functions: of the script; they belong to no catalog.
        elsewhere: tables and views that the script declares in other catalogs.
        current: catalog and database of names that say none.
        foreign: what there is in other catalogs; None: there are none.
    """

    relations: dict[str, CatalogTable | CatalogView] = field(default_factory=dict)
    functions: dict[str, UserFunction] = field(default_factory=dict)
    elsewhere: dict[TablePath, CatalogTable | CatalogView] = field(default_factory=dict)
    current: tuple[str, str] = (DEFAULT_CATALOG, DEFAULT_DATABASE)
    foreign: ForeignTables | None = None

    def function(self, name: str) -> UserFunction | None:
        """The user's function of a name, in any case."""
        return self.functions.get(name.upper())

    def path(self, names: Sequence[str]) -> TablePath:
        """The full name that one to three parts of it stand for.

        Raises:
            UnresolvedNameError: there are more of them.
        """
        if len(names) > _TABLE + 1:
            inner = ".".join(names[2:])
            hint = f"quote what is one name: {written((*names[:2], inner))}"
            raise UnresolvedNameError(f"'{'.'.join(names)}' has more parts than catalog, database and table", hint, -1)
        return TablePath(*self.current[: _TABLE + 1 - len(names)], *names)

    def declared(self, path: TablePath) -> CatalogTable | CatalogView | None:
        """What a script has declared under a name."""
        return self.relations.get(path.name) if path.is_local else self.elsewhere.get(path)

    def declare(self, path: TablePath, relation: CatalogTable | CatalogView) -> None:
        """Make a table or view known."""
        if path.is_local:
            self.relations[path.name] = relation
        else:
            self.elsewhere[path] = relation

    def forget(self, path: TablePath) -> None:
        """What a script has declared under a name is known no more."""
        if path.is_local:
            self.relations.pop(path.name, None)
        else:
            self.elsewhere.pop(path, None)

    def relation(self, path: TablePath) -> CatalogTable | CatalogView:
        """The table or view of a name.

        Raises:
            UnresolvedNameError: there is none.
            NoticedError: its catalog failed before, which has been reported.
        """
        found = self.declared(path)
        if found is None and not path.is_local:
            if self.foreign is None:
                where = ".".join(path.database_path if path.catalog != DEFAULT_CATALOG else path.database_path[1:])
                hint = f"tables have no catalog or database here: write {path.name}"
                raise UnresolvedNameError(f"'{where}' does not exist", hint, _CATALOG)
            found = self.foreign(path)
        if found is None:
            raise self._missing(path)
        return found

    def _missing(self, path: TablePath) -> UnresolvedNameError:
        name = path.name
        if path.is_local or self.foreign is None:
            folded = [n for n in self.relations if n.casefold() == name.casefold()]
            near = f"names are case-sensitive: did you mean '{folded[0]}'?" if folded else None
            hint = near or did_you_mean(name, self.relations) or "create it with CREATE TABLE"
            return UnresolvedNameError(f"table '{name}' does not exist", hint)
        where = written(path.database_path)
        known = {n.rpartition(".")[2]: n for n in self.foreign.names_in(path)}  # schemas may be left out
        known |= {n: n for n in known.values()}
        close = dict.fromkeys(known[n] for n in near_matches(name, known))
        shown = " or ".join(written((n,)) for n in close)
        hint = f"did you mean {shown}?" if close else f"SHOW TABLES FROM {where} lists those that the user may see"
        return UnresolvedNameError(f"table '{name}' does not exist in {where}", hint)
