"""The keyed part of a step: key_by, window and aggregate as one plan node, with its late rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import timestamp, timestamp_ltz
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.expressions.aggregate_binder import AggregateBinding
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.queries import QueryReader
from flowrun.frontend.yaml.stages import Stages
from flowrun.frontend.yaml.times import has_event_time
from flowrun.frontend.yaml.window_columns import with_windows
from flowrun.frontend.yaml.windows import WindowReader
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.nodes import (
    WINDOW_END,
    WINDOW_START,
    Calc,
    NodeHints,
    PlanNode,
    Scan,
    SideOutput,
    Union,
    WindowAggregate,
    window_aggregate_schema,
)
from flowrun.plan.relational import WINDOW_TIME
from flowrun.plan.traits import window_time
from flowrun.plan.windows import SessionWindow, window_zone


@record
class Aggregation:
    """An aggregation's results and, if it has one, its late output: the step's input rows."""

    node: PlanNode
    late: PlanNode | None


class AggregationReader:
    """Turns `key_by`, `window` and `aggregate` of a step into nodes, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics, queries: QueryReader, expressions: ExpressionReader) -> None:
        self._diagnostics = diagnostics
        self._queries = queries
        self._expressions = expressions
        self._windows = WindowReader(diagnostics, expressions)

    def read(
        self, section: Section, window: Section, node: PlanNode | None, hints_of: Callable[[str], NodeHints]
    ) -> Aggregation | None:
        """The aggregation over `node`; None if it cannot be built, which is reported.

        Args:
            section: the step.
            window: its window.
            node: the rows to aggregate; None if they are not known.
            hints_of: hints of the node that does a part of the step: `window`, `keys` or `results`.
        """
        if node is None:
            self._windows.read(window, None)
            return None
        parts = self._windows.read(window, node.schema)
        keyed = self.keys(section, node, hints_of("keys"))
        if parts is not None and parts.needs_event_time and not has_event_time(node):
            self._report_missing_time(window, node)
        if parts is None or keyed is None or section.broken("aggregate"):
            return None
        grouped, keys = keyed
        hints = hints_of("window")
        if not keys:
            self.check_one_group(section, hints, "a window")
            hints = replace(hints, parallelism=1)
        bounds = window_aggregate_schema(grouped.schema, (), parts.window, ()).names
        if not self._bounds_are_free(section, grouped.schema, keys, bounds):
            return None
        texts = section.scalars("aggregate")
        timed = [t for t in texts if t.text.strip() == WINDOW_TIME and WINDOW_END in bounds]
        binding = self._expressions.aggregates(
            [t for t in texts if t not in timed] or texts, grouped.schema, keys, bounds
        )
        if binding is None:
            return None
        aggregate = WindowAggregate(
            schema=window_aggregate_schema(grouped.schema, keys, parts.window, binding.calls),
            hints=hints,
            input=grouped,
            keys=keys,
            window=parts.window,
            aggregates=binding.calls,
            domain=parts.domain,
            allowed_lateness_ms=parts.allowed_lateness_ms,
            late_tag=parts.late_tag,
            trigger=parts.trigger,
            evictor=parts.evictor,
            null_keys=NullKeys(section.text("null_keys") or "fail"),
        )
        results = aggregate if binding.plain else _results(aggregate, binding, hints_of("results"))
        if timed:
            results = _with_window_time(results, hints_of("results"), window_zone(parts.window))
        return Aggregation(results, self._late(aggregate, node, window))

    def check_one_group(self, section: Section, hints: NodeHints, what: str) -> None:
        """Report a parallelism of what has no keys."""
        if (hints.parallelism or 1) > 1:
            self._diagnostics.error(
                f"{what} without 'key_by' spans all rows and runs at parallelism 1",
                section.value_at("parallelism"),
                hint="remove 'parallelism', or add key_by",
            )

    def with_windows(self, section: Section, window: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """The rows of `node` with the bounds of their windows; None if that is wrong, which is reported."""
        parts = self._windows.read(window, None if node is None else node.schema)
        if node is None or parts is None:
            return None
        keys: tuple[int, ...] = ()
        if isinstance(parts.window, SessionWindow) and section.has("key_by"):
            keyed = self.keys(section, node, stages.hints("keys"))
            if keyed is None:
                return None
            node, keys = keyed
        return with_windows(window, parts, node, keys, stages, self._queries, self._diagnostics)

    # -- keys -------------------------------------------------------------------------------------------------------

    def keys(self, section: Section, node: PlanNode, hints: NodeHints) -> tuple[PlanNode, tuple[int, ...]] | None:
        """The rows with a column for every key of `key_by`, and the keys' positions; None if that is wrong, which is reported.

        Computed keys are appended to the columns.
        """
        if section.broken("key_by"):
            return None
        schema = node.schema
        keys: list[int] = []
        appended: list[tuple[Field, Expression]] = []
        complete = True
        for scalar in section.scalars("key_by"):
            bound = self._expressions.key(scalar, schema)
            if bound is None:
                complete = False
                continue
            field, expression = bound
            if isinstance(expression, ColumnRef) and field.name == schema.names[expression.index]:
                position = expression.index
            elif field.name in schema or any(field.name == f.name for f, _ in appended):
                self._diagnostics.error(
                    f"the key '{field.name}' has the name of another column",
                    scalar.location,
                    hint="choose another: expression AS name",
                )
                complete = False
                continue
            else:
                appended.append((field, expression))
                position = len(schema) + len(appended) - 1
            if position in keys:
                self._diagnostics.error(f"the key '{field.name}' is given twice", scalar.location)
                complete = False
            keys.append(position)
        if not complete:
            return None
        if not appended:
            return node, tuple(keys)
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(schema))
        extended = Calc(
            schema=Schema((*schema.fields, *(f for f, _ in appended))),
            hints=hints,
            input=node,
            projections=(*columns, *(e for _, e in appended)),
        )
        return extended, tuple(keys)

    def _bounds_are_free(
        self, section: Section, schema: Schema, keys: tuple[int, ...], bounds: tuple[str, ...]
    ) -> bool:
        clash = next((schema.names[k] for k in keys if schema.names[k] in bounds), None)
        if clash is not None:
            self._diagnostics.error(
                f"a key must not be called '{clash}': the window has a column of this name",
                section.value_at("key_by"),
                hint=f"give the key another name: … AS {'started' if clash == WINDOW_START else 'ended'}",
            )
        return clash is None

    # -- time and late rows -----------------------------------------------------------------------------------------

    def _report_missing_time(self, window: Section, node: PlanNode) -> None:
        names = ", ".join(dict.fromkeys(f"'{n}'" for n in _sources_without_time(node)))
        self._diagnostics.error(
            f"an event-time window needs event time, but {names or 'its input'} has none",
            window.location,
            hint="give the source a watermark: {column: …, delay: 5s}, or the window time: processing",
        )

    def _late(self, aggregate: WindowAggregate, node: PlanNode, window: Section) -> PlanNode | None:
        """The late rows as they came into the step's aggregation, without computed keys."""
        if aggregate.late_tag is None:
            return None
        hints = NodeHints(name=aggregate.late_tag, location=window.value_at("late_output"))
        side = SideOutput(schema=aggregate.input.schema, hints=hints, input=aggregate, tag=aggregate.late_tag)
        if aggregate.input is node:
            return side
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
        return Calc(schema=node.schema, hints=hints, input=side, projections=columns)


