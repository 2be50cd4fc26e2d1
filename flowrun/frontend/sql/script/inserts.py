"""INSERT INTO and bare SELECT: what a query gives, brought to the columns of the table that it is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flowrun.core.schema import Field, Schema
from flowrun.core.types import VARIANT, DataType, TypeRoot
from flowrun.errors import ExpressionError, did_you_mean
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.queries.from_text import BoundQuery
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.script.statements import ConflictAction, ConflictSyntax, Insert
from flowrun.frontend.sql.script.tables import DeclaredTable
from flowrun.frontend.sql.script.text import ScriptText
from flowrun.frontend.sql.spans import SeveralErrors, Span, error_at
from flowrun.functions.coercion import castable, implicitly_castable
from flowrun.plan.conflicts import OnConflict, ResolveConflicts, last_row_of_each_key
from flowrun.plan.expressions import Cast, ColumnRef, Expression, Literal
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, Sink, TableReference
from flowrun.plan.tables import known_metadata

BindConstant: TypeAlias = Callable[[Slice, DataType], Expression]
"""(text of a constant, the type wanted) → its tree. Raises ExpressionError with a place in the script."""
PRINT = "print"


def insert_sink(
    statement: Insert, made: DeclaredTable, query: BoundQuery, script: ScriptText, name: str, constant: BindConstant
) -> Sink:
    """The sink of INSERT INTO.

    Args:
        statement: the statement.
        made: the table that it writes.
        query: gives the rows.
        script: the text.
        name: of the sink, unique in the script.
        constant: binds values of PARTITION.

    Raises:
        SeveralErrors: the query's columns do not fit the table's.
    """
    table = made.table
    location = script.locate(*statement.table[-1].span)
    hints = NodeHints(
        name=name,
        place=f"inserts.{name}",
        parallelism=made.options.sink_parallelism,
        location=location,
        on_error=made.options.on_error,
        letters_to=made.options.letters_to,
    )
    target = _Target(statement, made, constant)
    projections, node = target.projections(query), query.node
    schema = made.columns.written
    unchanged = node.schema.names == schema.names and all(
        isinstance(p, ColumnRef) and p.index == i for i, p in enumerate(projections)
    )
    if not unchanged or len(node.schema) != len(schema):
        part = NodeHints(name=f"{name}.columns", place=f"inserts.{name}:columns", location=location)
        node = Calc(schema, part, node, projections)
    if statement.conflict is not None:
        place = NodeHints(name=f"{name}.on-conflict", place=f"inserts.{name}:on-conflict", location=location)
        node = without_conflicts(node, statement.conflict, table.primary_key, table.name, place)
    return Sink(schema=schema, hints=hints, input=node, table=table.reference)


def print_sink(node: PlanNode, names: tuple[str, ...], span: Span, script: ScriptText, name: str) -> Sink:
    """The sink of a bare SELECT, whose columns are called `names` as far as these are unique."""
    location = script.locate(*span)
    if node.schema.names != names and len(set(names)) == len(names):
        schema = Schema(tuple(Field(n, f.type, f.nullable) for n, f in zip(names, node.schema, strict=True)))
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
        part = NodeHints(name=f"{name}.columns", place=f"inserts.{name}:columns", location=location)
        node = Calc(schema, part, node, columns)
    hints = NodeHints(name=name, place=f"inserts.{name}", location=location)
    return Sink(schema=node.schema, hints=hints, input=node, table=TableReference(name, PRINT, {"live": "true"}))


class _Target:
    """The columns that an INSERT fills, and how."""

    def __init__(self, statement: Insert, made: DeclaredTable, constant: BindConstant) -> None:
        self._statement = statement
        self._made = made
        self._constant = constant
        self._problems: list[ExpressionError] = []
        self._persisted = made.columns.persisted

    def projections(self, query: BoundQuery) -> tuple[Expression, ...]:
        """One expression over the query's columns for each column that the connector gets."""
        given_columns = query.node.schema
        self._check_metadata()
        constants = self._partition()
        filled = self._filled(constants)
        if self._problems:
            raise SeveralErrors(self._problems)
        if len(filled) != len(given_columns):
            self._wrong_number(filled, given_columns)
        values: dict[str, Expression] = dict(constants)
        for position, (name, given) in enumerate(zip(filled, given_columns, strict=False)):
            place = query.places[position] or self._statement.query.span
            values[name] = self._stored(self._persisted.field(name), given, position, place)
        if self._problems:
            raise SeveralErrors(self._problems)
        stored = {f.name: values[f.name] if f.name in values else self._absent(f) for f in self._persisted}
        return tuple(_converted(stored[f.name], f.type) for f in self._made.columns.written)

    def _check_metadata(self) -> None:
        """Metadata columns that are not VIRTUAL must be some that the connector takes, each once, and convert to what it takes."""
        table, columns = self._made.table, self._made.columns
        place = self._statement.table[-1].span
        connector = self._made.options.connector
        _, known = known_metadata(connector or "")
        taken = f"; connector '{connector}' takes {', '.join(f'{k} {t}' for k, t in known.items())}" if known else ""
        by_key: dict[str, str] = {}
        for column in columns.metadata:
            name, type = column.field.name, column.field.type
            virtual = f"declare it VIRTUAL: {name} … METADATA VIRTUAL"
            if column.written is None:
                self._report(
                    f"the metadata column '{name}' of '{table.name}' cannot be written", place, virtual + taken
                )
            elif column.key in by_key:
                self._report(
                    f"the metadata '{column.key}' of '{table.name}' would be written by two columns, '{by_key[column.key]}' and '{name}'",
                    place,
                    f"declare one of them VIRTUAL: {name} … METADATA FROM '{column.key}' VIRTUAL",
                )
            elif not castable(type, column.written):
                self._report(
                    f"the metadata '{column.key}' of '{table.name}' is written as {column.written}, to which '{name}' of type {type} "
                    "does not convert",
                    place,
                    f"declare it as {column.written}, or VIRTUAL if it is only read",
                )
            by_key.setdefault(column.key, name)

    def _report(self, message: str, span: Span, hint: str | None = None) -> None:
        self._problems.append(error_at(message, span, hint))

    def _partition(self) -> dict[str, Expression]:
        """The columns whose value PARTITION gives."""
        found: dict[str, Expression] = {}
        for name, text in self._statement.partition:
            if name.text not in self._made.columns.partitions:
                hint = (
                    did_you_mean(name.text, self._made.columns.partitions) or "the table is not PARTITIONED BY anything"
                )
                self._report(f"'{name.text}' is no partition column of '{self._made.table.name}'", name.span, hint)
                continue
            try:
                found[name.text] = self._constant(text, self._persisted.field(name.text).type)
            except ExpressionError as error:
                self._problems.append(error)
        return found

    def _filled(self, constants: dict[str, Expression]) -> list[str]:
        """Names of the columns that the query's columns go to, in order."""
        given = self._statement.columns
        if given is None:
            return [n for n in self._persisted.names if n not in constants]
        for position, name in enumerate(given):
            self._check_listed(name, given[:position], constants)
        listed = {n.text for n in given}
        for field in self._persisted:
            if not field.nullable and field.name not in listed and field.name not in constants:
                hint = "add it to the columns, or declare it without NOT NULL"
                self._report(
                    f"column '{field.name}' is NOT NULL and gets no value", self._statement.table[-1].span, hint
                )
        return [n.text for n in given]

    def _check_listed(self, name: Name, before: tuple[Name, ...], constants: dict[str, Expression]) -> None:
        table = self._made.table
        if name.text not in self._persisted:
            if name.text in table.schema:
                virtual = any(c.virtual for c in self._made.syntax.columns if c.name.text == name.text)
                what = "VIRTUAL metadata" if virtual else "computed"
                self._report(f"column '{name.text}' is {what}, it cannot be written", name.span)
            else:
                hint = did_you_mean(name.text, self._persisted.names)
                self._report(f"column '{name.text}' does not exist in '{table.name}'", name.span, hint)
        elif name.text in [n.text for n in before] or name.text in constants:
            self._report(f"column '{name.text}' gets two values", name.span)

    def _wrong_number(self, filled: list[str], given: Schema) -> None:
        table = self._made.table
        hint = f"the query gives {', '.join(str(f) for f in given)}; '{table.name}' takes {', '.join(filled)}"
        if len(given) < len(filled) and self._statement.columns is None:
            hint += f"; name the columns that are meant: INSERT INTO {table.name} ({', '.join(filled[: len(given)])}) …"
        message = f"'{table.name}' takes {len(filled)} columns, the query gives {len(given)}"
        self._report(message, self._statement.query.span, hint)

    def _stored(self, wanted: Field, given: Field, position: int, place: Span) -> Expression:
        column = ColumnRef(given.type, position, given.name)
        if given.type == wanted.type:
            return column
        if given.type.root is TypeRoot.NULL:
            return Literal(wanted.type, None)
        if not implicitly_castable(given.type, wanted.type):
            what = f"column {position + 1} of the query, '{given.name}', is {given.type}"
            name = "…" if given.name.startswith("EXPR$") else given.name
            self._report(
                f"{what}, but '{wanted.name}' of '{self._made.table.name}' is {wanted.type}",
                place,
                f"convert it: {f'JSON_STRING({name})' if given.type == VARIANT else f'CAST({name} AS {wanted.type})'}",
            )
        return Cast(wanted.type, column)

    @staticmethod
    def _absent(field: Field) -> Expression:
        return Literal(field.type, None)


