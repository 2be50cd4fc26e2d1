"""Sinks of the document as plan nodes: what is written, brought to the columns of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.errors import Location, OptionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Named, Section
from flowrun.frontend.yaml.columns import find_column, read_schema
from flowrun.frontend.yaml.hints import node_hints, part_hints
from flowrun.frontend.yaml.tables.metadata import WrittenColumn, written_columns
from flowrun.frontend.yaml.tables.tables import TableReader
from flowrun.functions.coercion import implicitly_castable
from flowrun.plan.expressions import Cast, ColumnRef, Expression
from flowrun.plan.nodes import Calc, NodeHints, PlanNode, Sink
from flowrun.plan.tables import TableRole, create_sink


class SinkReader:
    """Turns checked sections of `sinks` into nodes, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics, tables: TableReader) -> None:
        self._diagnostics = diagnostics
        self._tables = tables

    def read(self, name: str, section: Section, node: PlanNode | None, at: Location) -> Sink | None:
        """The sink that writes `node`; with None, only the table itself is checked."""
        hints = node_hints("sinks", name, section, at)
        declared = self._declared(section)
        given = None if node is None else node.schema
        metadata = written_columns(section, given, declared, self._diagnostics)
        schema = declared if section.has("schema") else _without(given, section)
        partition_keys = self._partition_keys(section, schema)
        if partition_keys:
            self._tables.check_partitions(section)
        found = self._tables.read(name, section, TableRole.SINK, partition_keys or ())
        if not self._tables.check_primary_key(section, schema):
            return None
        projected = self._projected(section, schema, metadata, node, hints)
        if found is None or projected is None or partition_keys is None:
            return None
        table, options = found
        written, brought = projected
        table = replace(table, written_metadata={c.name: c.key for c in metadata or ()})
        try:
            create_sink(table, written, unbounded=False)
        except OptionError as error:
            options.report(error, section, self._diagnostics)
            return None
        return Sink(schema=written, hints=hints, input=brought, table=table)

    def _declared(self, section: Section) -> Schema | None:
        if not section.has("schema") or section.broken("schema"):
            return None
        return read_schema(section.named("schema"), self._diagnostics)

    def _projected(
        self,
        section: Section,
        schema: Schema | None,
        metadata: tuple[WrittenColumn, ...] | None,
        node: PlanNode | None,
        hints: NodeHints,
    ) -> tuple[Schema, PlanNode] | None:
        """What is written, the columns and then the metadata, and the input brought to it; None if that cannot be, which is reported."""
        if schema is None or node is None:
            return None
        if section.has("schema"):
            stored = self._conversions(section.named("schema"), schema, node)
        else:
            stored = tuple(ColumnRef(f.type, node.schema.index(f.name), f.name) for f in schema)
        if stored is None or metadata is None:
            return None
        taken = [(c.type, node.schema.field(c.name), node.schema.index(c.name)) for c in metadata]
        fields = (Field(field.name, type, field.nullable) for type, field, _ in taken)
        written = Schema((*schema.fields, *fields))
        values = (_converted(ColumnRef(field.type, i, field.name), type) for type, field, i in taken)
        projections = (*stored, *values)
        if node.schema.names == written.names and all(isinstance(p, ColumnRef) for p in projections):
            return written, node
        return written, Calc(schema=written, hints=part_hints(hints, "schema"), input=node, projections=projections)

    def _conversions(
        self, columns: Mapping[str, Named], schema: Schema, node: PlanNode
    ) -> tuple[Expression, ...] | None:
        projections: list[Expression] = []
        for field in schema:
            key = columns[field.name].key
            position = find_column(node.schema, key, "the input", self._diagnostics)
            if position is None:
                continue
            actual = node.schema.types[position]
            column = ColumnRef(actual, position, field.name)
            if actual == field.type:
                projections.append(column)
            elif implicitly_castable(actual, field.type):
                projections.append(Cast(field.type, column))
            else:
                self._diagnostics.error(
                    f"column '{field.name}' is {actual} in the input and cannot become {field.type} by itself",
                    columns[field.name].location,
                    hint=f"convert it in a step: select: [CAST({field.name} AS {field.type}) AS {field.name}]",
                )
        return tuple(projections) if len(projections) == len(schema) else None

    def _partition_keys(self, section: Section, schema: Schema | None) -> tuple[str, ...] | None:
        scalars = section.scalars("partition_by")
        if schema is None:
            return tuple(s.text for s in scalars)
        found = [find_column(schema, s, "the sink", self._diagnostics) for s in scalars]
        return None if None in found else tuple(s.text for s in scalars)


def _without(given: Schema | None, section: Section) -> Schema | None:
    """The columns of the input that are not metadata."""
    if given is None:
        return None
    metadata = section.named("metadata")
    return Schema(tuple(f for f in given if f.name not in metadata))


def _converted(column: ColumnRef, type: DataType) -> Expression:
    """A column in the type that the connector takes."""
    return column if column.type == type else Cast(type, column)