def _results(aggregate: WindowAggregate, binding: AggregateBinding, hints: NodeHints) -> PlanNode:
    """Keys, window bounds and the outputs, which are more than just the aggregates one by one."""
    grouped = len(aggregate.schema) - len(binding.calls)
    fields = list(aggregate.schema.fields[:grouped])
    columns: list[Expression] = [ColumnRef(f.type, i, f.name) for i, f in enumerate(fields)]
    names = {f.name for f in fields}
    for name, expression in binding.outputs:
        if name not in names:  # a key or bound that is named among the aggregates is there already
            nullable = aggregate.schema.fields[expression.index].nullable if isinstance(expression, ColumnRef) else True
            fields.append(Field(name, expression.type, nullable))
            columns.append(expression)
    return Calc(schema=Schema(tuple(fields)), hints=hints, input=aggregate, projections=tuple(columns))


def _with_window_time(node: PlanNode, hints: NodeHints, zone: str) -> PlanNode:
    """The results with their event time as a column, by which queries over them can go on."""
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(node.schema))
    type = timestamp(3) if zone == UTC_ZONE else timestamp_ltz(3)
    time = window_time(columns[node.schema.index(WINDOW_END)], type, zone)
    schema = Schema((*node.schema.fields, Field(WINDOW_TIME, time.type)))
    return Calc(schema=schema, hints=hints, input=node, projections=(*columns, time))


def _sources_without_time(node: PlanNode) -> Iterator[str]:
    """Names of the nodes where event time is missing or gets lost."""
    if node.event_time:
        return
    if isinstance(node, Scan):
        yield node.table.name
    elif isinstance(node, Union) or any(not i.event_time for i in node.inputs):
        for child in node.inputs:
            yield from _sources_without_time(child)
    elif node.hints.name is not None:
        yield node.hints.name
