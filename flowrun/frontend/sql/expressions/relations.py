"""Rows that a query's expressions read: the tables of FROM by alias, side by side, and what names in them mean."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import TypeRoot
from flowrun.errors import did_you_mean, near_matches
from flowrun.frontend.sql.expressions.pending import OuterColumn
from flowrun.frontend.sql.expressions.scope import Scope, UnknownNameError, access_fields
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess
from flowrun.plan.nodes import PlanNode

Named = tuple[str, Expression]


@record
class Source:
    """One table of FROM: its alias (None: it has none), the columns as they may be named, and their positions in the row."""

    alias: str | None
    names: tuple[str, ...]
    columns: tuple[int, ...]


@record
class Relation:
    """A row type and the node that gives it.

    Attributes:
        merged: columns of USING and NATURAL joins: one for each name, in the place of those of the two sides.
        window_columns: bounds of the windows that the rows are grouped by; outside aggregates they come before other columns, inside them
            nobody knows them.
    """

    node: PlanNode
    sources: tuple[Source, ...]
    merged: tuple[Named, ...] = ()
    window_columns: tuple[Named, ...] = ()

    @property
    def schema(self) -> Schema:
        """Columns of the node, under internal names."""
        return self.node.schema

    def column(self, position: int, name: str | None = None) -> ColumnRef:
        """A reference to a column."""
        entry = self.schema.fields[position]
        return ColumnRef(entry.type, position, name or entry.name)

    def star(self) -> list[Named]:
        """What * stands for."""
        merged = {n for n, _ in self.merged}
        found = list(self.merged)
        for source in self.sources:
            found += [n for n in self.star_of(source) if n[0] not in merged]
        return found

    def star_of(self, source: Source) -> list[Named]:
        """What alias.* stands for."""
        return [(n, self.column(c, n)) for n, c in zip(source.names, source.columns, strict=True)]

    def source(self, alias: str) -> Source | None:
        """The table with an alias."""
        return next((s for s in self.sources if s.alias == alias), None)

    @property
    def tables(self) -> str:
        """The tables for messages."""
        known = [s.alias for s in self.sources if s.alias]
        return " and ".join((", ".join(known[:-1]), known[-1]) if len(known) > 1 else known) or "the query in FROM"


@dataclass(slots=True)
class OuterScope:
    """The query around a subquery. `captured` are the values that the subquery took from it, numbered as `OuterColumn`s.

    `reads` is how often it took one.
    """

    scope: QueryScope
    captured: list[Expression] = field(default_factory=list)
    reads: int = 0

    def resolve(self, parts: tuple[str, ...]) -> Expression:
        """The outer column of a name, as seen from inside.

        Raises:
            UnknownNameError: the query around does not know it either.
        """
        value = self.scope.resolve(parts)
        self.reads += 1
        if value not in self.captured:
            self.captured.append(value)
        return OuterColumn(value.type, self.captured.index(value), ".".join(parts))


@record(slots=False)
class QueryScope(Scope):
    """Names of a query's expressions: columns of its relation, aliases of its select list where they count, then the query around."""

    schema: Schema = field(init=False)
    relation: Relation = field(kw_only=True)
    outer: OuterScope | None = field(default=None, kw_only=True)
    aliases: tuple[Named, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.relation.schema)

    def knows(self, name: str) -> bool:
        """Whether a column or alias has this name, here or around."""
        here = any(name in s.names for s in self.relation.sources) or any(n == name for n, _ in self._before_columns)
        return here or (self.outer is not None and self.outer.scope.knows(name))

    def has_table(self, alias: str) -> bool:
        """Whether a table has this alias, here or around."""
        return self.relation.source(alias) is not None or (self.outer is not None and self.outer.scope.has_table(alias))

    def resolve(self, parts: tuple[str, ...]) -> Expression:
        """The expression of a dotted name: [table.]column[.field …].

        Raises:
            UnknownNameError: nothing has the name, or more than one table has it.
        """
        for name, value in self._before_columns:
            if name == parts[0] and len(parts) == 1:
                return value
        source = self.relation.source(parts[0]) if len(parts) > 1 else None
        if source is not None and (found := self._of_source(source, parts[1])) is not None:
            return access_fields(found, parts[2:], 2)
        if len(parts) > 1 and source is None and self.outer is not None and self.outer.scope.has_table(parts[0]):
            with suppress(UnknownNameError):  # as in Calcite, a table around comes before a column that has its name
                return self.outer.resolve(parts)
        found = self._unqualified(parts[0])
        if found is not None:
            return access_fields(found, parts[1:], 1)
        if self.outer is not None:
            try:
                return self.outer.resolve(parts)
            except UnknownNameError:
                if source is None and not self._resembles(parts[0]):
                    raise  # the query around knows no more, but its own message is the nearer one
        raise self._unknown(source, parts)

    @property
    def in_aggregates(self) -> QueryScope:
        """The scope of what stands inside an aggregate."""
        if not self.relation.window_columns:
            return self
        return replace(self, relation=replace(self.relation, window_columns=()))

    @property
    def _before_columns(self) -> tuple[Named, ...]:
        return (*self.aliases, *self.relation.window_columns)

    def _of_source(self, source: Source, name: str) -> Expression | None:
        positions = [c for n, c in zip(source.names, source.columns, strict=True) if n == name]
        if len(positions) > 1:
            raise UnknownNameError(
                f"column '{name}' is ambiguous: {source.alias} has it {len(positions)} times",
                1,
                "name the columns with AS",
            )
        return self.relation.column(positions[0], name) if positions else None

    def _unqualified(self, name: str) -> Expression | None:
        for merged, value in self.relation.merged:
            if merged == name:
                return value
        found = [
            (s.alias, c) for s in self.relation.sources for n, c in zip(s.names, s.columns, strict=True) if n == name
        ]
        if len(found) > 1:
            owners = list(dict.fromkeys(a for a, _ in found if a))
            where = (
                f"{', '.join(owners[:-1])} and {owners[-1]} have it" if len(owners) > 1 else "it occurs more than once"
            )
            hint = (
                "write " + " or ".join(f"{a}.{name}" for a in owners) if len(owners) > 1 else "name the columns with AS"
            )
            raise UnknownNameError(f"column '{name}' is ambiguous: {where}", 0, hint)
        return self.relation.column(found[0][1], name) if found else None

    def _names(self) -> list[str]:
        windows = (n for n, _ in self.relation.window_columns)
        return list(dict.fromkeys((*(n for s in self.relation.sources for n in s.names), *windows)))

    def _resembles(self, name: str) -> bool:
        return bool(near_matches(name, self._names()))

    def _unknown(self, source: Source | None, parts: tuple[str, ...]) -> UnknownNameError:
        if source is not None:
            return UnknownNameError(
                f"{source.alias} has no column '{parts[1]}'", 1, _near(parts[1], list(source.names))
            )
        name = parts[0]
        if len(parts) > 1:
            known = [s.alias for s in self.relation.sources if s.alias]
            rows = [f.name for f in self.schema if f.type.root is TypeRoot.ROW]
            if not near_matches(name, rows) or near_matches(name, known):
                return UnknownNameError(
                    f"'{name}' is neither a table nor a column of this query", 0, _near(name, known)
                )
        tables = self.relation.tables
        where = f"in {tables}" if self.relation.sources else "here: the query has no FROM"
        return UnknownNameError(f"column '{name}' does not exist {where}", 0, _near(name, self._names()))


