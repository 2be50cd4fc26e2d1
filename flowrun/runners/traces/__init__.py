"""Traces of a job for OpenTelemetry: its checkpoints, starts and restarts. Nothing of it is imported for jobs that report none."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from flowrun.graph.job_graph import JobGraph

if TYPE_CHECKING:
    from flowrun.runners.traces.reporter import TracedJob


def check_traces(job_graph: JobGraph) -> None:
    """Pass if the spans of a job can be sent, or need not be.

    Raises:
        SetupError: the package for it is not installed, or cannot be imported.
    """
    if job_graph.settings.traces:
        from flowrun.runners.traces.reporter import check_library

        check_library()


def traced(job: TracedJob, job_graph: JobGraph) -> AbstractContextManager[None]:
    """A context in which the spans of a job are sent, if its settings ask for that; at its end the last ones are.

    A collector that cannot be reached is told of in the log, and costs the job a moment at its end.

    Raises:
        SetupError: as `check_traces`.
    """
    if not job_graph.settings.traces:
        return nullcontext()
    from flowrun.runners.traces.reporter import reporting

    return reporting(job, job_graph.name)
