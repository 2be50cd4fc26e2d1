"""Which subtasks share a slot."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flowrun.core.resources import ResourceSpec, SlotSharingGroup
from flowrun.graph.execution_graph import ExecutionGraph, build_execution_graph
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner, RescalePartitioner
from flowrun.runtime.explain import render_execution_graph
from flowrun.runtime.jobmaster.slots import share_slots, slot_of
from tests.job_graphs import Edge, Vertex, job_graph


def build(vertices: list[Vertex], edges: list[Edge]) -> ExecutionGraph:
    return build_execution_graph(job_graph(vertices, edges))


def shown(graph: ExecutionGraph) -> list[tuple[str, list[str]]]:
    return [(f"{s.group}/{s.index}", [str(v) for v in s.vertices]) for s in share_slots(graph)]


def test_one_subtask_of_each_vertex_shares_a_slot() -> None:
    graph = build([Vertex("a", 2), Vertex("b", 2)], [Edge("a", "b", RebalancePartitioner())])
    assert shown(graph) == [("default/0", ["a_0", "b_0"]), ("default/1", ["a_1", "b_1"])]


def test_a_group_needs_as_many_slots_as_its_most_parallel_vertex() -> None:
    graph = build(
        [Vertex("a", 1), Vertex("b", 3), Vertex("c", 2)],
        [Edge("a", "b", RebalancePartitioner()), Edge("b", "c", RebalancePartitioner())],
    )
    assert shown(graph) == [
        ("default/0", ["a_0", "b_0", "c_0"]),
        ("default/1", ["b_1", "c_1"]),
        ("default/2", ["b_2"]),
    ]


def test_a_subtask_goes_where_its_producer_is() -> None:
    graph = build([Vertex("a", 4), Vertex("b", 2)], [Edge("a", "b", RescalePartitioner())])
    assert shown(graph) == [
        ("default/0", ["a_0", "b_0"]),
        ("default/1", ["a_1"]),
        ("default/2", ["a_2", "b_1"]),
        ("default/3", ["a_3"]),
    ]


def test_groups_do_not_share() -> None:
    graph = build(
        [Vertex("a", 1), Vertex("b", 2, group="heavy"), Vertex("c", 1)],
        [Edge("a", "b", RebalancePartitioner()), Edge("b", "c", RebalancePartitioner())],
    )
    assert shown(graph) == [("default/0", ["a_0", "c_0"]), ("heavy/0", ["b_0"]), ("heavy/1", ["b_1"])]


def test_co_located_subtasks_of_one_index_share_a_slot_even_away_from_their_producers() -> None:
    graph = build(
        [Vertex("head", 2, co_location_key="k"), Vertex("x", 4), Vertex("tail", 2, co_location_key="k")],
        [Edge("x", "tail", RescalePartitioner())],
    )
    where = slot_of(share_slots(graph))
    placed = {str(v): slot.index for v, slot in where.items()}
    assert placed["head_0"] == placed["tail_0"]
    assert placed["head_1"] == placed["tail_1"]


def test_resources_of_a_slot_add_up() -> None:
    graph = build(
        [Vertex("a", 1, resources=ResourceSpec(1.0, 10)), Vertex("b", 2, resources=ResourceSpec(0.5, 5))],
        [Edge("a", "b", RebalancePartitioner())],
    )
    assert [s.min_resources for s in share_slots(graph)] == [ResourceSpec(1.5, 15), ResourceSpec(0.5, 5)]


def test_what_is_asked_for_is_what_the_group_says_else_the_sum() -> None:
    vertices = [
        Vertex("a", resources=ResourceSpec(1.0, 1 << 20)),
        Vertex("b", resources=ResourceSpec(0.5)),
        Vertex("c", group="heavy", resources=ResourceSpec(1.0, 2 << 20)),
        Vertex("d", group="free"),
    ]
    graph = replace(job_graph(vertices, []), slot_sharing_groups=(SlotSharingGroup("heavy", cpu=4.0),))
    requests = [slot.request for slot in share_slots(build_execution_graph(graph))]
    assert [(r.name, str(r.profile)) for r in requests] == [
        ("default/1", "1.5 cpu and 1 MiB"),
        ("heavy/1", "4 cpu and 2 MiB"),
        ("free/1", "no resources named"),
    ]
    assert requests[0].preferred == requests[0].profile
    text = render_execution_graph(build_execution_graph(graph))
    assert "slot heavy/1 (4 cpu and 2 MiB) · region 3" in text
    assert "slot free/1 · region 4" in text


@given(st.data())
def test_the_sharing_rules_always_hold(data: st.DataObject) -> None:
    vertices = [
        Vertex(
            f"v{i}",
            parallelism := data.draw(st.integers(1, 5)),
            group := data.draw(st.sampled_from(["default", "other"])),
            data.draw(st.sampled_from([None, f"k{parallelism}{group}"])),
        )
        for i in range(data.draw(st.integers(1, 6)))
    ]
    edges = []
    for target in range(1, len(vertices)):
        for source in data.draw(st.sets(st.integers(0, target - 1), max_size=2)):
            equal = vertices[source].parallelism == vertices[target].parallelism
            choices = [RebalancePartitioner(), RescalePartitioner(), *([ForwardPartitioner()] if equal else [])]
            edges.append(Edge(f"v{source}", f"v{target}", data.draw(st.sampled_from(choices))))
    graph = build(vertices, edges)
    slots = share_slots(graph)
    members = [v for s in slots for v in s.vertices]
    assert sorted(members) == sorted(v.id for v in graph.all_vertices()), "each subtask has one slot"
    where = slot_of(slots)
    co_located: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for slot in slots:
        assert len({v.vertex_id for v in slot.vertices}) == len(slot.vertices), "one subtask of a vertex a slot"
        assert {graph.vertex(v).job_vertex.slot_sharing_group for v in slot.vertices} == {slot.group}
    for vertex in graph.all_vertices():
        if (key := vertex.job_vertex.co_location_key) is not None:
            slot = where[vertex.id]
            co_located.setdefault((key, vertex.subtask), set()).add((slot.group, slot.index))
    assert all(len(places) == 1 for places in co_located.values())
