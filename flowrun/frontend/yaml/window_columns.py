"""`window` without `aggregate`: every row with the bounds of its windows."""

from __future__ import annotations

from flowrun.core.schema import Schema
from flowrun.core.semantics import TimeDomain
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.columns import find_column
from flowrun.frontend.yaml.times import time_column
from flowrun.frontend.yaml.windows import WindowParts
from flowrun.plan.nodes import NodeHints, PlanNode
from flowrun.plan.relational import WindowTableFunction, window_columns


def with_windows(
    window: Section,
    parts: WindowParts,
    node: PlanNode,
    keys: tuple[int, ...],
    hints: NodeHints,
    diagnostics: Diagnostics,
) -> PlanNode | None:
    """The rows of `node` with window_start, window_end and window_time; None if they have no time, which is reported.

    Args:
        window: as written.
        parts: what it says.
        node: the rows.
        keys: of session windows.
        hints: of the node.
        diagnostics: receives problems.
    """
    time = _time(window, parts, node, diagnostics)
    if time is None:
        return None
    schema: Schema = window_columns(node.schema, time)
    return WindowTableFunction(schema, hints, node, parts.window, time, parts.domain, keys)


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
