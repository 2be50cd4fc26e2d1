"""Queries whose last columns are entries of a list that the user wrote: every entry's problems are shown where it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from flowrun.core.record import record
from flowrun.core.types import TypeRoot
from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.catalog import CatalogView
from flowrun.frontend.sql.queries.from_text import BoundQuery, syntax_error
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.yaml.queries.queries import UNNAMED, QueryReader, StepQuery, StepSql
from flowrun.frontend.yaml.queries.wording import in_step
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess
from flowrun.plan.nodes import Calc, PlanNode

Compose = Callable[[Sequence[YamlScalar], bool], StepSql]
"""The text of a query with some of its entries, with or without its conditions."""
Told = tuple[str, str | None]
"""Message and hint."""


@record
class Wording:
    """How problems of a list are told; `{name}` and `{count}` are filled in.

    Attributes:
        twice: a name that an earlier entry has.
        taken: a name of a column before the entries.
        several: an entry that gives more or less than one column.
        marks_text: what is marked is the entry's text without its quotes.
    """

    twice: Told
    taken: Told = ("", "")
    several: Told = ("an entry is one column, this gives {count}", "write every column as an entry of its own")
    marks_text: bool = False


def _nothing_wrong(name: str, column: Expression) -> Told | None:  # noqa: ARG001 - the list has no rule of its own
    return None


@record
class EntryQuery:
    """A query with a list of entries at the end of its select list.

    Attributes:
        compose: makes its text.
        entries: what the user wrote.
        query: what it reads; its text does not matter.
        wording: of its problems.
        conditions: further texts of the user's in it.
        leading: how many columns come before those of the entries.
        width: how many columns the entry `*` gives; 0: it may not stand in the list; None: not known.
        wrong: what is wrong with an entry of this name and expression besides.
    """

    compose: Compose
    entries: tuple[YamlScalar, ...]
    query: StepQuery
    wording: Wording
    conditions: tuple[YamlScalar, ...] = ()
    leading: int = 0
    width: int | None = 0
    wrong: Callable[[str, Expression], Told | None] = _nothing_wrong

    def with_entries(self, entries: Sequence[YamlScalar], *, conditions: bool) -> StepQuery:
        """The query with these entries."""
        return replace(self.query, sql=self.compose(entries, conditions))

    def takes(self, entry: YamlScalar) -> bool:
        """Whether the entry may give any number of columns."""
        return self.width != 0 and entry.text.rstrip().endswith("*")


@record
class Entries:
    """A bound query with entries; one that only repeats a column before the list gives none.

    Attributes:
        node: gives the rows.
        names: of its columns, as the user calls them.
        columns: the expression of each, over the rows below.
    """

    node: PlanNode
    names: tuple[str, ...]
    columns: tuple[Expression, ...]

    @classmethod
    def of(cls, query: EntryQuery, bound: BoundQuery, names: tuple[str, ...] | None = None) -> Entries:
        """The query's rows, under its own names or others."""
        node, read = bound.node, [t.node if isinstance(t, CatalogView) else t for t in query.query.tables.values()]
        if isinstance(node, Calc) and not any(node is r for r in read):
            columns = node.projections
        else:
            columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
        return cls(node, bound.names if names is None else names, columns)


