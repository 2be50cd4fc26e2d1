"""`key_by`, `window` and `aggregate` of a step: groups that are kept up to date, or those of windows with their late rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.catalog import CatalogView
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.queries.entries import Entries, EntryQuery, EntryReader, Wording
from flowrun.frontend.yaml.queries.queries import QueryReader, StepQuery, StepSql, renamed, step_hints
from flowrun.frontend.yaml.queries.step_queries import WINDOWED, grouped
from flowrun.frontend.yaml.steps.keys import keyed
from flowrun.frontend.yaml.steps.stages import Stages, present_only
from flowrun.frontend.yaml.steps.times import has_event_time
from flowrun.frontend.yaml.steps.window_columns import with_windows
from flowrun.frontend.yaml.steps.windowed_groups import WindowedRows, over_windows, windowed_rows
from flowrun.frontend.yaml.steps.windows import WindowParts, WindowReader
from flowrun.plan.expressions import AggregateCall, ColumnRef
from flowrun.plan.nodes import (
    WINDOW_START,
    Calc,
    FunctionWindows,
    NodeHints,
    PlanNode,
    Scan,
    SideOutput,
    Union,
    WindowAggregate,
    window_aggregate_schema,
)
from flowrun.plan.relational import WINDOW_TIME
from flowrun.plan.windows import SessionWindow

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
        self, diagnostics: Diagnostics, queries: QueryReader, entries: EntryReader, windows: WindowReader
    ) -> None:
        self._diagnostics = diagnostics
        self._queries = queries
        self._entries = entries
        self._windows = windows

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
        entries = self._grouped(section, rows, names, None, hints, stages)
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
        names = [rows.schema.names[k] for k in keys]
        read = windowed_rows(rows, parts.window, names)
        if not self._bounds_are_free(section, rows.schema, keys, read.bounds):
            return None
        entries = self._grouped(section, rows, names, read, hints, stages)
        if entries is None:
            return None

        def make(keys: tuple[int, ...], calls: tuple[AggregateCall, ...]) -> WindowAggregate:
            return _window_aggregate(section, parts, rows, keys, calls, hints)

        results = over_windows(entries, read, make, stages.hints("results"))
        if results is None:
            hint = "join the query's rows to those of the step in a step before"
            what = "aggregates of a window take columns and expressions, no subqueries"
            self._diagnostics.error(what, section.value_at("aggregate"), hint=hint)
            return None
        return Aggregation(results[0], self._late(results[1], node, window))

    def function_windows(self, window: Section, node: PlanNode | None) -> FunctionWindows | None:
        """The windows of a window function over the rows of `node`; None if they are not known."""
        parts = self._windows.read(window, None if node is None else node.schema)
        if node is None or parts is None:
            return None
        if parts.needs_event_time and not has_event_time(node):
            self._report_missing_time(window, node)
            return None
        return FunctionWindows(
            parts.window, parts.domain, parts.allowed_lateness_ms, parts.late_tag, parts.trigger, parts.evictor
        )

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
        self,
        section: Section,
        rows: PlanNode,
        keys: Sequence[str],
        windows: WindowedRows | None,
        hints: NodeHints,
        stages: Stages,
    ) -> Entries | None:
        """The keys, the bounds of the windows and the entries of `aggregate` over `rows`, which `windows` has with those."""
        bounds = () if windows is None else windows.bounds
        leading, left = (*keys, *bounds), stages.input
        columns = None if windows is None else windows.relation.window_columns

        def compose(entries: Sequence[YamlScalar], _: bool) -> StepSql:
            return grouped(section, entries, leading, left, columns)

        texts = section.scalars("aggregate")
        timed = tuple(t for t in texts if bounds and t.text.strip() == WINDOW_TIME)
        entries = (*(t for t in texts if t not in timed), *timed)
        tables: dict[str, PlanNode | CatalogView] = {left: rows}
        if windows is not None:
            tables[WINDOWED] = windows.relation
        nodes = step_hints(hints, ("aggregate",))
        query = StepQuery(
            compose(entries, True),
            tables,
            stages.name,
            nodes,
            variances_in_double=windows is not None,  # windows of steps have state with such aggregates
            input=left,
        )
        return self._entries.read(EntryQuery(compose, entries, query, _WORDING, leading=len(leading)))

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


def _window_aggregate(
    section: Section,
    parts: WindowParts,
    rows: PlanNode,
    keys: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    hints: NodeHints,
) -> WindowAggregate:
    return WindowAggregate(
        schema=window_aggregate_schema(rows.schema, keys, parts.window, calls),
        hints=hints,
        input=rows,
        keys=keys,
        window=parts.window,
        aggregates=calls,
        domain=parts.domain,
        allowed_lateness_ms=parts.allowed_lateness_ms,
        late_tag=parts.late_tag,
        trigger=parts.trigger,
        evictor=parts.evictor,
        null_keys=NullKeys(section.text("null_keys") or "fail"),
        output_mode=parts.output_mode,
    )


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
