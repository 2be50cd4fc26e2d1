"""INSERT INTO and bare SELECT: what a query gives, brought to the columns of the table that it is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ExpressionError, did_you_mean
from flowrun.frontend.sql.insert_conflicts import without_conflicts
from flowrun.frontend.sql.query import BoundQuery
from flowrun.frontend.sql.script_problems import StatementErrors, problem
from flowrun.frontend.sql.script_text import ScriptText
from flowrun.frontend.sql.statement_tokens import Slice
from flowrun.frontend.sql.statements import Insert
from flowrun.frontend.sql.syntax import Name, Span
from flowrun.frontend.sql.tables import DeclaredTable
from flowrun.functions.coercion import implicitly_castable
from flowrun.plan.expressions import Cast, ColumnRef, Expression, Literal
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, Sink, TableReference

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
        StatementErrors: the query's columns do not fit the table's.
    """
    table = made.table
    location = script.locate(*statement.table[-1].span)
    hints = NodeHints(
        name=name,
        place=f"inserts.{name}",
        parallelism=made.options.sink_parallelism,
        location=location,
        on_error=made.options.on_error,
    )
    target = _Target(statement, made, constant)
    projections, node = target.projections(query), query.node
    schema = table.physical
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

    def projections(self, query: BoundQuery) -> tuple[Expression, ...]:
        """One expression over the query's columns for each column of the table."""
        table, given_columns = self._made.table, query.node.schema
        for name in self._made.columns.metadata:
            hint = f"declare it VIRTUAL: {name} … METADATA VIRTUAL"
            self._report(
                f"the metadata column '{name}' of '{table.name}' cannot be written",
                self._statement.table[-1].span,
                hint,
            )
        constants = self._partition()
        filled = self._filled(constants)
        if self._problems:
            raise StatementErrors(self._problems)
        if len(filled) != len(given_columns):
            self._wrong_number(filled, given_columns)
        values: dict[str, Expression] = dict(constants)
        for position, (name, given) in enumerate(zip(filled, given_columns, strict=False)):
            place = query.places[position] or self._statement.query.span
            values[name] = self._stored(table.physical.field(name), given, position, place)
        if self._problems:
            raise StatementErrors(self._problems)
        return tuple(values[f.name] if f.name in values else self._absent(f) for f in table.physical)

    def _report(self, message: str, span: Span, hint: str | None = None) -> None:
        self._problems.append(problem(message, span, hint))

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
                found[name.text] = self._constant(text, self._made.table.physical.field(name.text).type)
            except ExpressionError as error:
                self._problems.append(error)
        return found

    def _filled(self, constants: dict[str, Expression]) -> list[str]:
        """Names of the columns that the query's columns go to, in order."""
        physical = self._made.table.physical
        given = self._statement.columns
        if given is None:
            return [n for n in physical.names if n not in constants]
        for position, name in enumerate(given):
            self._check_listed(name, given[:position], constants)
        listed = {n.text for n in given}
        for field in physical:
            if not field.nullable and field.name not in listed and field.name not in constants:
                hint = "add it to the columns, or declare it without NOT NULL"
                self._report(
                    f"column '{field.name}' is NOT NULL and gets no value", self._statement.table[-1].span, hint
                )
        return [n.text for n in given]

    def _check_listed(self, name: Name, before: tuple[Name, ...], constants: dict[str, Expression]) -> None:
        table = self._made.table
        if name.text not in table.physical:
            if name.text in table.schema:
                self._report(f"column '{name.text}' is computed, it cannot be written", name.span)
            else:
                hint = did_you_mean(name.text, table.physical.names)
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
            self._report(
                f"{what}, but '{wanted.name}' of '{self._made.table.name}' is {wanted.type}",
                place,
                f"convert it: CAST({'…' if given.name.startswith('EXPR$') else given.name} AS {wanted.type})",
            )
        return Cast(wanted.type, column)

    @staticmethod
    def _absent(field: Field) -> Expression:
        return Literal(field.type, None)
