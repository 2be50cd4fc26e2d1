"""Bounded sources: which subtasks must have ended before the others begin to read. Pure.

A subtask of such a source that gets no split holds event time back until whoever reads it knows of its end; so does a subtask that reads
from none but those. How long that takes must not decide which rows are late, or between which rows timers fire.
"""

from __future__ import annotations

from collections.abc import Collection

from flowrun.api.source import Boundedness
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.graph.job_graph import ResultType
from flowrun.runtime.jobmaster.regions import regions


class OrderedSources:
    """The sources of a job that begin in order.

    Attributes:
        vertices: those with bounded sources, all of whose subtasks run at the same time. Subtasks of several pipelined regions may run
            one after the other; nothing behind them reads from two of them, either. None in batch mode, where event time stands
            still until the end.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        found = {
            vertex.vertex_id
            for vertex in graph.job_graph.vertices
            for operator in vertex.operators
            if operator.source is not None
            and operator.source.boundedness is Boundedness.BOUNDED
            and vertex.parallelism > 1
            and not graph.job_graph.settings.batch_mode
        }
        spread = {
            v: sum(any(m.vertex_id == v for m in r.vertices) for r in (regions(graph) if found else ())) for v in found
        }
        self.vertices = frozenset(v for v, count in spread.items() if count == 1)

    def must_end(self, unneeded: Collection[ExecutionVertexId]) -> dict[ExecutionVertexId, set[ExecutionVertexId]]:
        """Of each source subtask without a split: itself, and who reads from it, directly or not, and from no other than such."""
        reached = {source: {source} for source in unneeded}
        ending = set(unneeded)
        for vertex in self._graph.all_vertices():
            producers = {channel.producer for gate in vertex.gates for channel in gate.channels}
            if producers and producers <= ending and all(g.type is ResultType.PIPELINED for g in vertex.gates):
                ending.add(vertex.id)
                for members in reached.values():
                    if members & producers:
                        members.add(vertex.id)
        return reached