def _near(name: str, known: list[str]) -> str | None:
    folded = [n for n in known if n.casefold() == name.casefold()]
    return f"names are case-sensitive: did you mean '{folded[0]}'?" if folded else did_you_mean(name, known)


def fields_of(row: Expression) -> list[Named] | None:
    """What row.* stands for; None if it is no ROW."""
    if row.type.root is not TypeRoot.ROW:
        return None
    return [(n, FieldAccess(t, row, n)) for n, t in zip(row.type.names, row.type.children, strict=True)]


def unique_names(names: Sequence[str], taken: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The names, made unique as Flink does it: the second `a` becomes `a0`, the third `a1`.

    >>> unique_names(["a", "b", "a", "a"])
    ('a', 'b', 'a0', 'a1')
    """
    used = set(taken)
    found = []
    for name in names:
        candidate, attempt = name, 0
        while candidate in used:
            candidate, attempt = f"{name}{attempt}", attempt + 1
        used.add(candidate)
        found.append(candidate)
    return tuple(found)


def unique_fields(fields: Sequence[Field]) -> Schema:
    """A schema of the fields with their names made unique."""
    names = unique_names([f.name for f in fields])
    return Schema(tuple(Field(n, f.type, f.nullable) for n, f in zip(names, fields, strict=True)))