class EntryReader:
    """Binds queries with entries, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics, queries: QueryReader) -> None:
        self._diagnostics = diagnostics
        self._queries = queries

    def read(self, query: EntryQuery) -> Entries | None:
        """The query; None if anything is wrong, all of which is reported.

        What is right is bound once. Else each entry is looked at alone too, so that one problem hides no other.
        """
        whole = self._queries.bound(query.with_entries(query.entries, conditions=True))
        if isinstance(whole, BoundQuery) and _is_plain(query, bound := Entries.of(query, whole)):
            return bound
        names = self._one_by_one(query, () if isinstance(whole, BoundQuery) else whole)
        if names is None or not isinstance(whole, BoundQuery):
            return None
        if () in names:
            kept = tuple(e for e, n in zip(query.entries, names, strict=True) if n)
            return self.read(replace(query, entries=kept))
        return Entries.of(query, whole, (*whole.names[: query.leading], *(n for group in names for n in group)))

    def _one_by_one(self, query: EntryQuery, errors: Sequence[ExpressionError]) -> list[tuple[str, ...]] | None:
        """The names that each entry gives, none if it repeats a leading column; None if there are problems."""
        unreadable = [s for s in (*query.conditions, *query.entries) if errors and self._is_unreadable(s)]
        if not unreadable:
            self._queries.report(query.with_entries(query.entries, conditions=True), errors)
        elif not any(c in unreadable for c in query.conditions) and query.conditions:
            self._queries.rows(query.with_entries((), conditions=True), named=False)
        complete, found = not errors, list[tuple[str, ...]]()
        for entry in query.entries:
            if entry in unreadable:
                continue
            alone = query.with_entries((entry,), conditions=False)
            bound = self._queries.bound(alone)
            names = None
            if isinstance(bound, BoundQuery):
                names = self._names(query, entry, alone, bound, [n for group in found for n in group])
            else:
                self._queries.report(alone, bound)
            complete &= names is not None
            found.append(names or ())
        return found if complete else None

    def _is_unreadable(self, scalar: YamlScalar) -> bool:
        """Whether the text is no expression, which is reported."""
        before = "SELECT "
        error = syntax_error(before + scalar.text)
        if error is None:
            return False
        told = in_step(error)
        at = scalar.locate(max(0, told.offset - len(before)), told.length)
        self._diagnostics.error(told.message, at, hint=told.hint)
        return True

    def _names(
        self, query: EntryQuery, entry: YamlScalar, alone: StepQuery, bound: BoundQuery, earlier: Sequence[str]
    ) -> tuple[str, ...] | None:
        """The names of the columns that an entry gives, none if it repeats one before the list; None if there is a problem."""
        columns, before = Entries.of(query, bound).columns, bound.names[: query.leading]
        given = bound.names[query.leading :]
        problem: Told | None = None
        at = entry.locate(0, len(entry.text)) if query.wording.marks_text else entry.location
        if len(given) != 1 and not query.takes(entry):
            problem = _filled(query.wording.several, count=len(given))
        found: list[str] = []
        for index, written in enumerate(given if problem is None else (), query.leading):
            name = _own_name(columns[index], before, columns) if written.startswith(UNNAMED) else written
            if name is None:
                place = bound.places[index]
                at = at if place is None else alone.sql.locate(*place)
                problem = "the column needs a name", f"write {entry.text.strip()} AS some_name"
                break
            if name in before and columns[before.index(name)] == columns[index]:
                continue
            problem = self._problem(query, name, columns[index], before, (*earlier, *found))
            if problem is not None:
                break
            found.append(name)
        if problem is None:
            return tuple(found)
        self._diagnostics.error(problem[0], at, hint=problem[1])
        return None

    @staticmethod
    def _problem(
        query: EntryQuery, name: str, column: Expression, before: Sequence[str], earlier: Sequence[str]
    ) -> Told | None:
        if name in before:
            return _filled(query.wording.taken, name=name)
        if name in earlier:
            return _filled(query.wording.twice, name=name)
        if query.query.row_by_row and column.type.root is TypeRoot.NULL:
            return "NULL alone has no type", "write CAST(NULL AS some type)"
        return query.wrong(name, column)


def _filled(told: Told, **values: object) -> Told:
    message, hint = told
    return message.format(**values), hint


def _is_plain(query: EntryQuery, bound: Entries) -> bool:
    """Whether each entry gives a column with a name that no other has and nothing is wrong with it, as is seen at once."""
    if not query.entries:
        return True
    stars = [i for i, e in enumerate(query.entries) if query.takes(e)]
    count = query.leading + len(query.entries)
    if stars:
        if stars != [0] or query.entries[0].text.strip() != "*":
            return False
        count = len(bound.names) if query.width is None else count + query.width - 1
    if len(bound.names) != count or len(set(bound.names)) < count or any(n.startswith(UNNAMED) for n in bound.names):
        return False
    if query.query.row_by_row and any(t.root is TypeRoot.NULL for t in bound.node.schema.types):
        return False
    own = zip(bound.names[query.leading :], bound.columns[query.leading :], strict=True)
    return all(query.wrong(name, column) is None for name, column in own)


def _own_name(column: Expression, before: Sequence[str], columns: Sequence[Expression]) -> str | None:
    """The name of what is only a column or a field, however it is written: `(user)`."""
    known = next((n for n, c in zip(before, columns, strict=False) if c == column), None)
    if known is not None:
        return known
    return column.name if isinstance(column, ColumnRef | FieldAccess) and "$" not in column.name else None
