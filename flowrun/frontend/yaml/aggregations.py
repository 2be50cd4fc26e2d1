"""`key_by`, `window` and `aggregate` of a step: groups that are kept up to date, or those of windows with their late rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import timestamp, timestamp_ltz
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.expressions.aggregate_binder import AggregateBinding
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.entries import Entries, EntryQuery, EntryReader, Wording
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.keys import keyed
from flowrun.frontend.yaml.queries import QueryReader, StepQuery, StepSql, renamed, step_hints
from flowrun.frontend.yaml.stages import Stages, present_only
from flowrun.frontend.yaml.step_queries import grouped
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

_WORDING = Wording(
    twice=("column '{name}' occurs more than once", "give it another name with AS"),
    taken=("'{name}' is already a key or window column", "choose another name"),
    marks_text=True,
)


@record
class Aggregation:
    """An aggregation's results and, if it has one, its late output: the step's input rows."""

    node: PlanNode
    late: PlanNode | None


class AggregationReader:
    """Turns `key_by`, `window` and `aggregate` of a step into nodes, reporting what is wrong: then None is given."""

    def __init__(
        self,
        diagnostics: Diagnostics,
        queries: QueryReader,
        entries: EntryReader,
        windows: WindowReader,
        expressions: ExpressionReader,
    ) -> None:
        self._diagnostics = diagnostics
        self._queries = queries
        self._entries = entries
        self._windows = windows
        self._expressions = expressions

    def updating(self, section: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """`aggregate` without a window over the rows of `node`; None if they are not known."""
        if node is None or section.broken("aggregate"):
            return None
        found = keyed(section, node, stages, self._entries)
        if found is None:
            return None
        rows, keys = present_only(section, *found, stages)
        hints = stages.hints("aggregate")
        if not keys:
            self._check_one_group(section, hints, "an aggregate")
        names = [rows.schema.names[k] for k in keys]
        entries = self._grouped(section, rows, names, hints, stages)
        return None if entries is None else renamed(entries.node, entries.names, hints)

    def windowed(self, section: Section, window: Section, node: PlanNode | None, stages: Stages) -> Aggregation | None:
        """`aggregate` in windows over the rows of `node`; None if they are not known."""
        if node is None:
            self._windows.read(window, None)
            return None
        parts = self._windows.read(window, node.schema)
        found = keyed(section, node, stages, self._entries)
        if parts is not None and parts.needs_event_time and not has_event_time(node):
            self._report_missing_time(window, node)
        if parts is None or found is None or section.broken("aggregate"):
            return None
        rows, keys = found
        hints = stages.hints("window")
        if not keys:
            self._check_one_group(section, hints, "a window")
            hints = replace(hints, parallelism=1)
        bounds = window_aggregate_schema(rows.schema, (), parts.window, ()).names
        if not self._bounds_are_free(section, rows.schema, keys, bounds):
            return None
        texts = section.scalars("aggregate")
        timed = [t for t in texts if t.text.strip() == WINDOW_TIME and WINDOW_END in bounds]
        binding = self._expressions.aggregates([t for t in texts if t not in timed] or texts, rows.schema, keys, bounds)
        if binding is None:
            return None
        aggregate = WindowAggregate(
            schema=window_aggregate_schema(rows.schema, keys, parts.window, binding.calls),
            hints=hints,
            input=rows,
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
        results = aggregate if binding.plain else _results(aggregate, binding, stages.hints("results"))
        if timed:
            results = _with_window_time(results, stages.hints("results"), window_zone(parts.window))
        return Aggregation(results, self._late(aggregate, node, window))

    def with_windows(self, section: Section, window: Section, node: PlanNode | None, stages: Stages) -> PlanNode | None:
        """The rows of `node` with the bounds of their windows; None if they are not known."""
        parts = self._windows.read(window, None if node is None else node.schema)
        if node is None or parts is None:
            return None
        keys: tuple[int, ...] = ()
        if isinstance(parts.window, SessionWindow) and section.has("key_by"):
            found = keyed(section, node, stages, self._entries)
            if found is None:
                return None
            node, keys = found
        return with_windows(window, parts, node, keys, stages, self._queries, self._diagnostics)

    def _grouped(
        self, section: Section, rows: PlanNode, keys: Sequence[str], hints: NodeHints, stages: Stages
    ) -> Entries | None:
        """The keys and the entries of `aggregate` over `rows`."""

        def compose(entries: Sequence[YamlScalar], _: bool) -> StepSql:
            return grouped(section, entries, keys, stages.input)

        entries = tuple(section.scalars("aggregate"))
        nodes = step_hints(hints, ("aggregate",))
        query = StepQuery(compose(entries, True), {stages.input: rows}, stages.name, nodes, input=stages.input)
        return self._entries.read(EntryQuery(compose, entries, query, _WORDING, leading=len(keys)))

    def _check_one_group(self, section: Section, hints: NodeHints, what: str) -> None:
        """Report a parallelism of what has no keys."""
        if (hints.parallelism or 1) > 1:
            self._diagnostics.error(
                f"{what} without 'key_by' spans all rows and runs at parallelism 1",
                section.value_at("parallelism"),
                hint="remove 'parallelism', or add key_by",
            )

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
