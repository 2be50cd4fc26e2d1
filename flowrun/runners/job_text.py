"""Jobs as text: what a process needs to compile a job that another process has compiled, and the compiling there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flowrun.errors import ClusterError
from flowrun.graph.job_graph import JobGraph
from flowrun.masking import learn_secret
from flowrun.runners.compile import PROGRAM_SUFFIX, compile_sent
from flowrun.runners.pipeline_text import check_folders, withheld_values
from flowrun.runtime.cluster_messages import JobOpening, JobText
from flowrun.state.checkpoints import PipelineText


def job_text(pipeline: PipelineText, variables: Mapping[str, str], overrides: Mapping[str, str]) -> JobText:
    """A job as it travels, from the text that its checkpoints keep and the command line."""
    return JobText(pipeline, withheld_values(pipeline, variables, overrides))


def compile_opening(opening: JobOpening) -> JobGraph:
    """The job graph of a job that is about to be opened in this process, whose working directory becomes that of the job.

    Raises:
        ClusterError: it came without its text; or its program is another file here than where it was submitted.
        PipelineError: a folder is not there, or the text has errors here, such as an environment variable that is not set.
    """
    if opening.text is None:
        raise ClusterError(f"job '{opening.job_name}' came without its text")
    kept = opening.text.pipeline
    for secret in opening.text.secrets.values():
        learn_secret(secret)
    check_folders(kept)
    os.chdir(kept.working_directory or os.curdir)
    variables = {**kept.variables, **opening.text.secrets}
    if Path(kept.file_name).suffix.lower() != PROGRAM_SUFFIX:
        return compile_sent(kept, variables).job_graph
    from flowrun.runners.program import compile_program  # pipelines do not need the DataStream API

    file = Path(kept.directory) / Path(kept.file_name).name
    if not file.is_file() or file.read_text(encoding="utf-8", errors="replace") != kept.text:
        raise ClusterError(
            f"the program {file} is not here as it was submitted", hint="give all processes the same files"
        )
    return compile_program(Path(kept.file_name), variables, kept.overrides).job_graph
