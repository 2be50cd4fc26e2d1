"""Sinks of the document as plan nodes: what is written, brought to the columns of the sink."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.core.schema import Schema
from flowrun.errors import Location, OptionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Named, Section
from flowrun.frontend.yaml.columns import find_column, read_schema
from flowrun.frontend.yaml.hints import node_hints, part_hints
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
        schema, projected = self._sink_input(section, node, hints)
        partition_keys = self._partition_keys(section, schema)
        if partition_keys:
            self._tables.check_partitions(section)
        found = self._tables.read(name, section, TableRole.SINK, partition_keys or ())
        if not self._tables.check_primary_key(section, schema):
            return None
        if found is None or projected is None or schema is None or partition_keys is None:
            return None
        table, given = found
        try:
            create_sink(table, schema, unbounded=False)
        except OptionError as error:
            given.report(error, section, self._diagnostics)
            return None
        return Sink(schema=schema, hints=hints, input=projected, table=table)

    def _sink_input(
        self, section: Section, node: PlanNode | None, hints: NodeHints
    ) -> tuple[Schema | None, PlanNode | None]:
        """The columns that are written, and the input brought to them."""
        if not section.has("schema"):
            return (None, None) if node is None else (node.schema, node)
        schema = None if section.broken("schema") else read_schema(section.named("schema"), self._diagnostics)
        if schema is None or node is None:
            return schema, None
        projections = self._conversions(section.named("schema"), schema, node)
        if projections is None:
            return schema, None
        identity = node.schema.names == schema.names and all(isinstance(p, ColumnRef) for p in projections)
        if identity:
            return schema, node
        return schema, Calc(schema=schema, hints=part_hints(hints, "schema"), input=node, projections=projections)

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
