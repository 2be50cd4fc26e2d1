"""SQL made from parts of a step: text composed of the user's scalars and what stands between, whose places are those of the document."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import ExpressionError, InternalError, Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import Catalog, CatalogTable, CatalogView, UserFunction
from flowrun.frontend.sql.queries.from_text import BoundQuery, bind_query
from flowrun.frontend.sql.queries.statement_context import HintNodes, QueryContext
from flowrun.frontend.sql.spans import SeveralErrors, Span
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.yaml.hints import part_hints
from flowrun.frontend.yaml.queries.wording import in_step
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, Scan

UNNAMED = "EXPR$"
"""How columns begin that a query gives no name."""


@record
class SqlPart:
    """A stretch of a composed text that begins at `start`: a scalar as it is, or words in its place `at` (None: of the part before)."""

    start: int
    text: str
    at: Location | None
    scalar: YamlScalar | None = None


@record(slots=False)
class StepSql(SourceText):
    """SQL composed for a step. Offsets count code points of `text`; places are those of the document."""

    at: Location = field(kw_only=True)
    parts: tuple[SqlPart, ...] = field(kw_only=True)

    def locate(self, start: int, end: int | None = None) -> Location:
        """The place in the document of a range of the composed text."""
        index = max(0, bisect_right(self.parts, start, key=lambda p: p.start) - 1)
        part = self.parts[index]
        if part.text[start - part.start :] == "(" and index + 1 < len(self.parts):
            part = self.parts[index + 1]  # the parentheses around a condition are not the user's
            start = part.start
        if part.scalar is None and part.at is None and index > 0:
            part = self.parts[index - 1]  # what the user wrote before ends too early
        if part.scalar is None:
            return part.at or self.at
        offset = min(start - part.start, max(0, len(part.text) - 1))
        length = 1 if end is None else min(end, part.start + len(part.text)) - part.start - offset
        return part.scalar.locate(offset, max(1, length))


class SqlComposer:
    """Composes a text from left to right. `at` is the place of what has none of its own."""

    def __init__(self, at: Location) -> None:
        self._at = at
        self._parts: list[SqlPart] = []
        self._size = 0

    def words(self, text: str, at: Location | None = None) -> SqlComposer:
        """Add words that the user did not write; `at` is what they stand for."""
        return self._add(text, at, None)

    def scalar(self, scalar: YamlScalar) -> SqlComposer:
        """Add what the user wrote; a comment at its end ends there."""
        self._add(scalar.text, None, scalar)
        return self._add("\n", None, None)

    def listed(self, scalars: Iterable[YamlScalar]) -> SqlComposer:
        """Add several texts, with commas between."""
        for index, scalar in enumerate(scalars):
            if index:
                self.words(", ")
            self.scalar(scalar)
        return self

    def name(self, name: str, at: Location | None = None) -> SqlComposer:
        """Add an identifier."""
        return self._add(quoted(name), at or self._at, None)

    def _add(self, text: str, at: Location | None, scalar: YamlScalar | None) -> SqlComposer:
        self._parts.append(SqlPart(self._size, text, at, scalar))
        self._size += len(text)
        return self

    def text(self) -> StepSql:
        """The whole."""
        return StepSql(self._at.file, "".join(p.text for p in self._parts), at=self._at, parts=tuple(self._parts))


def quoted(name: str) -> str:
    """An identifier in back ticks.

    >>> quoted("order-lines")
    '`order-lines`'
    """
    return "`" + name.replace("`", "``") + "`"


def step_hints(base: NodeHints, main: Collection[str] = ()) -> HintNodes:
    """Hints of the nodes of a query: the first of a kind in `main` has those of the step, the others are parts of it."""
    taken: list[str] = []

    def hints(kind: str, number: int) -> NodeHints:
        if kind in main and (not taken or taken == [kind]) and number == 1:
            taken[:] = [kind]
            return base
        return replace(part_hints(base, f"{kind}-{number}"), name=f"{base.name}.{kind}")

    return hints


@record
class StepQuery:
    """A query of a step, before it is bound.

    Attributes:
        sql: its text.
        tables: what it may read, by name.
        name: of the step.
        hints: of its nodes.
        row_by_row: its select list takes no aggregates.
        variances_in_double: see `QueryContext`.
        input: how it names the step's rows, if it is composed over these alone: messages call them the input then.
    """

    sql: StepSql
    tables: Mapping[str, PlanNode | CatalogView]
    name: str
    hints: HintNodes
    row_by_row: bool = False
    variances_in_double: bool = False
    input: str | None = None


class QueryReader:
    """Binds composed SQL.

    Args:
        diagnostics: receives every problem.
        functions: the user's own, by name in upper case; None: it is declared, but wrong, which has been reported.
    """

    def __init__(self, diagnostics: Diagnostics, functions: Mapping[str, UserFunction | None]) -> None:
        self._diagnostics = diagnostics
        self._functions = {name: function for name, function in functions.items() if function is not None}
        self._wrong = functions.keys() - self._functions.keys()

    def rows(self, query: StepQuery, *, named: bool = True) -> PlanNode | None:
        """The rows of a query under the names that it gives them; None if it is wrong, which is reported.

        Args:
            query: as composed.
            named: whether every column must have a name of the user's.
        """
        bound = self.bound(query)
        if not isinstance(bound, BoundQuery):
            self.report(query, bound)
            return None
        if self._misnamed(bound.names, query.sql, named):
            return None
        return renamed(bound.node, bound.names, query.hints("columns", 1))

    def bound(self, query: StepQuery) -> BoundQuery | Sequence[ExpressionError]:
        """The query, or all that is wrong with it, which is not reported yet."""
        relations: dict[str, CatalogTable | CatalogView] = {
            n: t if isinstance(t, CatalogView) else CatalogView(n, t) for n, t in query.tables.items()
        }
        context = QueryContext(
            query.name,
            query.sql,
            self._diagnostics,
            _no_scan,
            query.hints,
            row_by_row=query.row_by_row,
            variances_in_double=query.variances_in_double,
        )
        try:
            return bind_query(query.sql.text, 0, Catalog(relations, self._functions), context)
        except SeveralErrors as error:
            return error.errors

    def report(self, query: StepQuery, errors: Iterable[ExpressionError]) -> None:
        """Report what is wrong with a query, in the words and at the places of the document."""
        for error in errors:
            place = query.sql.text[error.offset : error.offset + error.length]
            if place.partition("(")[0].strip().upper() in self._wrong:
                continue  # that it calls a function which is wrong has been said where that is declared
            one = error if query.input is None else in_step(error, query.input)
            at = query.sql.locate(one.offset, one.offset + max(1, one.length))
            self._diagnostics.error(one.message, at, hint=one.hint)

    def _misnamed(self, names: tuple[str, ...], sql: StepSql, named: bool) -> bool:
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            hint = f"name the columns that are wanted, and rename one of them: a.{twice} AS other_name"
            self._diagnostics.error(f"the step gets two columns '{twice}'", sql.at, hint=hint)
            return True
        if named and any(n.startswith(UNNAMED) for n in names):
            self._diagnostics.error("a column needs a name", sql.at, hint="write expression AS name")
            return True
        return False


def renamed(node: PlanNode, names: tuple[str, ...], hints: NodeHints) -> PlanNode:
    """The node's columns under other names; the node itself if they are called so."""
    if node.schema.names == names:
        return node
    schema = Schema(tuple(Field(n, f.type, f.nullable) for n, f in zip(names, node.schema, strict=True)))
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return Calc(schema=schema, hints=hints, input=node, projections=columns)


def _no_scan(table: CatalogTable, span: Span) -> Scan:  # noqa: ARG001 - the protocol's
    """Steps read nodes: there are no tables to scan."""
    raise InternalError(f"'{table.name}' is read as a table of a script")
