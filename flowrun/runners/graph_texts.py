"""The graphs of a job as text, JSON or Mermaid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.stream_graph import StreamGraph
from flowrun.graph.transformation import Transformation


def render_graphs(
    name: str,
    transformations: Sequence[Transformation],
    stream_graph: StreamGraph,
    job_graph: JobGraph,
    stage: str,
    output: str,
    workers: int | None,
) -> str:
    """One stage (`transformations`, `stream`, `job` or `execution`) as `text`, `json` or `mermaid`.

    Raises:
        PipelineError: so many `workers` are asked for (None: as many as is faster), and the job needs this process.
    """
    # Imported here: explaining knows every operator, running needs few of them.
    from flowrun.graph.explain import Format, render_job_graph, render_stream_graph, render_transformations
    from flowrun.runners.workers import worker_slots
    from flowrun.runtime.explain import render_execution_graph

    form = Format(output)
    renderers: dict[str, Callable[[], str]] = {
        "transformations": lambda: render_transformations(name, transformations, form),
        "stream": lambda: render_stream_graph(stream_graph, form),
        "job": lambda: render_job_graph(job_graph, form),
        "execution": lambda: render_execution_graph(
            build_execution_graph(job_graph), form, worker_slots(job_graph, workers)
        ),
    }
    return renderers[stage]()
