"""The pipelines of a folder as jobs of a cluster: compiled together, submitted from where they were, and stopped together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.cluster_job import as_submitted
from flowrun.cli.console import say, show_diagnostics
from flowrun.cli.job import JobRun
from flowrun.cli.recovering import newest_of
from flowrun.cli.restoring import in_order_of
from flowrun.core.record import record
from flowrun.errors import Diagnostic, FlowrunError, PipelineError
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.projects.graph import same_name
from flowrun.runners.projects.members import is_program_file, of_file, pipeline_files
from flowrun.runners.recompiling import recompiling
from flowrun.runners.session.client import ClusterClient
from flowrun.runners.workers import check_runs_elsewhere, slots_needed
from flowrun.state.storage.leases import holding_leases


@record(eq=False)
class ServedPipelines:
    """The pipelines of a folder.

    Attributes:
        compiled: file → its pipeline.
        variables: with which they were compiled.
        overrides: with which they were compiled.
        view: what is shown.
    """

    compiled: Mapping[Path, CompiledPipeline]
    variables: Mapping[str, str]
    overrides: Mapping[str, str]
    view: ViewOptions

    @property
    def slots(self) -> int:
        """How many slots all of them need at one time."""
        return sum(slots_needed(pipeline.job_graph) for pipeline in self.compiled.values())

    def submit(self, client: ClusterClient) -> None:
        """Run them all, each from its newest checkpoint, or from the savepoint with which it was stopped since.

        Raises:
            PipelineError: a checkpoint cannot be read; those before it run.
            ClusterError: a job was not taken; those before it run.
        """
        for file, compiled in self.compiled.items():
            with holding_leases():  # the state stays until the cluster's own process holds it
                run = self._run(file, compiled)
                client.submit(*as_submitted(run, self.variables, self.overrides))
            if not self.view.quiet:
                begins = "begins" if run.restored is None else f"goes on from {run.restored.folder}"
                say(f"'{compiled.job_graph.name}' ({file}) {begins}")

    def _run(self, file: Path, compiled: CompiledPipeline) -> JobRun:
        takes_checkpoints = compiled.job_graph.settings.checkpoint is not None
        restored = newest_of(compiled.job_graph) if takes_checkpoints else None
        if restored is not None:
            compiled = in_order_of(compiled, restored, file, self.variables, self.overrides)
        again = recompiling(compiled, self.variables, self.overrides)
        return JobRun(compiled, self.view, restored, recompiling=again)


def compile_served(
    folder: Path, variables: Mapping[str, str], overrides: Mapping[str, str], view: ViewOptions
) -> ServedPipelines:
    """The pipelines of a folder and of those in it: files .yaml, .yml and .sql, but for tests and what is hidden.

    A script that declares tables and runs nothing is left out, and so are programs.

    Raises:
        PipelineError: the folder has none, or some have errors, or two have one name; carries all problems.
    """
    compiled: dict[Path, CompiledPipeline] = {}
    problems: list[Diagnostic] = []
    named: dict[str, Path] = {}
    for file in pipeline_files(folder):
        if is_program_file(file):
            if not view.quiet:
                say(f"note: {file} is a program, which is not served: run it by itself")
            continue
        try:
            pipeline = _compile(file, variables, overrides)
        except PipelineError as error:
            problems += (of_file(file, problem) for problem in error.diagnostics)
            continue
        except FlowrunError as error:
            problems.append(Diagnostic(f"{file}: {error.message}", hint=error.hint))
            continue
        if pipeline is None:
            continue
        compiled[file] = pipeline
        name = pipeline.job_graph.name
        if (other := named.setdefault(name, file)) != file:
            problems.append(same_name(str(other), str(file), name))
    if problems:
        raise PipelineError(problems)
    if not compiled:
        raise PipelineError.of(f"there are no pipelines in '{folder}'", "they are files .yaml, .yml or .sql")
    if not view.quiet:
        show_diagnostics(warning for pipeline in compiled.values() for warning in pipeline.warnings)
    return ServedPipelines(compiled, variables, overrides, view)


def _compile(file: Path, variables: Mapping[str, str], overrides: Mapping[str, str]) -> CompiledPipeline | None:
    pipeline = compile_pipeline(file, variables, overrides)
    if not pipeline.runs:
        return None
    if pipeline.is_batch:
        raise PipelineError.of("a pipeline in batch mode is not served", "run it: flowrun run --mode batch")
    check_runs_elsewhere(pipeline.job_graph)
    return pipeline
