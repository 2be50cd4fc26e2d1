"""A look at what a pipeline makes of its real input: a sample of it goes through, and nothing is written, kept or committed.

The job is the pipeline's own stream, embedded, with sinks that hand their rows to who listens, and without checkpoints. Sources begin where
the pipeline says; once each has given enough rows, or the time is over, they end, and event time with them, so that open windows fire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from flowrun.connectors.registry import connector_named
from flowrun.core.clock import Clock, SystemClock
from flowrun.core.record import record
from flowrun.errors import PipelineError, near_matches
from flowrun.frontend.pipeline import SQL_SUFFIXES, LoadedPipeline, load_pipeline, load_text, project_of
from flowrun.frontend.source_text import SourceText
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.operators.function_scope import FunctionScopes
from flowrun.plan.nodes import NodeHints, Plan, PlanNode, Scan, Sink, TableReference, walk_plan
from flowrun.plan.rewrites import optimise
from flowrun.plan.rewrites.traversal import map_plan, with_sinks
from flowrun.plan.row_errors import is_letter_sink, route_row_errors
from flowrun.runners.embedded import start_embedded
from flowrun.runtime.job_status import JobResult, JobStatus
from flowrun.spark.input.scan import as_it_is

_LIVE = "print"
_STREAMING = {"settings.mode": "streaming", "settings.embedded_mode": "streaming"}
_LOOK_MS = 20
_LARGEST_BATCH = 1_000
"""Rows: sources end between two batches, so a sample is larger than was asked for by less than one a subtask."""


@record
class Sample:
    """How much of the input is looked at.

    Attributes:
        rows: of each source, about.
        ms: how long, at most, in processing time.
    """

    rows: int = 1_000
    ms: int = 10_000


@record
class PreviewResult:
    """What came of a preview.

    Attributes:
        read: name of a source → rows that were read of it.
        was_cut: whether a source had not come to its end.
        job: the job that is over.
    """

    read: Mapping[str, int]
    was_cut: bool
    job: JobResult


def preview_plan(
    path: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    sample: Sample,
    sinks: tuple[str, ...] = (),
    step: str | None = None,
) -> Plan:
    """The optimised plan of a preview: its sinks are live `print` tables with the names of those that they stand for.

    Args:
        path: the pipeline.
        variables: see `compile_pipeline`.
        overrides: see `compile_pipeline`.
        sample: how much is going to be looked at.
        sinks: names of those to look at; empty: all.
        step: a step of a YAML pipeline, or a table or view of a script, that is looked at instead.

    Raises:
        PipelineError: the pipeline has errors; there is no such sink or step; or a source cannot be read without a trace.
    """
    given = {**overrides, **_STREAMING}
    if step is None:
        plan = load_pipeline(path, variables, given).plan
        chosen: Callable[[Sink], bool] = _chooser(plan, sinks)
    else:
        plan, wanted = _with_step(path, variables, given, step)

        def chosen(sink: Sink) -> bool:
            return sink.table.name == wanted

    return _sampling(plan, sample, chosen, step)


def preview_text_plan(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    functions: FunctionScopes,
    sample: Sample,
) -> Plan:
    """As `preview_plan`, of all sinks of a text that is in no file; see `flowrun.runners.compile.compile_source`."""
    plan = load_text(source, folder, variables, {**overrides, **_STREAMING}, functions=functions).plan
    return sampling_plan(plan, sample)


def sampling_plan(plan: Plan, sample: Sample) -> Plan:
    """As `preview_plan`, of all sinks of a plan that is a stream. Raises PipelineError: a source cannot be read without a trace."""
    return _sampling(plan, sample, lambda _sink: True)


def _sampling(plan: Plan, sample: Sample, chosen: Callable[[Sink], bool], step: str | None = None) -> Plan:
    _check_sources(plan)
    settings = replace(plan.settings, checkpoint=None, restart=None, embedded_mode="streaming")
    settings = replace(settings, batch_rows=min(settings.batch_rows, sample.rows, _LARGEST_BATCH))
    routed = route_row_errors(optimise(replace(plan, settings=settings)))
    live = tuple(_live(sink, step) for sink in routed.sinks if chosen(sink))
    return map_plan(with_sinks(routed, live), _that_ends)


def run_preview(plan: Plan, sample: Sample, clock: Clock | None = None) -> PreviewResult:
    """Run a plan of `preview_plan` on a sample; its rows go to those who listen to its sinks (`flowrun.connectors.live_rows`).

    Raises:
        JobFailedError: the job failed.
        KeyboardInterrupt: Ctrl-C; the job has ended.
    """
    clock = SystemClock() if clock is None else clock
    settings = graph_settings(plan.settings)
    job_graph = build_job_graph(build_stream_graph(plan.name, lower(plan), settings))
    sources = frozenset(vertex.vertex_id for vertex in job_graph.vertices if not vertex.inputs)
    deadline = clock.monotonic_ns() + sample.ms * 1_000_000
    was_cut = False
    with start_embedded(job_graph, clock=clock) as job:
        while (result := job.wait(_LOOK_MS)) is None:
            enough = _has_enough(job.status(), sources, sample) or clock.monotonic_ns() >= deadline
            if enough and not was_cut:
                was_cut = True
                job.stop(drain=True)
    return PreviewResult(_rows_read(result, sources), was_cut, result)


def _has_enough(status: JobStatus, sources: frozenset[str], sample: Sample) -> bool:
    return all(v.records_in >= sample.rows for v in status.vertices if v.vertex_id in sources)


def _rows_read(result: JobResult, sources: frozenset[str]) -> dict[str, int]:
    return {
        v.name.partition(" -> ")[0].removeprefix("Source: "): v.records_in
        for v in result.vertices
        if v.vertex_id in sources
    }


def _chooser(plan: Plan, names: tuple[str, ...]) -> Callable[[Sink], bool]:
    known = [sink.table.name for sink in plan.sinks]
    for name in names:
        if name not in known:
            raise _unknown("sink", name, known)
    return lambda sink: not names or sink.table.name in names


def _with_step(path: Path, variables: Mapping[str, str], overrides: Mapping[str, str], step: str) -> tuple[Plan, str]:
    """A plan with one more sink behind a step, and the name of this sink."""
    if path.suffix.lower() in SQL_SUFFIXES:
        text = path.read_text(encoding="utf-8")
        before = len(load_pipeline(path, variables, overrides).plan.sinks)
        try:
            loaded = _with_select(path, text, variables, overrides, step)
        except PipelineError as error:  # the script alone has none, so it points behind its end
            problem = error.diagnostics[0]
            raise PipelineError.of(f"'{step}' cannot be looked at: {problem.message}", problem.hint) from None
        return loaded.plan, loaded.plan.sinks[before].table.name
    plan = load_pipeline(path, variables, overrides).plan
    named = [node for node in walk_plan(plan) if node.hints.name == step and not isinstance(node, Sink)]
    if not named:
        known = dict.fromkeys(n.hints.name for n in walk_plan(plan) if not isinstance(n, Sink))
        raise _unknown("step", step, [name for name in known if name])
    node: PlanNode = named[-1]  # in topological order: what the step gives to others
    sink = Sink(node.schema, NodeHints(name=step), node, TableReference(step, _LIVE, {"live": "true"}))
    return with_sinks(plan, (*plan.sinks, sink)), step


def _with_select(
    path: Path, text: str, variables: Mapping[str, str], overrides: Mapping[str, str], table: str
) -> LoadedPipeline:
    name = table if "`" in table else ".".join(f"`{part}`" for part in table.split("."))
    end = "" if text.rstrip().endswith(";") else "\n;"
    source = SourceText(str(path), f"{text.rstrip()}{end}\nSELECT * FROM {name};\n")
    return load_text(source, path.parent, variables, overrides, project=project_of(path))


def _unknown(kind: str, name: str, known: list[str]) -> PipelineError:
    close = near_matches(name, known)
    hint = (
        "did you mean " + " or ".join(f"'{c}'" for c in close) + "?"
        if close
        else f"there are: {', '.join(known) or 'none'}"
    )
    return PipelineError.of(f"the pipeline has no {kind} '{name}'", hint)


def _check_sources(plan: Plan) -> None:
    for node in walk_plan(plan):
        if not isinstance(node, Scan):
            continue
        trace = connector_named(node.table.connector).reading_leaves
        if trace is not None:
            raise PipelineError.of(
                f"source '{node.table.name}' ({node.table.connector}) cannot be looked at without a trace: reading it leaves {trace}",
                "in a copy of the pipeline, declare the table with a connector that only reads, such as jdbc",
            )


def _live(sink: Sink, step: str | None) -> Sink:
    """A sink that hands its rows to who listens to its name; that of a step has the step's."""
    letters = " (dead letters)" if is_letter_sink(sink) else ""
    return replace(sink, table=TableReference((step or sink.table.name) + letters, _LIVE, {"live": "true"}))


def _that_ends(node: PlanNode) -> PlanNode:
    """A scan that reads what is there now."""
    if not isinstance(node, Scan):
        return node
    table = as_it_is(node.table)
    return node if table is node.table else replace(node, table=table)
