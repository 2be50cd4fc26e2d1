"""The syntax of Flink SQL queries as frozen values; scalar expressions inside are sqlglot nodes.

A span is the first and one-past-last code point in the query's own text. Subqueries inside expressions hang on their sqlglot node as
`meta["query"]`, OVER clauses as `meta["over"]`.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from sqlglot import exp

from flowrun.core.record import record
from flowrun.core.semantics import FrameUnit, JoinKind
from flowrun.frontend.sql.spans import Span


@record
class Name:
    """An identifier as written; `quoted` in back ticks."""

    text: str
    span: Span
    quoted: bool = False


# -- queries -------------------------------------------------------------------------------------------------------------------


@record
class OrderItem:
    """An entry of ORDER BY. `nulls_first` is None where the text does not say."""

    expression: exp.Expression
    descending: bool
    nulls_first: bool | None
    span: Span


@record
class FrameBound:
    """One end of an OVER frame: `preceding` an expression, or unbounded, or the current row; `following` lies after it."""

    span: Span
    amount: exp.Expression | None = None
    unbounded: bool = False
    following: bool = False

    @property
    def is_current(self) -> bool:
        """Whether this is CURRENT ROW."""
        return self.amount is None and not self.unbounded


@record
class FrameClause:
    """ROWS or RANGE with its ends; `end` is CURRENT ROW where the text has one bound only."""

    unit: FrameUnit
    start: FrameBound
    end: FrameBound
    span: Span


@record
class OverClause:
    """What stands in the parentheses of OVER or WINDOW … AS; `base` is the named window that it refers to or extends."""

    span: Span
    base: Name | None = None
    partition: tuple[exp.Expression, ...] = ()
    order: tuple[OrderItem, ...] = ()
    frame: FrameClause | None = None


@record
class SelectItem:
    """An entry of a select list: an expression with its alias, or a star: `*` has no `expression`, `a.*` has `a`."""

    expression: exp.Expression | None
    alias: Name | None
    span: Span
    star: bool = False


class SetKind(Enum):
    """How two grouping elements combine their sets: as given, all prefixes, all subsets."""

    SETS = "GROUPING SETS"
    ROLLUP = "ROLLUP"
    CUBE = "CUBE"


@record
class GroupingElement:
    """An entry of GROUP BY: one expression, several in parentheses, or `kind` over nested elements; `()` has neither."""

    span: Span
    expressions: tuple[exp.Expression, ...] = ()
    kind: SetKind | None = None
    elements: tuple[GroupingElement, ...] = ()


@record
class HintText:
    """What a comment `/*+ … */` holds."""

    span: Span
    text: str


@record
class Select:
    """SELECT … FROM … WHERE … GROUP BY … HAVING … WINDOW …"""

    span: Span
    items: tuple[SelectItem, ...]
    distinct: bool = False
    source: TableSyntax | None = None
    where: exp.Expression | None = None
    grouping: tuple[GroupingElement, ...] | None = None
    having: exp.Expression | None = None
    windows: tuple[tuple[Name, OverClause], ...] = ()
    qualify: exp.Expression | None = None
    hints: tuple[HintText, ...] = ()


@record
class ValuesRows:
    """VALUES (…), (…)."""

    span: Span
    rows: tuple[tuple[exp.Expression, ...], ...]


class SetOperator(Enum):
    """UNION, INTERSECT or EXCEPT."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@record
class SetOperation:
    """Two queries combined; `all` keeps duplicates."""

    span: Span
    operator: SetOperator
    all: bool
    left: QuerySyntax
    right: QuerySyntax


@record
class Ordered:
    """A query with ORDER BY, OFFSET, LIMIT or FETCH."""

    span: Span
    query: QuerySyntax
    order: tuple[OrderItem, ...] = ()
    offset: exp.Expression | None = None
    limit: exp.Expression | None = None


@record
class CommonTable:
    """One table of WITH."""

    name: Name
    columns: tuple[Name, ...]
    query: QuerySyntax


@record
class WithQuery:
    """WITH tables, and the query that may name them."""

    span: Span
    tables: tuple[CommonTable, ...]
    query: QuerySyntax


QuerySyntax: TypeAlias = "Select | ValuesRows | SetOperation | Ordered | WithQuery"


# -- tables --------------------------------------------------------------------------------------------------------------------


@record
class NamedTable:
    """A table, view or table of WITH by its (qualified) name; `as_of` is the time of FOR SYSTEM_TIME AS OF."""

    span: Span
    parts: tuple[Name, ...]
    as_of: exp.Expression | None = None
    hints: tuple[str, ...] = ()


@record
class DerivedTable:
    """A query in parentheses; `lateral` may read the tables before it."""

    span: Span
    query: QuerySyntax
    lateral: bool = False


@record
class UnnestTable:
    """UNNEST(expression) [WITH ORDINALITY]."""

    span: Span
    expression: exp.Expression
    ordinality: bool = False


@record
class TableArgument:
    """TABLE name or a query as an argument, with PARTITION BY and ORDER BY."""

    span: Span
    table: TableSyntax
    partition: tuple[exp.Expression, ...] = ()
    order: tuple[OrderItem, ...] = ()


@record
class Descriptor:
    """DESCRIPTOR(column, …)."""

    span: Span
    columns: tuple[Name, ...]


@record
class FunctionArgument:
    """An argument of a table function; `name` with `name => value`."""

    span: Span
    value: TableArgument | Descriptor | exp.Expression
    name: Name | None = None


@record
class FunctionTable:
    """TABLE(function(arguments)), with LATERAL before it or not."""

    span: Span
    name: Name
    arguments: tuple[FunctionArgument, ...]
    lateral: bool = False


@record
class MatchTable:
    """`input` MATCH_RECOGNIZE (…); `body` is the place of what stands between the parentheses."""

    span: Span
    input: TableSyntax
    body: Span


@record
class AliasedTable:
    """A table with another name, and perhaps other column names."""

    span: Span
    table: TableSyntax
    alias: Name
    columns: tuple[Name, ...] = ()


@record
class JoinTable:
    """Two tables joined; with neither `on` nor `using` nor `natural` every row with every row."""

    span: Span
    left: TableSyntax
    right: TableSyntax
    kind: JoinKind
    natural: bool = False
    on: exp.Expression | None = None
    using: tuple[Name, ...] = field(default=())


TableSyntax: TypeAlias = (
    "NamedTable | DerivedTable | UnnestTable | FunctionTable | MatchTable | AliasedTable | JoinTable | ValuesRows"
)


def without_alias(table: TableSyntax) -> tuple[TableSyntax, Name | None, tuple[Name, ...]]:
    """A table, its alias and its column aliases."""
    return (table.table, table.alias, table.columns) if isinstance(table, AliasedTable) else (table, None, ())
