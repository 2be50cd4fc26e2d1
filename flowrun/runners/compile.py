"""From a pipeline file to a job graph: the composition of front end, rewrites, lowering and graph building."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Diagnostic, PipelineError, UnsupportedPlanError
from flowrun.frontend.pipeline import LoadedPipeline, bounded_nesting, load_pipeline, load_text, project_of
from flowrun.frontend.source_text import SourceText
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import StreamGraph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import Transformation
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.operators.function_scope import FunctionScopes, functions_beside, no_functions
from flowrun.plan.changelog import check_changelogs
from flowrun.plan.guarantees import SinkGuarantee, batch_guarantees, plan_guarantees
from flowrun.plan.join_order import order_by_sizes, table_rows
from flowrun.plan.nodes import Plan
from flowrun.plan.rewrites import optimise, rules_with
from flowrun.plan.row_errors import route_row_errors
from flowrun.plan.superseded import superseded_rows
from flowrun.plan.wrong_patterns import wrong_patterns
from flowrun.runners.graph_texts import render_graphs
from flowrun.runners.pipeline_text import check_folders, check_withheld, function_folders, text_to_keep
from flowrun.state.checkpoints import PipelineText, ProjectText

if TYPE_CHECKING:
    from flowrun.runners.program import CompiledProgram

PROGRAM_SUFFIX = ".py"
"""Of files that are programs in Python."""

BATCH = "batch"
"""The mode that runs on Spark."""


@record
class CompiledPipeline:
    """A pipeline without errors, in every form between its text and its tasks.

    One in batch mode runs on Spark, which starts from the optimised plan: it has no transformations and empty graphs.

    Attributes:
        plan: as written.
        optimised: after the rewrites.
        transformations: the sinks; everything else is reached from them.
        warnings: what was found on the way that does not stop it.
        text: what checkpoints keep of it.
        outputs: what statements of a script answer, to be shown before anything runs.
        tables: what a script declares, with the columns.
    """

    plan: Plan
    optimised: Plan
    transformations: tuple[Transformation, ...]
    stream_graph: StreamGraph
    job_graph: JobGraph
    warnings: tuple[Diagnostic, ...]
    text: PipelineText
    outputs: tuple[str, ...] = ()
    tables: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether there is anything to run: a script may only describe tables."""
        return bool(self.plan.sinks)

    @property
    def is_batch(self) -> bool:
        """Whether it runs on Spark."""
        return self.plan.settings.mode == BATCH

    @property
    def guarantees(self) -> tuple[SinkGuarantee, ...]:
        """What holds for each sink after a failure."""
        return batch_guarantees(self.optimised) if self.is_batch else plan_guarantees(self.optimised)

    def render(self, stage: str, output: str, workers: int | None = None) -> str:
        """One stage (`plan`, `transformations`, `stream`, `job` or `execution`) as `text`, `json` or `mermaid`.

        The execution graph is shown as it runs in so many processes (`workers`; 0: this one, None: as many as is faster).

        Raises:
            UnsupportedPlanError: a pipeline in batch mode has a plan only.
        """
        if self.is_batch and stage != "plan":
            raise UnsupportedPlanError(
                f"a pipeline in batch mode runs on Spark: it has no stage '{stage}'",
                hint="--stage spark shows what Spark makes of it, --set settings.mode=streaming what it is as a stream",
            )
        if stage == "plan":
            return self._render_plan(output)
        return render_graphs(
            self.plan.name, self.transformations, self.stream_graph, self.job_graph, stage, output, workers
        )

    def _render_plan(self, output: str) -> str:
        from flowrun.plan.explain_rewrites import (
            explain_rewrites,  # explaining knows every operator, running few of them
        )

        rules = rules_with(order_by_sizes(self.text.table_rows))
        return explain_rewrites(self.plan, output, {"delivery": [g.to_json() for g in self.guarantees]}, rules)


def compile_pipeline(
    path: Path,
    variables: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    rows: Mapping[str, int] | None = None,
    text: str | None = None,
) -> CompiledPipeline:
    """Everything up to the job graph; up to the optimised plan if its mode is batch.

    Args:
        path: the pipeline file.
        variables: values for `${NAME}` in the file.
        overrides: values by path that replace those in the file.
        rows: rows of tables by which joins are ordered, where state was made with these (`PipelineText.table_rows`); None: as there are.

        text: what stands in the file, which is not read then and need not be there; its name tells the language.

    Raises:
        PipelineError: the pipeline has errors; carries all of them.
        UnsupportedPlanError: no operator can do what the pipeline asks for.
    """
    if text is None:
        loaded = load_pipeline(path, variables, overrides)
    else:
        source, project = SourceText(str(path), text), project_of(path)
        loaded = load_text(source, path.parent, variables or {}, overrides or {}, project=project)
    return _compile(path, loaded, text_to_keep(path, loaded, variables or {}, overrides or {}), rows)


def compile_source(
    source: SourceText,
    folder: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    functions: FunctionScopes,
    rows: Mapping[str, int] | None = None,
    project: ProjectText | None = None,
) -> CompiledPipeline:
    """As `compile_pipeline`, of a text that is in no file.

    Args:
        source: the text, with the name that its file would have.
        folder: in which relative paths of secret files start.
        variables: values for `${NAME}` in the text.
        overrides: values by path that replace those in the text.
        functions: where its Python functions come from.
        rows: as of `compile_pipeline`.
        project: what its project adds; None: it is in none.

    Raises:
        PipelineError: as `compile_pipeline`.
    """
    loaded = load_text(source, folder, variables, overrides, functions=functions, project=project)
    path = Path(source.file)
    return _compile(path, loaded, text_to_keep(path, loaded, variables, overrides, folder), rows)


