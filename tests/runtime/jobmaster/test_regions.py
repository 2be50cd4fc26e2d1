"""What is restarted together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId, build_execution_graph
from flowrun.graph.job_graph import ResultType
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner, RescalePartitioner
from flowrun.runtime.jobmaster.regions import FailoverTopology, _strong_components, regions
from tests.job_graphs import Edge, Vertex, job_graph

PIPELINED, BLOCKING = ResultType.PIPELINED, ResultType.BLOCKING


def build(vertices: list[Vertex], edges: list[Edge]) -> ExecutionGraph:
    return build_execution_graph(job_graph(vertices, edges))


def shown(graph: ExecutionGraph) -> list[list[str]]:
    return [[str(v) for v in region.vertices] for region in regions(graph)]


def test_a_pipelined_shuffle_makes_one_region_of_everything() -> None:
    graph = build([Vertex("a", 2), Vertex("b", 2)], [Edge("a", "b", RebalancePartitioner())])
    assert shown(graph) == [["a_0", "a_1", "b_0", "b_1"]]


def test_pointwise_pipelines_are_regions_of_their_own() -> None:
    graph = build([Vertex("a", 2), Vertex("b", 2)], [Edge("a", "b", ForwardPartitioner())])
    assert shown(graph) == [["a_0", "b_0"], ["a_1", "b_1"]]


def test_unconnected_pipelines_are_regions_of_their_own() -> None:
    graph = build([Vertex("a"), Vertex("b"), Vertex("c")], [Edge("a", "c", ForwardPartitioner())])
    assert shown(graph) == [["a_0", "c_0"], ["b_0"]]


def test_a_blocking_exchange_separates_regions() -> None:
    graph = build([Vertex("a", 2), Vertex("b", 1)], [Edge("a", "b", RebalancePartitioner(), type=BLOCKING)])
    assert shown(graph) == [["a_0"], ["a_1"], ["b_0"]]
    assert [str(p) for p in regions(graph)[2].reads] == ["a-b-0#0", "a-b-0#1"]


def test_co_located_subtasks_are_restarted_together() -> None:
    graph = build([Vertex("head", 2, co_location_key="k"), Vertex("tail", 2, co_location_key="k")], [])
    assert shown(graph) == [["head_0", "tail_0"], ["head_1", "tail_1"]]


def test_regions_that_wait_for_each_other_are_merged() -> None:
    graph = build(
        [Vertex("a", 2), Vertex("b", 2), Vertex("c", 1)],
        [
            Edge("a", "b", ForwardPartitioner()),
            Edge("a", "b", RebalancePartitioner(), 1, BLOCKING),
            Edge("b", "c", RescalePartitioner(), type=BLOCKING),
        ],
    )
    assert shown(graph) == [["a_0", "a_1", "b_0", "b_1"], ["c_0"]]


def test_regions_that_wait_for_each_other_are_merged_wherever_they_are_in_a_job() -> None:
    edges = [
        Edge(a, b, exchange, number, kind)
        for a, b in (("a", "b"), ("c", "d"))
        for number, (exchange, kind) in enumerate(
            [(ForwardPartitioner(), PIPELINED), (RebalancePartitioner(), BLOCKING)]
        )
    ]
    graph = build([Vertex("a", 2), Vertex("b", 2), Vertex("c", 2), Vertex("d", 2)], edges)
    assert shown(graph) == [["a_0", "a_1", "b_0", "b_1"], ["c_0", "c_1", "d_0", "d_1"]]


def test_a_failure_restarts_its_region_and_all_readers_below() -> None:
    graph = build(
        [Vertex("a"), Vertex("b"), Vertex("c")],
        [
            Edge("a", "b", RebalancePartitioner(), type=BLOCKING),
            Edge("b", "c", RebalancePartitioner(), type=BLOCKING),
        ],
    )
    found = regions(graph)
    failed = ExecutionVertexId("b", 0)
    assert FailoverTopology(graph, found).regions_to_restart(failed, lambda _: True) == found[1:]


def test_a_failure_restarts_the_subtasks_of_its_sources_and_all_that_reads_them() -> None:
    graph = build([Vertex("a", 3), Vertex("b", 3), Vertex("c")], [Edge("a", "b", ForwardPartitioner())])
    topology = FailoverTopology(graph, regions(graph))
    restarted = topology.subtasks_to_restart(ExecutionVertexId("b", 0), lambda _: True)
    assert sorted(map(str, restarted)) == ["a_0", "a_1", "a_2", "b_0", "b_1", "b_2"]
    assert topology.subtasks_to_restart(None, lambda _: True) == {v.id for v in graph.all_vertices()}


@given(
    st.integers(1, 7).flatmap(lambda n: st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=14))
)
def test_what_can_be_reached_from_each_other_is_one_component(edges: list[tuple[int, int]]) -> None:
    nodes = {i: ExecutionVertexId("v", i) for i in range(7)}
    reached = {i: {i} | {b for a, b in edges if a == i} for i in nodes}
    for k in nodes:
        for i in nodes:
            if k in reached[i]:
                reached[i] |= reached[k]
    inputs = {nodes[i]: [nodes[b] for a, b in edges if a == i] for i in nodes}
    found = {frozenset(v.subtask for v in component) for component in _strong_components(inputs)}
    assert found == {frozenset(j for j in nodes if j in reached[i] and i in reached[j]) for i in nodes}


def test_a_lost_partition_restarts_its_producer_too() -> None:
    graph = build(
        [Vertex("a"), Vertex("b"), Vertex("c")],
        [
            Edge("a", "b", RebalancePartitioner(), type=BLOCKING),
            Edge("a", "c", RebalancePartitioner(), type=BLOCKING),
        ],
    )
    found = regions(graph)
    restarted = FailoverTopology(graph, found).regions_to_restart(
        ExecutionVertexId("b", 0), lambda p: p.data_set_id != "a-b-0"
    )
    assert restarted == found


@given(st.data())
def test_every_subtask_is_in_one_region_and_regions_can_start_one_after_another(data: st.DataObject) -> None:
    vertices = [Vertex(f"v{i}", data.draw(st.integers(1, 3))) for i in range(data.draw(st.integers(2, 6)))]
    edges = []
    for target in range(1, len(vertices)):
        for source in data.draw(st.sets(st.integers(0, target - 1), max_size=2)):
            partitioner = data.draw(st.sampled_from([RebalancePartitioner(), RescalePartitioner()]))
            kind = data.draw(st.sampled_from([PIPELINED, BLOCKING]))
            edges.append(Edge(f"v{source}", f"v{target}", partitioner, type=kind))
    graph = build(vertices, edges)
    found = regions(graph)
    members = [v for region in found for v in region.vertices]
    assert sorted(members) == sorted(v.id for v in graph.all_vertices())
    assert len(set(members)) == len(members)
    producer = {p.id: v.id for v in graph.all_vertices() for p in v.partitions}
    started: set[ExecutionVertexId] = set()
    left = list(found)
    while left:
        ready = [r for r in left if all(producer[p] in started for p in r.reads)]
        assert ready, "some region can always start"
        started.update(v for r in ready for v in r.vertices)
        left = [r for r in left if r not in ready]
