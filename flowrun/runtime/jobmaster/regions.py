"""Pipelined regions: the subtasks that must be restarted together, as their exchange cannot be read twice.

After Apache Flink's `PipelinedRegionComputeUtil` and `RestartPipelinedRegionFailoverStrategy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, PartitionId
from flowrun.graph.job_graph import ResultType


@record
class PipelinedRegion:
    """Subtasks connected by pipelined channels or co-location, in topological order.

    Attributes:
        vertices: the subtasks.
        reads: blocking partitions of other regions that this one consumes; it may start once they are complete.
    """

    vertices: tuple[ExecutionVertexId, ...]
    reads: tuple[PartitionId, ...]


def regions(graph: ExecutionGraph) -> tuple[PipelinedRegion, ...]:
    """The pipelined regions of a job, ordered by their first subtask; together they hold every subtask once.

    Regions that read each other's blocking partitions in a circle are merged: none of them could start first.
    """
    order = [vertex.id for vertex in graph.all_vertices()]
    groups = _Groups(order)
    co_located: dict[tuple[str, int], ExecutionVertexId] = {}
    for vertex in graph.all_vertices():
        for gate in vertex.gates:
            if gate.type is ResultType.PIPELINED:
                for channel in gate.channels:
                    groups.join(vertex.id, channel.producer)
        key = vertex.job_vertex.co_location_key
        if key is not None:
            groups.join(vertex.id, co_located.setdefault((key, vertex.subtask), vertex.id))
    _merge_circles(graph, groups)
    members: dict[ExecutionVertexId, list[ExecutionVertexId]] = {}
    for vertex_id in order:
        members.setdefault(groups.root(vertex_id), []).append(vertex_id)
    return tuple(PipelinedRegion(tuple(m), _reads(graph, set(m), m)) for m in members.values())


class FailoverTopology:
    """Which regions are restarted when one fails. What it needs to know of the job is looked up once, so that it costs what is restarted.

    Args:
        graph: the parallel job.
        found: its pipelined regions.
    """

    def __init__(self, graph: ExecutionGraph, found: tuple[PipelinedRegion, ...]) -> None:
        self._regions = found
        self._region_of = {vertex: index for index, region in enumerate(found) for vertex in region.vertices}
        self._producer_of = {p.id: self._region_of[v.id] for v in graph.all_vertices() for p in v.partitions}
        self._readers: dict[int, set[int]] = {}
        for index, region in enumerate(found):
            for partition in region.reads:
                self._readers.setdefault(self._producer_of[partition], set()).add(index)
        self._sources: list[set[str]] = [set() for _ in found]
        """Of each region the job vertices of its sources."""
        self._source_regions: dict[str, set[int]] = {}
        for vertex in graph.all_vertices():
            if not vertex.gates:
                self._sources[self._region_of[vertex.id]].add(vertex.id.vertex_id)
                self._source_regions.setdefault(vertex.id.vertex_id, set()).add(self._region_of[vertex.id])

    def subtasks_to_restart(
        self, failed: ExecutionVertexId | None, is_available: Callable[[PartitionId], bool]
    ) -> set[ExecutionVertexId]:
        """The subtasks of `regions_to_restart`; with None, as what failed is none of them, all of the job."""
        if failed is None:
            return set(self._region_of)
        return {vertex for region in self.regions_to_restart(failed, is_available) for vertex in region.vertices}

    def regions_to_restart(
        self, failed: ExecutionVertexId, is_available: Callable[[PartitionId], bool]
    ) -> tuple[PipelinedRegion, ...]:
        """The regions to restart when `failed` failed, in order.

        These are its own region; regions that must produce again a blocking partition that is needed and no longer available; every region
        that reads from a restarted one, since its input may come out differently; and all regions with a subtask of a source of which
        one is restarted: they share one split enumerator, which goes back to the checkpoint with its readers, so none may go on.
        """
        restart: set[int] = set()
        sources: set[str] = set()
        pending = [self._region_of[failed]]
        while pending:
            index = pending.pop()
            if index in restart:
                continue
            restart.add(index)
            pending += (self._producer_of[p] for p in self._regions[index].reads if not is_available(p))
            pending += self._readers.get(index, ())
            for source in self._sources[index] - sources:
                sources.add(source)
                pending += self._source_regions[source]
        return tuple(self._regions[index] for index in sorted(restart))


def _reads(
    graph: ExecutionGraph, inside: set[ExecutionVertexId], ordered: list[ExecutionVertexId]
) -> tuple[PartitionId, ...]:
    found: dict[PartitionId, None] = {}
    for vertex_id in ordered:
        for gate in graph.vertex(vertex_id).gates:
            for channel in gate.channels:
                if channel.producer not in inside:
                    found[channel.partition] = None
    return tuple(found)


class _Groups:
    """Disjoint sets of subtasks; the root of a set is its first member in topological order."""

    def __init__(self, order: list[ExecutionVertexId]) -> None:
        self._parent: dict[ExecutionVertexId, ExecutionVertexId] = {v: v for v in order}
        self._rank = {v: i for i, v in enumerate(order)}

    def root(self, vertex: ExecutionVertexId) -> ExecutionVertexId:
        while self._parent[vertex] != vertex:
            self._parent[vertex] = self._parent[self._parent[vertex]]
            vertex = self._parent[vertex]
        return vertex

    def join(self, one: ExecutionVertexId, other: ExecutionVertexId) -> None:
        first, second = sorted((self.root(one), self.root(other)), key=self._rank.__getitem__)
        self._parent[second] = first


def _merge_circles(graph: ExecutionGraph, groups: _Groups) -> None:
    """Join groups that depend on each other through blocking partitions."""
    inputs: dict[ExecutionVertexId, dict[ExecutionVertexId, None]] = {}
    for vertex in graph.all_vertices():
        mine = inputs.setdefault(groups.root(vertex.id), {})
        for gate in vertex.gates:
            for channel in gate.channels:
                theirs = groups.root(channel.producer)
                if theirs != groups.root(vertex.id):
                    mine[theirs] = None
    for component in _strong_components(inputs):
        for member in component[1:]:
            groups.join(component[0], member)


def _strong_components(
    inputs: Mapping[ExecutionVertexId, Iterable[ExecutionVertexId]],
) -> list[list[ExecutionVertexId]]:
    """Strongly connected components (Tarjan 1972), without recursion: a job may have thousands of subtasks.

    `graphlib` finds orders of graphs without cycles, not the components of one that has some.
    """
    number: dict[ExecutionVertexId, int] = {}
    low: dict[ExecutionVertexId, int] = {}
    stack: list[ExecutionVertexId] = []
    on_stack: set[ExecutionVertexId] = set()
    found: list[list[ExecutionVertexId]] = []
    for start in inputs:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        path = [(start, iter(inputs[start]))]
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    found.append(component)
            elif following not in number:
                number[following] = low[following] = len(number)
                stack.append(following)
                on_stack.add(following)
                path.append((following, iter(inputs[following])))
            elif following in on_stack:
                low[node] = min(low[node], number[following])
    return found
