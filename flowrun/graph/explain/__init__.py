"""Transformations, stream graph and job graph as stable text, JSON and Mermaid."""

from flowrun.graph.explain.drawing import Drawing, Format, render_drawing
from flowrun.graph.explain.render import render_job_graph, render_stream_graph, render_transformations

__all__ = [
    "Drawing",
    "Format",
    "render_drawing",
    "render_job_graph",
    "render_stream_graph",
    "render_transformations",
]