def is_program(text: PipelineText) -> bool:
    """Whether a kept text is a program in Python."""
    return Path(text.file_name).suffix.lower() == PROGRAM_SUFFIX


def compile_file(
    path: Path, variables: Mapping[str, str], overrides: Mapping[str, str]
) -> CompiledPipeline | CompiledProgram:
    """A pipeline file, or the first job of a program. Raises as `compile_pipeline` and `flowrun.runners.program.compile_program`."""
    if path.suffix.lower() != PROGRAM_SUFFIX:
        return compile_pipeline(path, variables, overrides)
    from flowrun.runners.program import compile_program  # pipelines do not need the DataStream API

    return compile_program(path, variables, overrides)


def compile_kept(
    kept: PipelineText,
    variables: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    functions_from: Path | None = None,
) -> CompiledPipeline:
    """Everything up to the job graph, from the text that a checkpoint kept; always as a stream, whatever its mode is.

    Relative paths of connectors start in the present working directory: the caller goes to `kept.working_directory`. Python functions are
    imported only if the user says from where: whoever can write state could name a folder of theirs in it.

    Args:
        kept: from the checkpoint.
        variables: values for `${NAME}` that replace or add to those kept.
        overrides: values by path that replace or add to those kept.
        functions_from: the folder of modules of Python functions; None: none are imported.

    Raises:
        PipelineError: as `compile_pipeline`; or it names Python functions and no folder is given; or its folder is gone, or a value that
            was withheld is not given.
    """
    check_folders(kept)
    check_withheld(kept, variables or {})
    all_variables = {**kept.variables, **(variables or {})}
    all_overrides = {**kept.overrides, **(overrides or {})}
    folder = Path(kept.directory)
    as_stream = {**all_overrides, "settings.mode": "streaming", "settings.embedded_mode": "streaming"}
    if functions_from is None:
        functions = _no_kept_functions(kept)
    else:
        functions = functions_beside(*function_folders(kept, functions_from))
    source = SourceText(kept.file_name, kept.text)
    tables, project = kept.catalog_tables, kept.project
    loaded = load_text(
        source, folder, all_variables, as_stream, functions=functions, catalog_tables=tables, project=project
    )
    path = Path(kept.file_name)
    text = text_to_keep(path, loaded, all_variables, all_overrides, folder)
    return _compile(path, loaded, text, kept.table_rows)


def compile_sent(text: PipelineText, variables: Mapping[str, str], modules: Path) -> CompiledPipeline:
    """Everything up to the job graph, from the text of a pipeline that another process has compiled, to the same as there.

    Args:
        text: what is kept of it.
        variables: values for `${NAME}`, with those that are withheld.
        modules: where the modules that were beside it are in this process.

    Raises:
        PipelineError: as `compile_pipeline`.
    """
    source, functions = SourceText(text.file_name, text.text), functions_beside(*function_folders(text, modules))
    folder, tables, project = Path(text.directory), text.catalog_tables, text.project
    loaded = load_text(
        source, folder, variables, text.overrides, functions=functions, catalog_tables=tables, project=project
    )
    return _compile(Path(text.file_name), loaded, text, text.table_rows)


def _no_kept_functions(kept: PipelineText) -> FunctionScopes:
    return no_functions(
        "functions of a pipeline that is kept with its state are imported only from a folder that you name; the state names "
        f"'{kept.directory}'",
        f"if that is the folder of your pipeline: --functions-from {shlex.quote(kept.directory)}, or give the pipeline's file",
    )


def _compile(
    path: Path, loaded: LoadedPipeline, text: PipelineText, rows: Mapping[str, int] | None
) -> CompiledPipeline:
    with bounded_nesting(str(path)):
        if rows is None or not loaded.plan.settings.join_reorder:
            rows = table_rows(loaded.plan)
        return _planned(path, loaded, replace(text, table_rows=rows))


def _planned(path: Path, loaded: LoadedPipeline, text: PipelineText) -> CompiledPipeline:
    settings = loaded.plan.settings
    optimised = route_row_errors(optimise(loaded.plan, rules_with(order_by_sizes(text.table_rows))))
    sinks: tuple[Transformation, ...] = ()
    if settings.mode != BATCH:
        _check_changelogs(optimised, path)
        sinks = lower(optimised)
    stream_graph = StreamGraph(loaded.plan.name, (), (), graph_settings(settings))
    if sinks:  # there are none in batch mode, and a script may only describe tables
        stream_graph = build_stream_graph(loaded.plan.name, sinks, stream_graph.settings)
    job_graph = build_job_graph(stream_graph)
    warnings = loaded.diagnostics + _shown(wrong_patterns(loaded.plan), loaded.plan, path)
    if settings.mode != BATCH:  # a batch has no late rows
        warnings += _shown(superseded_rows(optimised), loaded.plan, path)
    return CompiledPipeline(
        loaded.plan, optimised, sinks, stream_graph, job_graph, warnings, text, loaded.outputs, loaded.tables
    )


def _check_changelogs(plan: Plan, path: Path) -> None:
    """Raise PipelineError unless every operator and sink can take the changes that reach it."""
    problems = check_changelogs(plan)
    if problems:
        raise PipelineError(_shown(problems, plan, path))


def _shown(problems: Sequence[Diagnostic], plan: Plan, path: Path) -> tuple[Diagnostic, ...]:
    """Problems of a plan with the lines of the text that they point into."""
    source = SourceText(str(path), plan.text)
    return tuple(
        p
        if p.location is None or p.location.file != source.file
        else replace(p, source_line=source.line(p.location.line))
        for p in problems
    )
