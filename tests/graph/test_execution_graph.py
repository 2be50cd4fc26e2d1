"""The parallel graph: every subpartition has exactly one reader, and every channel something to read."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.errors import InternalError
from flowrun.graph.execution_graph import (
    ExecutionGraph,
    ExecutionVertexId,
    PartitionId,
    build_execution_graph,
)
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    KeyGroupPartitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flowrun.operators.factories import CalcFactory
from flowrun.operators.rows.factories import AssignTimeFactory
from tests.job_graphs import Edge, Vertex, job_graph

ALL_TO_ALL = [
    RebalancePartitioner(),
    ShufflePartitioner(),
    BroadcastPartitioner(),
    GlobalPartitioner(),
    KeyGroupPartitioner((0,)),
]


def pair(producers: int, consumers: int, partitioner: object) -> ExecutionGraph:
    vertices = [Vertex("a", producers), Vertex("b", consumers)]
    return build_execution_graph(job_graph(vertices, [Edge("a", "b", partitioner)]))  # type: ignore[arg-type]


def connections(graph: ExecutionGraph) -> list[list[int]]:
    """For each subtask of `a`, the subtasks of `b` it writes to."""
    return [[c.vertex.subtask for p in v.partitions for c in p.consumers] for v in graph.job_vertex("a").vertices]


def check_wiring(graph: ExecutionGraph) -> None:
    """Partitions and channels describe the same connections from both ends."""
    written = {
        (partition.id, index): consumer
        for vertex in graph.all_vertices()
        for partition in vertex.partitions
        for index, consumer in enumerate(partition.consumers)
    }
    read = {}
    for vertex in graph.all_vertices():
        for gate_index, gate in enumerate(vertex.gates):
            assert gate.channels, "a gate without channels would never end"
            producers = [c.producer.subtask for c in gate.channels]
            assert producers == sorted(set(producers))
            for channel_index, channel in enumerate(gate.channels):
                place = (channel.partition, channel.subpartition)
                assert place not in read, "a subpartition is read once"
                read[place] = (vertex.id, gate_index, channel_index)
                assert channel.producer == ExecutionVertexId(channel.producer.vertex_id, channel.partition.subtask)
    assert read == {place: (c.vertex, c.gate, c.channel) for place, c in written.items()}
    for vertex in graph.all_vertices():
        assert len(vertex.partitions) == len(vertex.job_vertex.results)
        assert all(p.subpartitions > 0 for p in vertex.partitions)


@pytest.mark.parametrize("partitioner", ALL_TO_ALL, ids=lambda p: p.label)
def test_all_to_all_subpartition_k_belongs_to_consumer_k(partitioner: object) -> None:
    graph = pair(2, 3, partitioner)
    assert connections(graph) == [[0, 1, 2], [0, 1, 2]]
    for vertex in graph.job_vertex("b").vertices:
        (gate,) = vertex.gates
        assert [(c.partition.subtask, c.subpartition) for c in gate.channels] == [
            (0, vertex.subtask),
            (1, vertex.subtask),
        ]
    check_wiring(graph)


@pytest.mark.parametrize(
    ("producers", "consumers", "expected"),
    [
        (2, 2, [[0], [1]]),
        (2, 3, [[0, 1], [2]]),
        (3, 2, [[0], [1], [1]]),
        (4, 2, [[0], [0], [1], [1]]),
        (2, 4, [[0, 1], [2, 3]]),
        (1, 3, [[0, 1, 2]]),
        (3, 1, [[0], [0], [0]]),
        (5, 3, [[0], [1], [1], [2], [2]]),
    ],
)
def test_pointwise_subtasks_connect_to_their_near_share(
    producers: int, consumers: int, expected: list[list[int]]
) -> None:
    graph = pair(producers, consumers, RescalePartitioner())
    assert connections(graph) == expected
    check_wiring(graph)


@given(
    parallelisms=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    data=st.data(),
)
def test_every_subpartition_is_read_exactly_once_and_every_channel_exists(
    parallelisms: list[int], data: st.DataObject
) -> None:
    vertices = [Vertex(f"v{i}", p) for i, p in enumerate(parallelisms)]
    edges = []
    for _ in range(data.draw(st.integers(1, 6))):
        target = data.draw(st.integers(1, len(vertices) - 1))
        source = data.draw(st.integers(0, target - 1))
        choices = [*ALL_TO_ALL, RescalePartitioner()]
        if parallelisms[source] == parallelisms[target]:
            choices.append(ForwardPartitioner())
        edges.append(
            Edge(f"v{source}", f"v{target}", data.draw(st.sampled_from(choices)), data.draw(st.integers(0, 1)))
        )
    check_wiring(build_execution_graph(job_graph(vertices, edges)))


@given(producers=st.integers(1, 200), consumers=st.integers(1, 200))
def test_pointwise_shares_differ_by_at_most_one(producers: int, consumers: int) -> None:
    graph = pair(producers, consumers, RescalePartitioner())
    many = max(producers, consumers) // min(producers, consumers)
    shares = [len(v.gates[0].channels) for v in graph.job_vertex("b").vertices]
    assert set(shares) <= ({1} if consumers >= producers else {many, many + 1})


def test_each_job_edge_is_a_gate_of_its_own_with_its_input_index() -> None:
    vertices = [Vertex("a", 2), Vertex("b", 2), Vertex("join", 2)]
    edges = [
        Edge("a", "join", RebalancePartitioner(), 0),
        Edge("b", "join", ForwardPartitioner(), 0),
        Edge("a", "join", KeyGroupPartitioner((0,)), 1),
    ]
    graph = build_execution_graph(job_graph(vertices, edges))
    second = graph.vertex(ExecutionVertexId("join", 1))
    assert [g.input_index for g in second.gates] == [0, 0, 1]
    assert [len(g.channels) for g in second.gates] == [2, 1, 2]
    assert [p.id for p in graph.vertex(ExecutionVertexId("a", 1)).partitions] == [
        PartitionId("a-join-0", 1),
        PartitionId("a-join-2", 1),
    ]
    check_wiring(graph)


def test_partitions_carry_the_output_edge_that_writes_them() -> None:
    graph = pair(1, 2, KeyGroupPartitioner((0,)))
    (partition,) = graph.vertex(ExecutionVertexId("a", 0)).partitions
    assert partition.output == graph.job_graph.vertices[0].output_edges[0]
    assert partition.output.partitioner == partition.partitioner


def test_watermarks_may_wait_where_nothing_behind_uses_event_time() -> None:
    calc, window = CalcFactory(), AssignTimeFactory(0)
    vertices = [Vertex(name, 2, factory=calc) for name in ("source", "far", "near", "updating", "sink")]
    vertices.insert(4, Vertex("window", 2, factory=window))
    by_key = KeyGroupPartitioner((0,))
    reads = [("source", "far"), ("source", "updating"), ("far", "near"), ("near", "window"), ("updating", "sink")]
    graph = build_execution_graph(job_graph(vertices, [Edge(s, t, by_key) for s, t in reads]))
    for vertex in graph.all_vertices():
        waits = vertex.id.vertex_id in ("updating", "sink")
        assert all(gate.watermarks_may_wait is waits for gate in vertex.gates)
        for partition in vertex.partitions:
            assert partition.watermarks_may_wait is (partition.consumers[0].vertex.vertex_id in ("updating", "sink"))


def test_watermarks_do_not_wait_for_operators_of_ones_own() -> None:
    assert not any(
        gate.watermarks_may_wait for v in pair(2, 2, RebalancePartitioner()).all_vertices() for gate in v.gates
    )


def test_vertices_come_in_topological_order_and_are_named_for_users() -> None:
    graph = pair(2, 1, RebalancePartitioner())
    assert [v.name for v in graph.all_vertices()] == ["a (1/2)", "a (2/2)", "b (1/1)"]
    assert [str(v.id) for v in graph.all_vertices()] == ["a_0", "a_1", "b_0"]
    assert graph.job_vertex("a").parallelism == 2
    with pytest.raises(KeyError):
        graph.job_vertex("c")


def test_the_graph_is_a_value_that_survives_pickling() -> None:
    graph = pair(2, 3, KeyGroupPartitioner((0,)))
    assert graph == pair(2, 3, KeyGroupPartitioner((0,)))
    assert pickle.loads(pickle.dumps(graph)) == graph


class TestInconsistentJobGraphs:
    def consistent(self) -> JobGraph:
        return job_graph([Vertex("a"), Vertex("b")], [Edge("a", "b", ForwardPartitioner())])

    def test_vertices_out_of_order(self) -> None:
        graph = self.consistent()
        with pytest.raises(InternalError, match="'b' reads data set a-b-0, which no earlier vertex produces"):
            build_execution_graph(dataclasses.replace(graph, vertices=graph.vertices[::-1]))

    def test_a_data_set_that_nothing_reads(self) -> None:
        graph = self.consistent()
        with pytest.raises(InternalError, match="'a' produces data set a-b-0, which nothing reads"):
            build_execution_graph(dataclasses.replace(graph, vertices=graph.vertices[:1]))

    def test_a_data_set_that_is_read_twice(self) -> None:
        graph = self.consistent()
        reader = graph.vertices[1]
        twice = dataclasses.replace(reader, inputs=reader.inputs * 2)
        with pytest.raises(InternalError, match="data set a-b-0 is read twice"):
            build_execution_graph(dataclasses.replace(graph, vertices=(graph.vertices[0], twice)))
