"""Which blocking partitions of a job can be read, and which nobody needs any more. A part of the scheduler, and pure as it is.

A stage is a pipelined region: the subtasks that run at the same time. It starts when all blocking partitions that it reads are complete.
A partition is released once every region that reads it has finished: as long as one of them may be restarted, it may be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from flowrun.errors import PartitionLostError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, PartitionId
from flowrun.graph.job_graph import ResultType
from flowrun.runtime.jobmaster.regions import PipelinedRegion, regions

Holds = Callable[[ExecutionVertexId], bool]
"""Whether something is so of a subtask's present attempt."""


class Stages:
    """The regions of one job, and the blocking partitions that are complete.

    Args:
        graph: of the job. Without blocking partitions there is one stage for all that is connected, which starts at once.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self.regions: tuple[PipelinedRegion, ...] = regions(graph)
        self._region_of = {vertex: region for region in self.regions for vertex in region.vertices}
        self._written: dict[ExecutionVertexId, tuple[PartitionId, ...]] = {}
        self._readers: dict[PartitionId, list[PipelinedRegion]] = {}
        for vertex in graph.all_vertices():
            blocking = tuple(p.id for p in vertex.partitions if p.type is ResultType.BLOCKING)
            if blocking:
                self._written[vertex.id] = blocking
        for region in self.regions:
            for partition in region.reads:
                self._readers.setdefault(partition, []).append(region)
        self._complete: set[PartitionId] = set()
        self._producers = {p: vertex for vertex, written in self._written.items() for p in written}

    @property
    def are_several(self) -> bool:
        """Whether there is anything that starts later than the rest."""
        return bool(self._written)

    def is_available(self, partition: PartitionId) -> bool:
        """Whether a blocking partition can be read, from its beginning."""
        return partition in self._complete

    def written(self, vertex: ExecutionVertexId) -> tuple[PartitionId, ...]:
        """The blocking partitions that a subtask writes."""
        return self._written.get(vertex, ())

    def producer(self, partition: PartitionId) -> ExecutionVertexId:
        """Who writes a blocking partition."""
        return self._producers[partition]

    def finished(self, vertex: ExecutionVertexId) -> None:
        """A subtask came to its end: what it wrote is complete."""
        self._complete.update(self._written.get(vertex, ()))

    def restarted(self, vertices: Iterable[ExecutionVertexId]) -> None:
        """Subtasks begin again: what they wrote before is gone."""
        for vertex in vertices:
            self._complete.difference_update(self._written.get(vertex, ()))

    def failed(self, error: BaseException) -> None:
        """A subtask failed. If that is because a partition cannot be read any more, who wrote it must do so again."""
        if isinstance(error, PartitionLostError):
            self._complete.difference_update(PartitionId(error.data_set_id, number) for number in error.subtasks)

    def lost(self, vertices: Iterable[ExecutionVertexId]) -> list[PartitionId]:
        """What these subtasks wrote is gone; gives the partitions that were complete."""
        gone = [p for vertex in vertices for p in self._written.get(vertex, ()) if p in self._complete]
        self._complete.difference_update(gone)
        return gone

    def readers(self, partition: PartitionId) -> tuple[ExecutionVertexId, ...]:
        """A subtask of each stage that reads a blocking partition."""
        return tuple(region.vertices[0] for region in self._readers.get(partition, ()))

    def release(self, finished: ExecutionVertexId, is_finished: Holds) -> tuple[PartitionId, ...]:
        """The partitions that `finished` was the last to need; they are no longer complete."""
        region = self._region_of[finished]
        if not all(map(is_finished, region.vertices)):
            return ()
        done = tuple(
            p
            for p in region.reads
            if p in self._complete and all(is_finished(v) for reader in self._readers[p] for v in reader.vertices)
        )
        self._complete.difference_update(done)
        return done

    def left_alone(self, finished: Collection[ExecutionVertexId], is_finished: Holds) -> set[ExecutionVertexId]:
        """Subtasks of regions that have nothing left to do: finished here, and (`finished`) in what was restored."""
        known = frozenset(finished)
        done = (r for r in self.regions if known.issuperset(r.vertices) and all(map(is_finished, r.vertices)))
        return {vertex for region in done for vertex in region.vertices}