def _converted(value: Expression, type: DataType) -> Expression:
    """A value of a metadata column in the type that the connector takes."""
    if value.type == type:
        return value
    return Literal(type, None) if isinstance(value, Literal) and value.value is None else Cast(type, value)


def without_conflicts(
    node: PlanNode, conflict: ConflictSyntax, primary_key: tuple[str, ...], table: str, hints: NodeHints
) -> PlanNode:
    """The rows with one a primary key.

    DO DEDUPLICATE is the LAST_VALUE of whole rows, by the key: what was taken back gives way to what came before it. The others compare
    rows when the watermark advances.

    Args:
        node: columns are those of the table.
        conflict: what the statement says.
        primary_key: of the table.
        table: its name.
        hints: of what remembers the rows.

    Raises:
        ExpressionError: the table has no primary key.
    """
    if not primary_key:
        hint = "declare PRIMARY KEY (…) NOT ENFORCED on the table, or leave ON CONFLICT out"
        raise error_at(f"ON CONFLICT needs a PRIMARY KEY, which '{table}' does not have", conflict.span, hint)
    keys = tuple(node.schema.index(n) for n in primary_key)
    if conflict.action is ConflictAction.DEDUPLICATE:
        return last_row_of_each_key(node, keys, hints)
    return ResolveConflicts(node.schema, hints, node, keys, OnConflict[conflict.action.name], table)
