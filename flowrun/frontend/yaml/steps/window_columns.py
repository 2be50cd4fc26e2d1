"""`window` without `aggregate`: every row with the bounds of its windows."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.semantics import TimeDomain
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.columns import find_column
from flowrun.frontend.yaml.queries.queries import QueryReader, StepQuery, step_hints
from flowrun.frontend.yaml.queries.step_queries import windowed
from flowrun.frontend.yaml.steps.stages import Stages
from flowrun.frontend.yaml.steps.times import time_column
from flowrun.frontend.yaml.steps.windows import WindowParts
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import WindowTableFunction


def with_windows(
    window: Section,
    parts: WindowParts,
    node: PlanNode,
    keys: tuple[int, ...],
    stages: Stages,
    queries: QueryReader,
    diagnostics: Diagnostics,
) -> PlanNode | None:
    """The rows of `node` with window_start, window_end and window_time; None if they have no time, which is reported.

    Args:
        window: as written.
        parts: what it says.
        node: the rows.
        keys: of session windows.
        stages: of the step.
        queries: binds the query that says the same.
        diagnostics: receives problems.
    """
    time = _time(window, parts, node, diagnostics)
    if time is None:
        return None
    hints, names = stages.hints("window"), node.schema.names
    sql = windowed(parts.window, names[time], [names[k] for k in keys], stages.input, window.location)
    query = StepQuery(sql, {stages.input: node}, stages.name, step_hints(hints, ("window",)), input=stages.input)
    rows = queries.rows(query)
    # SQL has no words for the zone of one window
    return replace(rows, hints=hints, window=parts.window) if isinstance(rows, WindowTableFunction) else rows


def _time(window: Section, parts: WindowParts, node: PlanNode, diagnostics: Diagnostics) -> int | None:
    named = window.scalar("column")
    if named is not None:
        return find_column(node.schema, named, "the input", diagnostics)
    time = time_column(node, parts.domain)
    if time is None:
        if parts.domain is TimeDomain.EVENT:
            what, hint = (
                "event",
                "give the source a watermark: {column: …}, and select that column in the steps between",
            )
        else:
            what, hint = "processing", "give the source computed: {at: PROCTIME()}, and select it in the steps between"
        diagnostics.error(f"the input has no {what}-time column to find windows by", window.location, hint=hint)
    return time
