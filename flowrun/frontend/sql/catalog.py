"""What names of a SQL script mean: tables, views and functions, as far as its statements have been read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import Location
from flowrun.plan.nodes import PlanNode, Scan, TableReference

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"


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


@dataclass(slots=True, eq=False)
class CatalogTable:
    """A table made by CREATE TABLE.

    Attributes:
        schema: all columns that a query sees, in declared order: physical, computed and metadata ones.
        physical: columns that the connector delivers or takes.
        reference: connector and options. Options are checked for the role (source, sink, lookup) in which the table is first used.
        scan: reads the table; made once when a query first names it, so that all queries of a script share one scan.
        primary_key: names of the columns of PRIMARY KEY … NOT ENFORCED.
        location: of the name in CREATE TABLE.
    """

    name: str
    schema: Schema
    physical: Schema
    reference: TableReference
    primary_key: tuple[str, ...] = ()
    location: Location | None = None
    scan: Scan | None = None


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


@dataclass(slots=True)
class Catalog:
    """Tables, views and functions by name. Names of tables are case-sensitive, names of functions are not (kept in upper case)."""

    relations: dict[str, CatalogTable | CatalogView] = field(default_factory=dict)
    functions: dict[str, UserFunction] = field(default_factory=dict)

    def function(self, name: str) -> UserFunction | None:
        """The user's function of a name, in any case."""
        return self.functions.get(name.upper())
