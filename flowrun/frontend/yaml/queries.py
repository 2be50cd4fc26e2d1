"""SQL made from parts of a step: text composed of the user's scalars and what stands between, whose places are those of the document."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import ExpressionError, InternalError, Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import Catalog, CatalogTable, CatalogView, UserFunction
from flowrun.frontend.sql.places import Span
from flowrun.frontend.sql.queries.from_text import bind_query
from flowrun.frontend.sql.queries.statement_context import HintNodes, QueryContext
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.yaml.hints import part_hints
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


class QueryReader:
    """Binds composed SQL. `functions` are the user's own, by name in upper case."""

    def __init__(self, diagnostics: Diagnostics, functions: Mapping[str, UserFunction]) -> None:
        self._diagnostics = diagnostics
        self._functions = dict(functions)

    @property
    def has_functions(self) -> bool:
        """Whether expressions may call the user's functions."""
        return bool(self._functions)

    def bind(
        self, sql: StepSql, tables: Mapping[str, PlanNode], name: str, hints: HintNodes, *, named: bool = True
    ) -> PlanNode | None:
        """The rows of a query under the names that it gives them; None if it is wrong, which is reported.

        Args:
            sql: the query.
            tables: what it may read.
            name: of the step.
            hints: of its nodes.
            named: whether every column must have a name of the user's.
        """
        relations: dict[str, CatalogTable | CatalogView] = {n: CatalogView(n, node) for n, node in tables.items()}
        context = QueryContext(name, sql, self._diagnostics, _no_scan, hints)
        try:
            bound = bind_query(sql.text, 0, Catalog(relations, self._functions), context)
        except ExpressionError as error:
            for one in getattr(error, "errors", ()) or (error,):
                at = sql.locate(one.offset, one.offset + max(1, one.length))
                self._diagnostics.error(one.message, at, hint=one.hint)
            return None
        if self._misnamed(bound.names, sql, named):
            return None
        return _renamed(bound.node, bound.names, hints)

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


def _renamed(node: PlanNode, names: tuple[str, ...], hints: HintNodes) -> PlanNode:
    if node.schema.names == names:
        return node
    schema = Schema(tuple(Field(n, f.type, f.nullable) for n, f in zip(names, node.schema, strict=True)))
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    return Calc(schema=schema, hints=hints("columns", 1), input=node, projections=columns)


def _no_scan(table: CatalogTable, span: Span) -> Scan:  # noqa: ARG001 - the protocol's
    """Steps read nodes: there are no tables to scan."""
    raise InternalError(f"'{table.name}' is read as a table of a script")
