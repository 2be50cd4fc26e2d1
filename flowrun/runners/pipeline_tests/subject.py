"""The pipeline that is tested: its sources replaced by given tables, its sinks by captured ones, as a job graph for each way to run it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flowrun.api.changelog import mode_of_source
from flowrun.api.source import Boundedness, Source
from flowrun.connectors.filesystem.table_path import allowing_missing
from flowrun.core.elements import RowKind
from flowrun.core.record import record
from flowrun.core.row_errors import LETTER_COLUMNS_OF_A_RUN
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, Location, PipelineError
from flowrun.frontend.pipeline import load_pipeline
from flowrun.frontend.pipeline_tests.declaration import AS_WRITTEN, RESCALED, ROW_BY_ROW
from flowrun.frontend.references import unused_variable
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.lowering.sources import source_of
from flowrun.plan.changelog import ChangelogMode, changelog_modes, check_changelogs
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, TableReference, walk_plan
from flowrun.plan.rewrites import optimise
from flowrun.plan.rewrites.traversal import map_plan, with_sinks
from flowrun.plan.row_errors import is_letter_sink, route_row_errors
from flowrun.runners.compile import PROGRAM_SUFFIX, compile_pipeline
from flowrun.runners.pipeline_tests.given_rows import GivenSource, GivenTable
from flowrun.runners.pipeline_tests.replacements import Replacements

_AS_STREAM = {"settings.mode": "streaming", "settings.embedded_mode": "streaming"}
OTHER_PARALLELISM = 2
_numbers = itertools.count()


@record(eq=False)
class TestedSink:
    """A sink of the pipeline.

    Attributes:
        name: as the pipeline calls it.
        schema: of its rows.
        key: its primary key; empty: it has none.
        compared: the columns that are the same in each run: of dead letters not the job and the time.
        updating: whether it gets changes, not only inserts.
        location: of the step that makes its rows; None: not known.
        channel: under this name its rows are captured.
    """

    __test__ = False

    name: str
    schema: Schema
    key: tuple[str, ...]
    compared: tuple[str, ...]
    updating: bool
    location: Location | None
    channel: str


_KINDS = {
    ChangelogMode.APPEND: (RowKind.INSERT,),
    ChangelogMode.UPDATE: (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER),
    ChangelogMode.RETRACT: tuple(RowKind),
    ChangelogMode.UPSERT: (RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE),
}
"""The changes that a source of each mode gives."""


class Subject:
    """A pipeline under test.

    Attributes:
        sinks: what it writes to.
        tables: what it reads, by name.
        bounded: those that end by themselves.
        timed: those that have event time.
        kinds: the changes that each gives.

    Args:
        path: its file.
        variables: values for `${NAME}` in it.
        overrides: values by path that replace those in it.
        replacements: what stands for the outside.

    Raises:
        PipelineError: it has errors.
    """

    def __init__(
        self, path: Path, variables: Mapping[str, str], overrides: Mapping[str, str], replacements: Replacements
    ) -> None:
        if path.suffix.lower() == PROGRAM_SUFFIX:
            raise PipelineError.of(
                f"'{path}' is a program in Python: only pipelines in YAML and SQL are tested so",
                hint="test its functions with flowrun.testing, or the program with pytest",
            )
        self.path = path
        with allowing_missing():  # nothing is read: what is not there is no error
            compiled = compile_pipeline(path, variables, {**overrides, "settings.embedded_mode": "streaming"}, {})
            if not compiled.runs:
                raise PipelineError.of(f"'{path}' has no sink: nothing comes out that could be tested")
            _check_variables(variables, compiled.warnings)
            whole = _batch_as_stream(path, variables, overrides) if compiled.is_batch else compiled.optimised
        plan = replacements.apply(whole)
        with allowing_missing():
            modes = changelog_modes(plan)
        self.sinks = tuple(_tested(sink, modes[id(sink)]) for sink in plan.sinks)
        captured = (_captured(s, tested.channel) for s, tested in zip(plan.sinks, self.sinks, strict=True))
        self.plan = with_sinks(plan, tuple(captured))
        with allowing_missing():
            problems = check_changelogs(self.plan) if compiled.is_batch else []
        if problems:
            raise _only_in_a_batch(problems)
        self.tables: dict[str, GivenTable] = {}
        self.bounded: set[str] = set()
        self.timed: set[str] = set()
        self.kinds: dict[str, tuple[RowKind, ...]] = {}
        self._find_tables()
        self._jobs: dict[str, tuple[JobGraph, ...]] = {}

    def sink(self, name: str) -> TestedSink | None:
        """The sink of this name."""
        return next((s for s in self.sinks if s.name == name), None)

    def jobs(self, variant: str) -> tuple[JobGraph, ...]:
        """What runs; of several each goes on from the one before, and the first from the last."""
        if variant not in self._jobs:
            self._jobs[variant] = tuple(self._graph(plan) for plan in _plans(self.plan, variant))
        return self._jobs[variant]

    def graph_of(self, plan: Plan) -> JobGraph:
        """What runs of a changed plan, as it is written."""
        (as_written,) = _plans(plan, AS_WRITTEN)
        return self._graph(as_written)

    def _find_tables(self) -> None:
        for scan in _scans(self.plan):
            declared = scan.declared or scan.physical
            table = self.tables.setdefault(scan.table.name, GivenTable(scan.table.name, declared))
            if len(declared) > len(table.schema):
                table.schema = declared
            with allowing_missing():
                source = source_of(scan)
            self.kinds[table.name] = _KINDS[mode_of_source(source)]
            if source.boundedness is Boundedness.BOUNDED:
                self.bounded.add(table.name)
            if scan.event_time:
                self.timed.add(table.name)

    def _graph(self, plan: Plan) -> JobGraph:
        with allowing_missing():
            given: dict[int, Source] = {
                id(s): GivenSource.in_place_of(source_of(s), self.tables[s.table.name]) for s in _scans(plan)
            }
        return build_job_graph(build_stream_graph(plan.name, lower(plan, given), graph_settings(plan.settings)))


def _check_variables(variables: Mapping[str, str], warnings: Sequence[Diagnostic]) -> None:
    """Raise PipelineError: a test gives a variable that the pipeline does not use, which would run with another value then."""
    unused = [n for n in variables if any(w.message.startswith(unused_variable(n)) for w in warnings)]
    if unused:
        hint = "leave it out, or correct its name: ${NAME} in the pipeline is filled"
        raise PipelineError([Diagnostic(f"the pipeline does not use the variable '{n}'", hint=hint) for n in unused])


def _batch_as_stream(path: Path, variables: Mapping[str, str], overrides: Mapping[str, str]) -> Plan:
    """The optimised plan of a batch as a stream, whose last table is that of the batch.

    Raises:
        PipelineError: only a batch can do what it asks for.
    """
    try:
        plan = load_pipeline(path, variables, {**overrides, **_AS_STREAM}).plan
    except PipelineError as error:
        raise _only_in_a_batch(error.diagnostics) from None
    return route_row_errors(optimise(plan))


def _only_in_a_batch(problems: Sequence[Diagnostic]) -> PipelineError:
    """The error of what no stream can do."""
    hint = "tests run what a stream can do, too: let the pipeline do this in a step of its own, behind what is tested"
    return PipelineError(
        [replace(p, message=f"a test runs a batch as a stream: {p.message}", hint=hint) for p in problems]
    )


def _scans(plan: Plan) -> list[Scan]:
    return [node for node in walk_plan(plan) if isinstance(node, Scan)]


def _plans(plan: Plan, variant: str) -> tuple[Plan, ...]:
    """The plan with the settings of a way to run: nothing is waited for, nothing restarts, no time but the test's goes by."""
    settings = replace(
        plan.settings,
        checkpoint=None,
        restart=None,
        buffer_timeout_ms=0,
        latency_interval_ms=None,
        batch_rows=1 if variant == ROW_BY_ROW else plan.settings.batch_rows,
    )
    written = replace(plan, settings=settings)
    if variant != RESCALED:
        return (written,)
    other = 1 if settings.parallelism > 1 or settings.max_parallelism == 1 else OTHER_PARALLELISM
    scaled = map_plan(written, lambda node: _scaled(node, other))
    return replace(scaled, settings=replace(settings, parallelism=other)), written


def _scaled(node: PlanNode, parallelism: int) -> PlanNode:
    """The node at another parallelism, unless it has said that it runs once."""
    given = node.hints.parallelism
    if given is None or given == 1:
        return node
    return replace(node, hints=replace(node.hints, parallelism=parallelism))


def _tested(sink: Sink, mode: ChangelogMode) -> TestedSink:
    name = sink.hints.name or sink.table.name
    channel = f"tested sink '{name}' {next(_numbers)}"
    updating = mode is not ChangelogMode.APPEND
    names = sink.schema.names
    if is_letter_sink(sink):
        names = tuple(n for n in names if n not in LETTER_COLUMNS_OF_A_RUN)
    return TestedSink(name, sink.schema, sink.table.primary_key, names, updating, _made_at(sink), channel)


def _made_at(node: PlanNode) -> Location | None:
    """Where the nearest node stands that a sink's rows come from."""
    for above in node.inputs:
        found = above.hints.location or _made_at(above)
        if found is not None:
            return found
    return node.hints.location


def _captured(sink: Sink, channel: str) -> Sink:
    """A sink that hands its rows to who listens."""
    return replace(sink, table=TableReference(channel, "print", {"live": "true"}))
