"""Transformations, stream graph and job graph as stable text, JSON and Mermaid."""

from flowrun.graph.explain.drawing import Drawing, Format, render_drawing
from flowrun.graph.explain.job import render_job_graph
from flowrun.graph.explain.stream import render_stream_graph
from flowrun.graph.explain.transformations import render_transformations

__all__ = [
    "Drawing",
    "Format",
    "render_drawing",
    "render_job_graph",
    "render_stream_graph",
    "render_transformations",
]
