"""Compiles a job that runs at another parallelism, from the text that it began with, whatever its file holds now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import ClusterError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.compile import CompiledPipeline, compile_kept, compile_sent, is_program
from flowrun.runners.pipeline_text import withheld_values
from flowrun.runtime.cluster_messages import JobOpening, JobText

if TYPE_CHECKING:
    from flowrun.runners.program import CompiledProgram
    from flowrun.runtime.cluster.job_files import FetchFile

PARALLELISM = "settings.parallelism"
"""The path of the setting that a rescaled job has another value of."""


def at_parallelism(text: JobText, parallelism: int) -> JobText:
    """The text of a job at another parallelism."""
    kept = text.pipeline
    return replace(text, pipeline=replace(kept, overrides={**kept.overrides, PARALLELISM: str(parallelism)}))


@record(eq=False)
class Recompiling:
    """How a job is compiled at another parallelism.

    Attributes:
        compiled: the job as it began.
        sent: its text as other processes get it.
        functions_from: the folder that its Python functions are imported from, if its text was kept with state; None: that of its file.
    """

    compiled: CompiledPipeline | CompiledProgram
    sent: JobText
    functions_from: Path | None = None

    def compile(self, parallelism: int) -> CompiledPipeline | CompiledProgram:
        """The job at a parallelism.

        Raises:
            PipelineError: it cannot be: an operator needs another parallelism, or the maximal one is less.
            ClusterError: it is a program, which is not there any more as it was.
        """
        kept, at = self.compiled.text, {PARALLELISM: str(parallelism)}
        if self.functions_from is not None:
            return compile_kept(kept, self.sent.secrets, at, self.functions_from)
        variables = {**kept.variables, **self.sent.secrets}
        text, folder = replace(kept, overrides={**kept.overrides, **at}), Path(kept.directory)
        if not is_program(kept):
            return compile_sent(text, variables, folder)
        from flowrun.runners.program import compile_sent_program  # pipelines do not need the DataStream API

        file = folder / Path(kept.file_name).name
        if not file.is_file() or file.read_text(encoding="utf-8", errors="replace") != kept.text:
            raise ClusterError(f"the program {file} is not there as it was when the job began", hint="put it back")
        return compile_sent_program(text, variables, folder)

    def compile_opening(self, opening: JobOpening, _: FetchFile) -> JobGraph:
        """The job graph of a job that has been rescaled, in a process that was forked from this one. Raises as `compile`."""
        assert opening.text is not None
        return self.compile(int(opening.text.pipeline.overrides[PARALLELISM])).job_graph

    def text(self, compiled: CompiledPipeline | CompiledProgram) -> JobText:
        """The text of a job that was compiled here, for other processes."""
        return replace(self.sent, pipeline=compiled.text)


def recompiling(
    compiled: CompiledPipeline | CompiledProgram,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    functions_from: Path | None = None,
    sent: JobText | None = None,
) -> Recompiling:
    """How a job of the command line is compiled again, with its variables and overrides; see `Recompiling`."""
    if sent is None:
        sent = JobText(compiled.text, withheld_values(compiled.text, variables, overrides))
    return Recompiling(compiled, sent, functions_from)
