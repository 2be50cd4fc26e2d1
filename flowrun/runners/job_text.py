"""Jobs as text: what a process needs to compile a job that another process has compiled, and the compiling there."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.connectors.filesystem.table_path import relative_paths_start_nowhere
from flowrun.core.record import record
from flowrun.errors import ClusterError, FlowrunError
from flowrun.graph.job_graph import JobGraph
from flowrun.masking import learn_secret
from flowrun.runners.compile import CompiledPipeline, compile_sent, is_program
from flowrun.runners.job_modules import modules_of_job
from flowrun.runners.pipeline_text import withheld_values
from flowrun.runtime.cluster.job_files import FetchFile, JobFiles, users_cache
from flowrun.runtime.cluster_messages import JobOpening, JobText
from flowrun.state.checkpoints import PipelineText

if TYPE_CHECKING:
    from flowrun.runners.program import CompiledProgram


_OF_MISSING_MODULES = ("which is not installed", "there is no module", "ModuleNotFoundError")
_PACKAGES = "packages do not travel with a job: install those that its modules import on every machine of the cluster"


@record(eq=False)
class SentJob:
    """A job as it travels: its text, and the files that the text lists."""

    text: JobText
    files: JobFiles


def sent_job(
    pipeline: PipelineText,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    functions_from: Path | None = None,
) -> SentJob:
    """A job that this process has just compiled, from the text that its checkpoints keep and the command line.

    Args:
        pipeline: the text.
        variables: of the command line.
        overrides: of the command line.
        functions_from: the folder that its Python functions were imported from, if that is not the folder of the text.

    Raises:
        PipelineError: its modules cannot travel.
    """
    files = modules_of_job(pipeline, functions_from)
    return SentJob(JobText(pipeline, withheld_values(pipeline, variables, overrides), files.files), files)


def compile_opening(opening: JobOpening, fetch: FetchFile) -> JobGraph:
    """The job graph of a job that is about to be opened in this process, which becomes a process of that job: see `compile_text`.

    Raises:
        ClusterError: it cannot be compiled here; says on which machine, and what to do.
    """
    if opening.text is None:
        raise ClusterError(f"job '{opening.job_name}' came without its text")
    try:
        return compile_text(opening.text, fetch).job_graph
    except FlowrunError as error:
        raise ClusterError(
            f"job '{opening.job_name}' cannot be compiled on {socket.gethostname()}: {error.message}",
            hint=_PACKAGES if any(sign in error.message for sign in _OF_MISSING_MODULES) else error.hint,
        ) from error


def compile_text(text: JobText, fetch: FetchFile) -> CompiledPipeline | CompiledProgram:
    """What another process has compiled, compiled here. For a process that runs no other job.

    Its working directory becomes that of the job if that is there; else relative paths of tables are errors. The modules that came
    with the job are laid out in a folder of its own, which is behind everything else on Python's path for imports while the job runs.

    Args:
        text: of the job.
        fetch: gives the files that it lists.

    Raises:
        ClusterError: a file is refused or cannot be fetched.
        PipelineError: the text has errors here, such as an environment variable that is not set.
    """
    kept = text.pipeline
    for secret in text.secrets.values():
        learn_secret(secret)
    modules = users_cache().lay_out(text.files, fetch)
    if os.path.isdir(kept.working_directory or os.curdir):
        os.chdir(kept.working_directory or os.curdir)
    else:
        os.chdir(modules)
        relative_paths_start_nowhere(kept.working_directory)
    sys.path.append(str(modules))
    variables = {**kept.variables, **text.secrets}
    if is_program(kept):
        from flowrun.runners.program import compile_sent_program  # pipelines do not need the DataStream API

        return compile_sent_program(kept, variables, modules)
    return compile_sent(kept, variables, modules)
