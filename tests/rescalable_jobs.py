"""Pipelines that run in this process and can be rescaled, as those of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.recompiling import recompiling
from flowrun.runners.rescaling import JobVersion, RescalableJob, Rescaling

StartNext = Callable[[JobVersion, JobStateOptions], LocalJob]


def start_version(version: JobVersion, options: JobStateOptions) -> LocalJob:
    return start_embedded(version.job_graph, state=options)


def start_rescalable(
    file: Path, state: Path, start_next: StartNext = start_version, overrides: Mapping[str, str] | None = None
) -> RescalableJob:
    """Start a pipeline afresh. `start_next` starts the executions that follow the first one."""
    compiled = compile_pipeline(file, {}, overrides or {})
    again = recompiling(compiled, {}, overrides or {})

    def compile_at(parallelism: int) -> JobVersion:
        found = again.compile(parallelism)
        return JobVersion(parallelism, found.job_graph, found.text)

    options = JobStateOptions(str(state), compiled.text)
    first = JobVersion(compiled.plan.settings.parallelism, compiled.job_graph, compiled.text)
    job = start_embedded(compiled.job_graph, state=options)
    return RescalableJob(job, first, options, Rescaling(compile_at, lambda _: None, start_next))
