"""Sinks that will hold superseded rows: windows that fire again send their new result as one more row, and the sink keeps both."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.core.units import format_duration
from flowrun.errors import Diagnostic, Severity
from flowrun.plan.nodes import Calc, Plan, PlanNode, Sink, Union, WindowAggregate
from flowrun.plan.windows import TriggerSpec

SUPERSEDED_HINT = (
    "the row that comes last counts: a step with deduplicate (keep: last, by the keys and window_start), and a sink with a primary key, "
    "keep that alone"
)


def superseded_rows(plan: Plan) -> list[Diagnostic]:
    """A warning for each sink of files that gets the results of a window each time it fires."""
    return [
        Diagnostic(
            f"sink '{sink.hints.name or sink.table.name}' keeps superseded rows: {reason}, and each result is a row of its own",
            location=sink.hints.location,
            hint=SUPERSEDED_HINT,
            severity=Severity.WARNING,
        )
        for sink in plan.sinks
        if (reason := why_superseded(sink)) is not None
    ]


def why_superseded(sink: Sink) -> str | None:
    """Why rows reach a sink of files that stand for earlier ones; None: none do."""
    return None if sink.table.format is None else next(_reasons(sink.input), None)


def _reasons(node: PlanNode) -> Iterator[str]:
    """Why windows fire more than once whose results reach a sink as they are."""
    if isinstance(node, Calc | Union):
        for child in node.inputs:
            yield from _reasons(child)
    if isinstance(node, WindowAggregate) and node.output_mode is None:
        name = f"'{node.hints.name}'" if node.hints.name else "its window step"
        if node.allowed_lateness_ms:
            lateness = format_duration(node.allowed_lateness_ms)
            yield f"{name} fires a window again for each row that is late by up to {lateness} (allowed_lateness)"
        elif node.trigger is not None and _fires_early(node.trigger):
            yield f"the trigger of {name} fires a window several times"


def _fires_early(trigger: TriggerSpec) -> bool:
    return trigger.every_ms is not None and not trigger.purge
