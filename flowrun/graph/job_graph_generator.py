"""StreamGraph → JobGraph: operators that may share a task become one vertex, the edges between tasks become data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from flowrun.api.operator import OperatorSpec
from flowrun.core.record import record
from flowrun.core.resources import ResourceSpec
from flowrun.errors import InternalError
from flowrun.graph.chaining import is_chainable
from flowrun.graph.hasher import operator_ids
from flowrun.graph.job_graph import (
    ChainEdge,
    ChainedOperator,
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    OutputEdge,
    ResultType,
)
from flowrun.graph.slot_sharing import check_co_location, check_resources, co_location_key, slot_sharing_groups
from flowrun.graph.stream_graph import ExchangeMode, ExecutionMode, NodeKind, StreamEdge, StreamGraph, StreamNode
from flowrun.operators.factories import IterationHeadFactory, IterationTailFactory


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """The job graph of a stream graph: pure, and the same in every run.

    Raises:
        PipelineError: two operators have one uid; operators of one co-location key cannot share slots; slot sharing groups
            contradict each other, or the resources of their operators.
    """
    return _JobGraphGenerator(graph).generate()


@record
class _Chain:
    """Nodes of one task in depth-first order (head first), and the edges inside and out of it."""

    nodes: tuple[StreamNode, ...]
    inner: tuple[StreamEdge, ...]
    outer: tuple[StreamEdge, ...]

    @property
    def head(self) -> StreamNode:
        return self.nodes[0]


class _JobGraphGenerator:
    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph
        self._ids = operator_ids(graph)
        self._chainable = {edge.edge_id for edge in graph.edges if is_chainable(edge, graph)}
        self._vertex_of: dict[int, str] = {}
        self._data_sets = {edge.edge_id: self._data_set_id(edge) for edge in graph.edges}

    def generate(self) -> JobGraph:
        """Chains grow from the nodes that are not chained to their input; by node id these are in topological order."""
        graph = self._graph
        chained = {edge.target for edge in graph.edges if edge.edge_id in self._chainable}
        chains = [self._chain_from(node) for node in graph.nodes if node.id not in chained]
        for chain in chains:
            for node in chain.nodes:
                self._vertex_of[node.id] = self._ids[chain.head.id]
        vertices = tuple(self._vertex(chain) for chain in chains)
        check_co_location(vertices)
        groups = slot_sharing_groups(graph.nodes, graph.settings.slot_sharing_groups)
        check_resources(groups, vertices, together=graph.settings.mode is not ExecutionMode.BATCH)
        return JobGraph(graph.name, vertices, graph.settings.job, groups)

    def _chain_from(self, head: StreamNode) -> _Chain:
        nodes: list[StreamNode] = []
        inner: list[StreamEdge] = []
        outer: list[StreamEdge] = []
        pending = [head]
        while pending:
            node = pending.pop()
            nodes.append(node)
            followers = []
            for edge in self._graph.out_edges(node.id):
                if edge.edge_id in self._chainable:
                    inner.append(edge)
                    followers.append(self._graph.node(edge.target))
                else:
                    outer.append(edge)
            pending += reversed(followers)
        return _Chain(tuple(nodes), tuple(inner), tuple(outer))

    def _vertex(self, chain: _Chain) -> JobVertex:
        head = chain.head
        position = {node.id: index for index, node in enumerate(chain.nodes)}
        min_resources, preferred_resources = ResourceSpec(), ResourceSpec()
        for node in chain.nodes:
            min_resources = min_resources.merge(node.min_resources)
            preferred_resources = preferred_resources.merge(node.preferred_resources)
        return JobVertex(
            vertex_id=self._ids[head.id],
            name=chain_name(chain.nodes, chain.inner),
            parallelism=head.parallelism,
            max_parallelism=head.max_parallelism,
            operators=tuple(self._operator(node) for node in chain.nodes),
            chain_edges=tuple(
                ChainEdge(position[e.source], position[e.target], e.tag, self._data_sets[e.edge_id], e.schema)
                for e in chain.inner
            ),
            inputs=tuple(self._job_edge(edge) for edge in self._graph.in_edges(head.id)),
            output_edges=tuple(
                OutputEdge(
                    position[e.source],
                    result,
                    e.partitioner,
                    e.schema,
                    e.tag,
                    e.buffer_timeout_ms,
                    exact_watermarks=self._graph.node(e.target).exact_watermarks,
                )
                for result, e in enumerate(chain.outer)
            ),
            results=tuple(
                IntermediateDataSet(
                    self._data_sets[e.edge_id], self._vertex_of[e.source], self._result_type(e), e.partitioner
                )
                for e in chain.outer
            ),
            slot_sharing_group=head.slot_sharing_group,
            co_location_key=co_location_key(chain.nodes),
            min_resources=min_resources,
            preferred_resources=preferred_resources,
            max_parallelism_given=any(node.max_parallelism_given for node in chain.nodes),
        )

    def _operator(self, node: StreamNode) -> ChainedOperator:
        return ChainedOperator(
            operator_id=self._ids[node.id],
            name=node.name,
            uid=node.uid,
            factory=node.factory or _iteration_factory(node),
            schema=node.schema,
            state_keys=node.state_keys,
            source=node.source,
            sink=node.sink,
            exact_watermarks=node.exact_watermarks,
            exact_behind=node.exact_behind,
            sorted_inputs=node.sorted_inputs,
            written_at=node.written_at,
        )

    def _job_edge(self, edge: StreamEdge) -> JobEdge:
        return JobEdge(
            data_set_id=self._data_sets[edge.edge_id],
            source=self._vertex_of[edge.source],
            target=self._vertex_of[edge.target],
            input_index=edge.input_index,
            partitioner=edge.partitioner,
            schema=edge.schema,
        )

    def _data_set_id(self, edge: StreamEdge) -> str:
        """Stable like operator ids; the number at the end of an edge's id tells parallel edges apart."""
        number = edge.edge_id.rpartition("_")[2]
        text = f"{self._ids[edge.source]} {self._ids[edge.target]} {number}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _result_type(self, edge: StreamEdge) -> ResultType:
        match edge.exchange:
            case ExchangeMode.PIPELINED:
                return ResultType.PIPELINED
            case ExchangeMode.BATCH:
                return ResultType.BLOCKING
            case ExchangeMode.UNDEFINED:
                batch = self._graph.settings.mode is ExecutionMode.BATCH
                return ResultType.BLOCKING if batch else ResultType.PIPELINED


def chain_name(nodes: tuple[StreamNode, ...], inner: tuple[StreamEdge, ...]) -> str:
    """The name of a chain in the field's form: `A -> B`, and `A -> (B -> C, D)` where it branches. `nodes[0]` is the head."""
    followers: Mapping[int, list[int]] = {node.id: [] for node in nodes}
    for edge in inner:
        followers[edge.source].append(edge.target)
    names: dict[int, str] = {}
    for node in reversed(nodes):  # depth-first order: followers come after the node that calls them
        after = [names[follower] for follower in followers[node.id]]
        tail = after[0] if len(after) == 1 else f"({', '.join(after)})"
        names[node.id] = f"{node.name} -> {tail}" if after else node.name
    return names[nodes[0].id]


def _iteration_factory(node: StreamNode) -> OperatorSpec:
    if node.iteration is None:
        raise InternalError(f"stream node '{node.name}' has no operator")
    if node.kind is NodeKind.ITERATION_HEAD:
        return IterationHeadFactory(node.iteration.iteration_id, node.iteration.wait_ms)
    return IterationTailFactory(node.iteration.iteration_id)
