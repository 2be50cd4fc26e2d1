"""The columns of CREATE TABLE: types, computed and metadata columns, keys and watermarks, each checked at its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import OnDisorder
from flowrun.core.type_parser import TypeTextError, parse_type
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ExpressionError, did_you_mean
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import is_mark, is_word, scan
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.script.statements import ColumnKind, ColumnSyntax, CreateTable, WatermarkSyntax
from flowrun.frontend.sql.spans import Span, error_at
from flowrun.functions.coercion import castable
from flowrun.plan.expressions import Call, Cast, ColumnRef, Expression, Literal, columns_used, substitute
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.folding import fold_constants
from flowrun.plan.nodes import WatermarkKind, WatermarkSpec
from flowrun.plan.tables import scanned_name

BindExpression: TypeAlias = Callable[[Slice, Schema], Expression]
"""(text with its place, the columns it may read) → its tree. Raises ExpressionError with a place in the script."""


@record
class MetadataColumn:
    """A metadata column that is not VIRTUAL.

    Attributes:
        field: as declared.
        key: of the metadata.
        readable: whether the connector fills it.
        written: the type that the connector takes; None: it takes no such metadata.
    """

    field: Field
    key: str
    readable: bool
    written: DataType | None


@record
class TableColumns:
    """The columns of a table.

    Attributes:
        schema: all that queries see, in declared order.
        physical: those that the connector stores.
        scanned: what is asked of the connector: the physical columns, then one a metadata key.
        keys: of the metadata columns of `scanned`, by name.
        projections: each column of `schema` over `scanned`.
        persisted: what an INSERT gives values, in declared order: the physical columns, and metadata columns that are not VIRTUAL.
        metadata: the latter.
        watermark: without idle timeout.
    """

    schema: Schema
    physical: Schema
    scanned: Schema
    keys: Mapping[str, str]
    projections: tuple[Expression, ...]
    persisted: Schema
    metadata: tuple[MetadataColumn, ...]
    primary_key: tuple[str, ...]
    partitions: tuple[str, ...]
    watermark: WatermarkSpec | None

    @property
    def written(self) -> Schema:
        """What the connector gets: the physical columns, then metadata in the types that it takes."""
        metadata = (Field(c.field.name, c.written, c.field.nullable) for c in self.metadata if c.written is not None)
        return Schema((*self.physical.fields, *metadata))


class ColumnReader:
    """Reads the columns of one table; problems are collected, so that all of them are seen at once.

    Args:
        bind: binds expressions.
        readable: metadata that the connector fills, by key.
        writable: metadata that it takes, by key.
        problems: receives what is wrong.
    """

    def __init__(
        self,
        bind: BindExpression,
        readable: Mapping[str, DataType],
        writable: Mapping[str, DataType],
        problems: list[ExpressionError],
    ) -> None:
        self._bind = bind
        self._readable = readable
        self._writable = writable
        self._problems = problems

    def read(self, table: CreateTable) -> TableColumns | None:
        """The columns; None if something is wrong, which is reported."""
        before = len(self._problems)
        self._check_names(table.columns)
        key = self._known_columns(table, table.primary_key.columns if table.primary_key else (), "the primary key")
        partitions = self._known_columns(table, table.partitions, "PARTITIONED BY")
        if table.distribution is not None:
            self._known_columns(table, table.distribution.columns, "DISTRIBUTED BY")
        stored = self._stored(table, key)
        if len(self._problems) > before:
            return None
        physical = Schema(
            tuple(f for c, f in zip(table.columns, stored, strict=True) if f and c.kind is ColumnKind.PHYSICAL)
        )
        scanned, keys, found = self._scanned(table.columns, stored, physical)
        computed = self._computed(table.columns, found) if found is not None else None
        if computed is None:
            return None
        schema = Schema(tuple(Field(c.name.text, computed[c.name.text].type, _nullable(c, key)) for c in table.columns))
        projections = tuple(computed[n] for n in schema.names)
        watermark = None
        if table.watermark is not None:
            watermark = self._watermark(table.watermark, schema, projections)
        if len(self._problems) > before:
            return None
        return TableColumns(
            schema=schema,
            physical=physical,
            scanned=scanned,
            keys=keys,
            projections=projections,
            persisted=Schema(tuple(f for c, f in zip(table.columns, stored, strict=True) if f and not c.virtual)),
            metadata=tuple(
                self._written(c, f) for c, f in zip(table.columns, stored, strict=True) if f and _is_written(c)
            ),
            primary_key=key,
            partitions=partitions,
            watermark=watermark,
        )

    # -- problems ------------------------------------------------------------------------------------------------------------

    def _report(self, message: str, span: Span, hint: str | None = None) -> None:
        self._problems.append(error_at(message, span, hint))

    def _try_bind(self, text: Slice, schema: Schema) -> Expression | None:
        try:
            return self._bind(text, schema)
        except ExpressionError as error:
            self._problems.append(error)
            return None

    def _check_names(self, columns: Sequence[ColumnSyntax]) -> None:
        seen: set[str] = set()
        for column in columns:
            if column.name.text in seen:
                self._report(f"column '{column.name.text}' is declared twice", column.name.span, "rename one of them")
            seen.add(column.name.text)

    def _known_columns(self, table: CreateTable, names: Sequence[Name], where: str) -> tuple[str, ...]:
        stored = [c.name.text for c in table.columns if c.kind is ColumnKind.PHYSICAL]
        for position, name in enumerate(names):
            if name.text in [n.text for n in names[:position]]:
                self._report(f"column '{name.text}' stands twice in {where}", name.span)
            elif name.text not in stored:
                other = any(c.name.text == name.text for c in table.columns)
                message = (
                    f"column '{name.text}' in {where} is not a physical column"
                    if other
                    else f"column '{name.text}' in {where} does not exist"
                )
                self._report(message, name.span, None if other else did_you_mean(name.text, stored))
        return tuple(n.text for n in names)

    # -- columns -------------------------------------------------------------------------------------------------------------

    def _stored(self, table: CreateTable, key: Sequence[str]) -> list[Field | None]:
        """The columns that have a type, None for computed ones and for those whose type is wrong."""
        found: list[Field | None] = []
        for column in table.columns:
            type = None if column.type is None else self._type(column.type)
            found.append(None if type is None else Field(column.name.text, type, _nullable(column, key)))
        return found

    def _type(self, text: Slice) -> DataType | None:
        try:
            return parse_type(text.text)
        except TypeTextError as error:
            self._report(
                error.reason, (text.start + error.offset, text.start + error.offset + error.length), error.hint
            )
            return None

    def _written(self, column: ColumnSyntax, field: Field) -> MetadataColumn:
        key = (column.key or column.name).text
        return MetadataColumn(field, key, key in self._readable, self._writable.get(key))

    def _scanned(
        self, columns: Sequence[ColumnSyntax], stored: Sequence[Field | None], physical: Schema
    ) -> tuple[Schema, dict[str, str], dict[str, Expression] | None]:
        """What is asked of the connector, keys of metadata in it, and the columns that have a type over it."""
        fields = list(physical.fields)
        found: dict[str, Expression] = {f.name: ColumnRef(f.type, i, f.name) for i, f in enumerate(fields)}
        names: dict[str, str] = {}
        complete = True
        for column, field in zip(columns, stored, strict=True):
            if column.kind is not ColumnKind.METADATA or field is None:
                continue
            key = column.key or column.name
            delivered = self._delivered(column, field)
            if delivered is None:
                complete = False
                continue
            if key.text not in names:
                names[key.text] = scanned_name(key.text, {*physical.names, *names.values()})
                fields.append(Field(names[key.text], delivered))
            position = len(physical) + list(names).index(key.text)
            value: Expression = ColumnRef(delivered, position, names[key.text])
            found[field.name] = value if delivered == field.type else Cast(field.type, value)
        return Schema(tuple(fields)), {n: key for key, n in names.items()}, found if complete else None

    def _delivered(self, column: ColumnSyntax, field: Field) -> DataType | None:
        """The type in which a metadata column is read; of one that can only be written its own. None: what is wrong is reported."""
        key = column.key or column.name
        delivered = self._readable.get(key.text)
        if delivered is None and _is_written(column) and key.text in self._writable:
            return field.type
        if delivered is None:
            known = [*self._readable, *(k for k in self._writable if not column.virtual and k not in self._readable)]
            if known:
                hint = did_you_mean(key.text, known)
            else:
                hint = "the connector has no metadata columns" + (" that can be read" if self._writable else "")
            self._report(f"there is no metadata '{key.text}'", key.span, hint)
        elif not castable(delivered, field.type):
            self._report(
                f"the metadata '{key.text}' is {delivered}, which does not convert to {field.type}", column.span
            )
            return None
        return delivered

    def _computed(self, columns: Sequence[ColumnSyntax], found: dict[str, Expression]) -> dict[str, Expression] | None:
        """All columns by name, over what is scanned; a computed column may read those that come before it."""
        readable = [(c.name.text, found[c.name.text].type) for c in columns if c.name.text in found]
        complete = True
        for column in columns:
            if column.expression is None:
                continue
            bound = self._try_bind(column.expression, Schema.from_pairs(readable))
            if bound is None:
                complete = False
                continue
            if bound.type.root is TypeRoot.NULL:
                self._report("NULL alone has no type", column.expression.span, "write CAST(NULL AS some type)")
                complete = False
                continue
            values = tuple(found[n] for n, _ in readable)
            if any(not is_deterministic(values[i]) and isinstance(values[i], Call) for i in columns_used(bound)):
                self._report(
                    f"column '{column.name.text}' reads a computed column whose value differs each time it is computed",
                    column.expression.span, "compute it in a view",
                )  # fmt: skip
                complete = False
            found[column.name.text] = substitute(bound, values)
            readable.append((column.name.text, bound.type))
        return found if complete else None

    # -- watermarks ----------------------------------------------------------------------------------------------------------

    def _watermark(
        self, mark: WatermarkSyntax, schema: Schema, projections: tuple[Expression, ...]
    ) -> WatermarkSpec | None:
        column = mark.column[0]
        if len(mark.column) > 1:
            dotted = ".".join(n.text for n in mark.column)
            span = (mark.column[0].span[0], mark.column[-1].span[1])
            self._report(
                "the event time must be a column of the table, not a field in one", span,
                f"compute one: event_time AS {dotted}, WATERMARK FOR event_time AS …",
            )  # fmt: skip
            return None
        if column.text not in schema:
            self._report(f"column '{column.text}' does not exist", column.span, did_you_mean(column.text, schema.names))
            return None
        position = schema.index(column.text)
        type = schema.types[position]
        if not type.is_timestamp:
            self._report(
                f"the event time must be TIMESTAMP or TIMESTAMP_LTZ, but '{column.text}' is {type}", column.span,
                f"compute one: event_time AS {_conversion(column.text, type)}, WATERMARK FOR event_time AS …",
            )  # fmt: skip
            return None
        if _is_source_watermark(mark.expression):
            return WatermarkSpec(WatermarkKind.SOURCE, projections[position], column=column.text)
        bound = self._try_bind(mark.expression, schema)
        if bound is None:
            return None
        if not bound.type.is_timestamp:
            self._report(
                f"the watermark must be TIMESTAMP or TIMESTAMP_LTZ, but this is {bound.type}", mark.expression.span,
                f"for rows that are up to 5 seconds late: {column.text} - INTERVAL '5' SECOND",
            )  # fmt: skip
            return None
        spec = WatermarkSpec(
            WatermarkKind.MONOTONOUS, projections[position], column=column.text, on_disorder=OnDisorder.IGNORE
        )
        delay = _delay(bound, position)
        if delay is None:
            return replace(spec, kind=WatermarkKind.PUNCTUATED, punctuation=substitute(bound, projections))
        return spec if delay == 0 else replace(spec, kind=WatermarkKind.BOUNDED, delay_ms=delay)


def _is_written(column: ColumnSyntax) -> bool:
    return column.kind is ColumnKind.METADATA and not column.virtual


def _is_source_watermark(text: Slice) -> bool:
    tokens = list(scan(text.text))
    return (
        len(tokens) == 3
        and is_word(tokens[0], "SOURCE_WATERMARK")
        and is_mark(tokens[1], "(")
        and is_mark(tokens[2], ")")
    )


def _delay(expression: Expression, column: int) -> int | None:
    """How far an expression stays behind the column, ms: 0 for the column itself; None: it is anything else."""
    expression = fold_constants(expression)
    if isinstance(expression, ColumnRef):
        return 0 if expression.index == column else None
    if not isinstance(expression, Call) or expression.function != "-" or len(expression.arguments) != 2:
        return None
    left, right = expression.arguments
    if isinstance(left, Cast) and left.type.is_timestamp and left.operand.type.is_timestamp:
        left = left.operand
    if not isinstance(left, ColumnRef) or left.index != column or not isinstance(right, Literal):
        return None
    if right.type.root is not TypeRoot.INTERVAL_DAY_TIME or right.value is None or right.value < 0:
        return None
    return int(right.value)


def _nullable(column: ColumnSyntax, key: Sequence[str]) -> bool:
    return column.nullable and column.name.text not in key


def _conversion(name: str, type: DataType) -> str:
    if type.is_numeric:
        return f"TO_TIMESTAMP_LTZ({name}, 3)"
    return f"TO_TIMESTAMP({name})" if type.is_character else f"CAST({name} AS TIMESTAMP(3))"
