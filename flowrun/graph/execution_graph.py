"""The ExecutionGraph: the parallel version of a JobGraph as pure values; tasks are built from it, schedulers walk it.

Per job vertex there are `parallelism` execution vertices; per data set and producer subtask one result partition, cut into one
subpartition a consumer; per job edge and consumer subtask one input gate with one channel a subpartition that it reads.
Nothing here changes while a job runs: the job master of `flowrun.runtime` keeps attempts and their states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from flowrun.api.operator import uses_event_time
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import InternalError
from flowrun.graph.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, OutputEdge, ResultType
from flowrun.graph.partitioner import DistributionPattern, Partitioner


@dataclass(frozen=True, slots=True, order=True)
class ExecutionVertexId:
    """One subtask of one job vertex."""

    vertex_id: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex_id}_{self.subtask}"


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """What one producer subtask writes of one data set."""

    data_set_id: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.data_set_id}#{self.subtask}"


@record
class Channel:
    """One input channel: it reads exactly one subpartition. `producer` is the subtask that writes it."""

    partition: PartitionId
    subpartition: int
    producer: ExecutionVertexId


@record
class Consumer:
    """The reader of one subpartition: channel `channel` of gate `gate` (positions) of the consumer subtask."""

    vertex: ExecutionVertexId
    gate: int
    channel: int


@record
class IntermediateResultPartition:
    """What one subtask produces for one job edge.

    Attributes:
        consumers: `consumers[k]` reads subpartition k; all-to-all: subpartition k ↔ consumer subtask k; pointwise: the near share.
        output: the edge of the producer's chain that writes here: operator position, partitioner, side-output tag, buffer timeout.
        watermarks_may_wait: see `InputGate`.
    """

    id: PartitionId
    type: ResultType
    partitioner: Partitioner
    output: OutputEdge
    consumers: tuple[Consumer, ...]
    watermarks_may_wait: bool = False

    @property
    def subpartitions(self) -> int:
        """Number of subpartitions, at least 1."""
        return len(self.consumers)


@record
class InputGate:
    """What one subtask reads through one job edge. Gates of one `input_index` form a union gate.

    Attributes:
        channels: in order of the producer subtask.
        watermarks_may_wait: neither who reads nor an operator behind uses event time, so watermarks may come behind rows that were sent
            later.
    """

    data_set_id: str
    input_index: int
    type: ResultType
    partitioner: Partitioner
    schema: Schema
    channels: tuple[Channel, ...]
    watermarks_may_wait: bool = False


@record
class ExecutionVertex:
    """One subtask: `partitions[i]` belongs to `job_vertex.results[i]`, `gates[i]` to `job_vertex.inputs[i]`."""

    id: ExecutionVertexId
    job_vertex: JobVertex
    gates: tuple[InputGate, ...]
    partitions: tuple[IntermediateResultPartition, ...]

    @property
    def subtask(self) -> int:
        """0-based index among the subtasks of its job vertex."""
        return self.id.subtask

    @property
    def name(self) -> str:
        """As users see it: `Source -> Filter (1/2)`."""
        return f"{self.job_vertex.name} ({self.id.subtask + 1}/{self.job_vertex.parallelism})"


@record
class ExecutionJobVertex:
    """All subtasks of one job vertex."""

    job_vertex: JobVertex
    vertices: tuple[ExecutionVertex, ...]

    @property
    def parallelism(self) -> int:
        """Number of subtasks."""
        return len(self.vertices)


@record(slots=False)
class ExecutionGraph:
    """The parallel job: job vertices in topological order, subtasks in index order."""

    job_graph: JobGraph
    job_vertices: tuple[ExecutionJobVertex, ...]

    @cached_property
    def _by_id(self) -> dict[ExecutionVertexId, ExecutionVertex]:
        return {vertex.id: vertex for vertex in self.all_vertices()}

    def all_vertices(self) -> Iterator[ExecutionVertex]:
        """Every subtask in topological order: the order of scheduling."""
        for job_vertex in self.job_vertices:
            yield from job_vertex.vertices

    def vertex(self, vertex_id: ExecutionVertexId) -> ExecutionVertex:
        """The subtask with this id. Raises KeyError."""
        return self._by_id[vertex_id]

    def job_vertex(self, vertex_id: str) -> ExecutionJobVertex:
        """All subtasks of the job vertex with this id. Raises KeyError."""
        for job_vertex in self.job_vertices:
            if job_vertex.job_vertex.vertex_id == vertex_id:
                return job_vertex
        raise KeyError(vertex_id)


def pointwise_targets(producer: int, producers: int, consumers: int) -> range:
    """The consumer subtasks that one producer subtask connects to when connections are pointwise.

    The arithmetic of Apache Flink's `EdgeManagerBuildUtil.connectPointwise`, so that shares are equal to within one.

    >>> [list(pointwise_targets(p, 2, 3)) for p in range(2)]
    [[0, 1], [2]]
    >>> [list(pointwise_targets(p, 3, 2)) for p in range(3)]
    [[0], [1], [1]]
    """
    if producers > consumers:
        consumer = ((producer + 1) * consumers - 1) // producers
        return range(consumer, consumer + 1)
    start = (producer * consumers + producers - 1) // producers
    stop = ((producer + 1) * consumers + producers - 1) // producers
    return range(start, stop)


def pointwise_sources(consumer: int, producers: int, consumers: int) -> range:
    """The producer subtasks that one consumer subtask reads when connections are pointwise: the inverse of `pointwise_targets`.

    >>> [list(pointwise_sources(c, 3, 2)) for c in range(2)]
    [[0], [1, 2]]
    >>> [list(pointwise_sources(c, 2, 3)) for c in range(3)]
    [[0], [0], [1]]
    """
    if producers > consumers:
        return range(consumer * producers // consumers, (consumer + 1) * producers // consumers)
    producer = consumer * producers // consumers
    return range(producer, producer + 1)


def consumers_of(partitioner: Partitioner, producer: int, producers: int, consumers: int) -> range:
    """The consumer subtasks of one producer subtask, in subpartition order."""
    if partitioner.pattern is DistributionPattern.POINTWISE:
        return pointwise_targets(producer, producers, consumers)
    return range(consumers)


def _producers_of(partitioner: Partitioner, consumer: int, producers: int, consumers: int) -> range:
    if partitioner.pattern is DistributionPattern.POINTWISE:
        return pointwise_sources(consumer, producers, consumers)
    return range(producers)


def build_execution_graph(job_graph: JobGraph) -> ExecutionGraph:
    """The execution graph of a job graph: pure, and equal for equal job graphs.

    Raises:
        InternalError: the job graph is inconsistent (an edge without its data set, vertices out of topological order).
    """
    builder = _Builder(job_graph)
    return ExecutionGraph(job_graph, tuple(builder.expand(vertex) for vertex in job_graph.vertices))


class _Builder:
    """Looks up both ends of each data set while vertices are expanded."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._vertices = {vertex.vertex_id: vertex for vertex in job_graph.vertices}
        self._data_sets = {d.data_set_id: d for v in job_graph.vertices for d in v.results}
        self._edges: dict[str, tuple[JobEdge, int]] = {}
        seen: set[str] = set()
        for vertex in job_graph.vertices:
            for gate, edge in enumerate(vertex.inputs):
                if edge.data_set_id not in self._data_sets or edge.source not in seen:
                    raise InternalError(
                        f"job graph '{job_graph.name}': '{vertex.name}' reads data set {edge.data_set_id}, "
                        "which no earlier vertex produces"
                    )
                if edge.data_set_id in self._edges:
                    raise InternalError(f"job graph '{job_graph.name}': data set {edge.data_set_id} is read twice")
                self._edges[edge.data_set_id] = (edge, gate)
            seen.add(vertex.vertex_id)
        self._use_event_time = _vertices_that_use_event_time(job_graph)

    def expand(self, vertex: JobVertex) -> ExecutionJobVertex:
        outputs = {edge.result: edge for edge in vertex.output_edges}
        subtasks = []
        for subtask in range(vertex.parallelism):
            gates = tuple(self._gate(edge, subtask) for edge in vertex.inputs)
            partitions = tuple(
                self._partition(vertex, data_set, outputs[position], subtask)
                for position, data_set in enumerate(vertex.results)
            )
            vertex_id = ExecutionVertexId(vertex.vertex_id, subtask)
            subtasks.append(ExecutionVertex(vertex_id, vertex, gates, partitions))
        return ExecutionJobVertex(vertex, tuple(subtasks))

    def _gate(self, edge: JobEdge, subtask: int) -> InputGate:
        producers = self._vertices[edge.source].parallelism
        consumers = self._vertices[edge.target].parallelism
        channels = []
        for producer in _producers_of(edge.partitioner, subtask, producers, consumers):
            targets = consumers_of(edge.partitioner, producer, producers, consumers)
            channels.append(
                Channel(
                    PartitionId(edge.data_set_id, producer),
                    targets.index(subtask),
                    ExecutionVertexId(edge.source, producer),
                )
            )
        kind = self._data_sets[edge.data_set_id].type
        return InputGate(
            edge.data_set_id,
            edge.input_index,
            kind,
            edge.partitioner,
            edge.schema,
            tuple(channels),
            watermarks_may_wait=edge.target not in self._use_event_time,
        )

    def _partition(
        self, vertex: JobVertex, data_set: IntermediateDataSet, output: OutputEdge, subtask: int
    ) -> IntermediateResultPartition:
        if data_set.data_set_id not in self._edges:
            raise InternalError(f"'{vertex.name}' produces data set {data_set.data_set_id}, which nothing reads")
        edge, gate = self._edges[data_set.data_set_id]
        producers, consumers = vertex.parallelism, self._vertices[edge.target].parallelism
        readers = []
        for consumer in consumers_of(edge.partitioner, subtask, producers, consumers):
            channel = _producers_of(edge.partitioner, consumer, producers, consumers).index(subtask)
            readers.append(Consumer(ExecutionVertexId(edge.target, consumer), gate, channel))
        return IntermediateResultPartition(
            PartitionId(data_set.data_set_id, subtask),
            data_set.type,
            data_set.partitioner,
            output,
            tuple(readers),
            watermarks_may_wait=edge.target not in self._use_event_time,
        )


def _vertices_that_use_event_time(job_graph: JobGraph) -> set[str]:
    """The vertices of which an operator, or one of a vertex behind, sends what depends on watermarks."""
    found: set[str] = set()
    targets: dict[str, list[str]] = {}
    for vertex in reversed(job_graph.vertices):
        if any(uses_event_time(operator.factory) for operator in vertex.operators) or not found.isdisjoint(
            targets.get(vertex.vertex_id, ())
        ):
            found.add(vertex.vertex_id)
        for edge in vertex.inputs:
            targets.setdefault(edge.source, []).append(vertex.vertex_id)
    return found
