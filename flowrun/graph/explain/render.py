"""One function a stage: value in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.graph.explain.drawing import Format, render_drawing
from flowrun.graph.explain.job import draw_job_graph
from flowrun.graph.explain.stream import draw_stream_graph
from flowrun.graph.explain.transformations import draw_transformations
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.stream_graph import StreamGraph
from flowrun.graph.transformation import Transformation


def render_transformations(name: str, sinks: Sequence[Transformation], output: Format = Format.TEXT) -> str:
    """The transformations of job `name` that `sinks` reach."""
    return render_drawing(draw_transformations(name, sinks), output)


def render_stream_graph(graph: StreamGraph, output: Format = Format.TEXT) -> str:
    """A stream graph. Raises `PipelineError` if two operators have one uid."""
    return render_drawing(draw_stream_graph(graph), output)


def render_job_graph(graph: JobGraph, output: Format = Format.TEXT) -> str:
    """A job graph."""
    return render_drawing(draw_job_graph(graph), output)
