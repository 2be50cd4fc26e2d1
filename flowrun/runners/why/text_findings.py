"""Findings about the text of a pipeline alone: what never comes out, whatever rows come in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.plan.nodes import Calc, Plan, PlanNode, Scan, Sink, walk_plan
from flowrun.plan.relational import Values
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.why.finding import Finding, Severity
from flowrun.runners.why.sink_rows import conflicting_key

if TYPE_CHECKING:
    from flowrun.runners.program import CompiledProgram


def text_findings(compiled: CompiledPipeline | CompiledProgram) -> tuple[Finding, ...]:
    """What the text of a pipeline says by itself; of a program nothing is known before it runs."""
    if not isinstance(compiled, CompiledPipeline):
        return ()
    return (*_empty_sinks(compiled.plan, compiled.optimised), *_conflicting_keys(compiled), *_warnings(compiled))


def _empty_sinks(written: Plan, optimised: Plan) -> Iterator[Finding]:
    for sink, conditions in sinks_without_rows(written, optimised):
        yield Finding(
            "never_true",
            Severity.BLOCKS,
            f"sink '{sink.table.name}' never gets a row",
            f"A condition before it is never true: {' and '.join(conditions)}. Its sources are not even read.",
            figures={"sink": sink.table.name},
            remedy="see the conditions: `flowrun explain` shows what becomes of them",
        )


def sinks_without_rows(written: Plan, optimised: Plan) -> Iterator[tuple[Sink, tuple[str, ...]]]:
    """The sinks of a plan before which a condition is never true, with the conditions before them."""
    for before, sink in zip(written.sinks, optimised.sinks, strict=False):
        if any(isinstance(n, Scan) for n in _below(before)) and _is_empty(sink):
            nodes = [n for n in _below(before) if isinstance(n, Calc)]
            yield sink, tuple(str(n.condition) for n in nodes if n.condition is not None)


def _conflicting_keys(compiled: CompiledPipeline) -> Iterator[Finding]:
    operators = (o for v in compiled.job_graph.vertices for o in v.operators)
    for factory in (o.factory for o in operators if isinstance(o.factory, SinkOperatorFactory)):
        meeting = factory.meeting
        if meeting.row_key is not None:
            yield conflicting_key(factory.name, ", ".join(meeting.key), ", ".join(meeting.row_key))


def _is_empty(sink: Sink) -> bool:
    nodes = [n for n in _below(sink) if not n.inputs]
    return all(isinstance(n, Values) and not n.rows for n in nodes)


def _below(node: PlanNode) -> Iterator[PlanNode]:
    yield node
    for source in node.inputs:
        yield from _below(source)


def _warnings(compiled: CompiledPipeline) -> Iterator[Finding]:
    for warning in compiled.warnings:
        yield Finding(
            "warning",
            Severity.RISKS,
            warning.message.partition("\n")[0],
            "`flowrun validate` says so of the pipeline's text"
            + (f" ({warning.location})." if warning.location is not None else "."),
            remedy=warning.hint,
        )


def streaming_job_graph(compiled: CompiledPipeline | CompiledProgram) -> JobGraph:
    """The job graph as a stream without checkpoints and restarts, however the pipeline runs; with the same ids of operators."""
    if not isinstance(compiled, CompiledPipeline):
        return compiled.job_graph
    settings = replace(
        compiled.optimised.settings, mode="streaming", checkpoint=None, restart=None, embedded_mode="streaming"
    )
    plan = replace(compiled.optimised, settings=settings)
    return build_job_graph(build_stream_graph(plan.name, lower(plan), graph_settings(settings)))


def declared_columns(compiled: CompiledPipeline | CompiledProgram) -> dict[str, tuple[str, ...]]:
    """By name of a source, all columns that its table has, those that are not read too; of a program's sources nothing is known."""
    if not isinstance(compiled, CompiledPipeline):
        return {}
    scans = [n for n in walk_plan(compiled.optimised) if isinstance(n, Scan)]
    return {n.table.name: tuple((n.declared or n.physical).names) for n in scans}
