"""Sources of the document as scans: columns, computed columns, watermarks."""

from __future__ import annotations

from dataclasses import replace

from flowrun.connectors.registry import connector_named
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import OnDisorder
from flowrun.errors import Location, OptionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.columns import find_column, read_schema
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.hints import node_hints
from flowrun.frontend.yaml.tables.metadata import ReadColumns, read_columns
from flowrun.frontend.yaml.tables.options import GivenOptions
from flowrun.frontend.yaml.tables.tables import TableReader
from flowrun.plan.expressions import Expression, columns_used, substitute
from flowrun.plan.fallibility import is_deterministic
from flowrun.plan.nodes import Scan, TableReference, WatermarkKind, WatermarkSpec
from flowrun.plan.tables import TableRole, create_source, reading_role, usable_connector, watermark_problem

_KINDS_WITHOUT_DELAY = (WatermarkKind.MONOTONOUS, WatermarkKind.PUNCTUATED, WatermarkKind.SOURCE, WatermarkKind.NONE)


class SourceReader:
    """Turns checked sections of `sources` into nodes, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics, expressions: ExpressionReader, tables: TableReader) -> None:
        self._diagnostics = diagnostics
        self._expressions = expressions
        self._tables = tables

    def read(self, name: str, section: Section, at: Location) -> Scan | None:
        """The scan of a source; None if its columns are not known, which has been reported."""
        partition_keys = tuple(s.text for s in section.scalars("partition_by"))
        role = reading_role(section.text("connector") or "")
        found = self._tables.read(name, section, role, partition_keys)
        self._tables.check_partitions(section)
        physical = self._physical(section)
        if physical is None:
            return None
        for key in section.scalars("partition_by"):
            if find_column(physical, key, "the schema", self._diagnostics) is None:
                found = None
        if not self._tables.check_primary_key(section, physical):
            found = None
        read = read_columns(section, physical, self._diagnostics)
        if read is None:
            return None
        columns, projections = self._computed(section, read)
        watermark = self._watermark(section, columns, projections)
        if found is not None:
            table, given = found
            sent = watermark is not None and watermark.kind is WatermarkKind.SOURCE
            asked = connector_named(table.connector).uses_event_time and watermark is not None
            time = watermark.time if asked and watermark else None
            table = replace(table, metadata=read.keys, source_watermarks=sent, event_time=time)
            if role is TableRole.SOURCE:
                self._check_source(name, table, given, section, read.scanned)
        else:
            table = TableReference(name, section.text("connector") or "", {})
        return Scan(
            schema=columns,
            hints=node_hints("sources", name, section, at),
            table=table,
            physical=read.scanned,
            projections=projections,
            watermark=watermark,
            declared=read.scanned,
        )

    def _check_source(
        self, name: str, table: TableReference, given: GivenOptions, section: Section, scanned: Schema
    ) -> None:
        try:
            source = create_source(table, scanned)
        except OptionError as error:
            given.report(error, section, self._diagnostics)
        else:
            self._check_layout(name, section, scanned, source.schema)

    def _check_layout(self, name: str, section: Section, declared: Schema, actual: Schema) -> None:
        if actual.names != declared.names:
            self._diagnostics.error(
                f"source '{name}' delivers the columns {', '.join(actual.names)}, not {', '.join(declared.names)}",
                section.at("schema"),
            )

    def _physical(self, section: Section) -> Schema | None:
        if section.has("schema"):
            return None if section.broken("schema") else read_schema(section.named("schema"), self._diagnostics)
        connector_name = section.text("connector")
        if connector_name is None:
            return None
        try:
            connector = usable_connector(connector_name, reading_role(connector_name))
        except OptionError:
            return None  # reported with the table
        if connector.default_schema is None:
            self._diagnostics.error(
                f"a source with connector '{connector_name}' needs the key 'schema'",
                section.location,
                hint="schema: {id: BIGINT, name: STRING}",
            )
        return connector.default_schema

    def _computed(self, section: Section, read: ReadColumns) -> tuple[Schema, tuple[Expression, ...]]:
        """All columns of the scan, and each as an expression over what is asked of the connector."""
        fields, projections = list(read.schema.fields), list(read.projections)
        for name, named in section.named("computed").items():
            if name in read.schema:
                other = "metadata" if name in section.named("metadata") else "in the schema"
                self._diagnostics.error(
                    f"column '{name}' is computed and {other}", named.location, hint="rename one of them"
                )
                continue
            if not isinstance(named.value, YamlScalar):
                continue
            bound = self._expressions.scalar(named.value, Schema(tuple(fields)))
            if bound is None:
                continue
            if self._repeats_random(bound, projections, len(read.schema)):
                self._diagnostics.error(
                    f"column '{name}' reads a computed column whose value differs each time it is computed",
                    named.value.location,
                    hint="compute it in a step of its own",
                )
                continue
            fields.append(Field(name, bound.type))
            projections.append(substitute(bound, tuple(projections)))
        return Schema(tuple(fields)), tuple(projections)

    def _repeats_random(self, bound: Expression, projections: list[Expression], stored: int) -> bool:
        return any(not is_deterministic(projections[i]) for i in columns_used(bound) if i >= stored)

    def _watermark(
        self, section: Section, columns: Schema, projections: tuple[Expression, ...]
    ) -> WatermarkSpec | None:
        mark = section.section("watermark")
        if mark is None:
            return None
        kind = WatermarkKind(mark.text("type") or "bounded")
        self._check_watermark_keys(mark, kind)
        if kind is WatermarkKind.SOURCE:
            self._check_sender(section, mark)
        if kind is WatermarkKind.NONE and not mark.has("column") and not mark.has("time"):
            return None
        time = self._event_time(mark, columns, projections)
        punctuation = None
        if kind is WatermarkKind.PUNCTUATED:
            expression = mark.scalar("expression")
            if expression is not None:
                punctuation = self._timestamp(expression, columns, projections)
            if punctuation is None:
                return None
        if time is None:
            return None
        column = mark.scalar("column")
        return WatermarkSpec(
            kind=kind,
            time=time,
            delay_ms=mark.integer("delay") or 0,
            punctuation=punctuation,
            idle_timeout_ms=mark.integer("idle_timeout"),
            column=column.text if column is not None else None,
            on_disorder=OnDisorder(mark.text("on_disorder") or "fail"),
        )

    def _check_sender(self, section: Section, mark: Section) -> None:
        what = "a watermark of type 'source'"
        problem = watermark_problem(section.text("connector") or "", what, "type: bounded, with a delay")
        if problem is not None:
            self._diagnostics.error(problem.message, mark.value_at("type"), hint=problem.hint)

    def _check_watermark_keys(self, mark: Section, kind: WatermarkKind) -> None:
        """Keys that mean nothing for this kind are errors, not silently ignored."""
        if kind in _KINDS_WITHOUT_DELAY and mark.has("delay"):
            self._diagnostics.error(
                f"a watermark of type '{kind.value}' has no delay", mark.at("delay"), hint="use type: bounded"
            )
        if kind is WatermarkKind.NONE and mark.has("idle_timeout"):
            self._diagnostics.error(
                "a watermark of type 'none' has no idle_timeout", mark.at("idle_timeout"), hint="nothing waits for it"
            )
        if kind is not WatermarkKind.MONOTONOUS and mark.has("on_disorder"):
            self._diagnostics.error(
                "'on_disorder' is for watermarks of type 'monotonous'",
                mark.at("on_disorder"),
                hint="use type: monotonous",
            )
        if kind is not WatermarkKind.PUNCTUATED and mark.has("expression"):
            self._diagnostics.error(
                "'expression' is for watermarks of type 'punctuated'",
                mark.at("expression"),
                hint="use type: punctuated",
            )
        if kind is WatermarkKind.PUNCTUATED and not mark.has("expression"):
            self._diagnostics.error(
                "a watermark of type 'punctuated' needs the key 'expression'",
                mark.location,
                hint="an expression that is the watermark a row carries, or NULL",
            )
        if mark.has("column") and mark.has("time"):
            self._diagnostics.error(
                "a watermark has either 'column' or 'time'", mark.at("time"), hint="remove one of them"
            )
        elif kind is not WatermarkKind.NONE and not mark.has("column") and not mark.has("time"):
            self._diagnostics.error(
                "watermark needs the key 'column'", mark.location, hint="the TIMESTAMP column that holds the event time"
            )

    def _event_time(self, mark: Section, columns: Schema, projections: tuple[Expression, ...]) -> Expression | None:
        column, time = mark.scalar("column"), mark.scalar("time")
        if column is None:
            return None if time is None else self._timestamp(time, columns, projections)
        position = find_column(columns, column, "the source", self._diagnostics)
        if position is None:
            return None
        if not columns.types[position].is_timestamp:
            self._diagnostics.error(
                f"event time needs a TIMESTAMP or TIMESTAMP_LTZ column, but '{column.text}' is {columns.types[position]}",
                column.location,
                hint="declare it as TIMESTAMP(3), or compute one: computed: {ts: TO_TIMESTAMP_LTZ(millis, 3)}",
            )
            return None
        return projections[position]

    def _timestamp(self, scalar: YamlScalar, columns: Schema, projections: tuple[Expression, ...]) -> Expression | None:
        bound = self._expressions.scalar(scalar, columns)
        if bound is None:
            return None
        if not bound.type.is_timestamp:
            self._diagnostics.error(
                f"this must be a TIMESTAMP or TIMESTAMP_LTZ, but it is {bound.type}", scalar.location
            )
            return None
        return substitute(bound, projections)
