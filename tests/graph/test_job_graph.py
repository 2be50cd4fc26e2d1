"""From the stream graph to the job graph: chains, data sets, edges, resources."""

from __future__ import annotations

import pickle

import graph_fakes as f

from flowrun.api.operator import ChainingStrategy
from flowrun.core.resources import ResourceSpec
from flowrun.graph.job_graph import ChainEdge, JobGraph, JobSettings, ResultType
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.partitioner import BroadcastPartitioner, RebalancePartitioner
from flowrun.graph.stream_graph import ExecutionMode, GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import FeedbackTransformation, Transformation
from flowrun.operators.factories import IterationHeadFactory, IterationTailFactory


def build(*sinks: Transformation, **settings: object) -> JobGraph:
    return build_job_graph(build_stream_graph("job", sinks, GraphSettings(**settings)))  # type: ignore[arg-type]


def vertex_names(graph: JobGraph) -> list[str]:
    return [v.name for v in graph.vertices]


def test_a_line_becomes_one_vertex_named_after_its_operators() -> None:
    graph = build(f.sink("out", f.one("filter", f.source("in"))))
    assert vertex_names(graph) == ["in -> filter -> out"]
    (vertex,) = graph.vertices
    assert [o.name for o in vertex.operators] == ["in", "filter", "out"]
    assert vertex.vertex_id == vertex.operators[0].operator_id
    assert vertex.chain_edges == (ChainEdge(0, 1), ChainEdge(1, 2))
    assert vertex.operators[0].source is not None
    assert vertex.operators[2].sink is not None
    assert vertex.inputs == vertex.results == vertex.output_edges == ()


def test_a_chain_that_branches_is_named_with_brackets_and_keeps_tags() -> None:
    split = f.one("split", f.source("in"))
    a = f.sink("x", f.one("a", split))
    b = f.sink("y", f.side(split, f.LATE))
    (vertex,) = build(a, b).vertices
    assert vertex.name == "in -> split -> (a -> x, y)"
    assert [o.name for o in vertex.operators] == ["in", "split", "a", "x", "y"]
    assert vertex.chain_edges == (ChainEdge(0, 1), ChainEdge(1, 2), ChainEdge(1, 4, f.LATE), ChainEdge(2, 3))


def test_edges_that_leave_a_chain_become_data_sets_and_job_edges() -> None:
    src = f.one("parse", f.source("in"))
    graph = build(f.sink("out", f.one("window", f.keyed(src), state_keys=(0,))), parallelism=2)
    up, down = graph.vertices
    assert (up.name, down.name) == ("in -> parse", "window -> out")
    (output,), (result,), (edge,) = up.output_edges, up.results, down.inputs
    assert (output.source, output.result) == (1, 0)
    assert edge.data_set_id == result.data_set_id
    assert (edge.source, edge.target) == (result.producer, down.vertex_id) == (up.vertex_id, down.vertex_id)
    assert output.partitioner == result.partitioner == edge.partitioner
    assert output.schema == edge.schema == f.ROWS
    assert result.type is ResultType.PIPELINED
    assert down.operators[0].state_keys == ((0,),)
    assert graph.vertex(down.vertex_id) is down


def test_side_output_edges_carry_tag_and_schema() -> None:
    op = f.one("op", f.source())
    graph = build(f.sink("late", f.keyed(f.side(op, f.LATE))))
    assert graph.vertices[0].output_edges[0].tag == f.LATE


def test_each_of_several_edges_between_one_pair_has_its_own_data_set() -> None:
    op = f.one("op", f.source())
    graph = build(f.sink("out", f.union(op, f.side(op, f.LATE), f.keyed(op))))
    up, down = graph.vertices
    assert len({r.data_set_id for r in up.results}) == 3
    assert [e.data_set_id for e in down.inputs] == [r.data_set_id for r in up.results]
    assert [e.tag for e in up.output_edges] == [None, f.LATE, None]
    assert {e.input_index for e in down.inputs} == {0}


def test_a_diamond_is_three_chains_around_the_join() -> None:
    shared = f.one("shared", f.source())
    join = f.two("join", f.one("a", shared), f.keyed(f.one("b", shared)))
    graph = build(f.sink("out", join))
    assert vertex_names(graph) == ["source -> shared -> (a, b)", "join -> out"]
    assert [e.input_index for e in graph.vertices[1].inputs] == [0, 1]


def test_vertices_are_in_topological_order_whatever_the_order_of_sinks() -> None:
    a, b = f.source("a"), f.source("b")
    early = f.sink("early", f.keyed(f.two("join", a, f.one("slow", f.keyed(b)))))
    graph = build(early, f.sink("late", f.partition(a, RebalancePartitioner())))
    seen: set[str] = set()
    for vertex in graph.vertices:
        assert {e.source for e in vertex.inputs} <= seen
        seen.add(vertex.vertex_id)
    assert len(graph.vertices) == 6


def test_resources_of_a_chain_add_up() -> None:
    src = f.source(min_resources=ResourceSpec(0.5, 100))
    op = f.one("op", src, min_resources=ResourceSpec(1.0, 10), preferred_resources=ResourceSpec(2.0, 20))
    (vertex,) = build(op).vertices
    assert vertex.min_resources == ResourceSpec(1.5, 110)
    assert vertex.preferred_resources == ResourceSpec(2.0, 20)


def test_without_chaining_every_operator_is_a_vertex() -> None:
    graph = build(f.sink("out", f.one("a", f.source("in"))), chaining=False)
    assert vertex_names(graph) == ["in", "a", "out"]
    assert all(len(v.operators) == 1 for v in graph.vertices)


def test_head_and_never_strategies_cut_chains() -> None:
    a = f.one("a", f.source("in"))
    head = f.one("head", a, chaining=ChainingStrategy.HEAD)
    alone = f.one("alone", f.one("b", head), chaining=ChainingStrategy.NEVER)
    assert vertex_names(build(f.sink("out", alone))) == ["in -> a", "head -> b", "alone", "out"]


def test_in_batch_mode_results_between_tasks_are_blocking() -> None:
    graph = build(
        f.sink("out", f.one("window", f.keyed(f.one("a", f.source("in"))), chaining=ChainingStrategy.NEVER)),
        mode=ExecutionMode.BATCH,
    )
    assert vertex_names(graph) == ["in -> a", "window", "out"]
    assert [r.type for v in graph.vertices for r in v.results] == [ResultType.BLOCKING, ResultType.BLOCKING]


def test_max_parallelism_and_settings_are_handed_on() -> None:
    graph = build(f.source(unbounded=True), parallelism=100, job=JobSettings(batch_rows=7))
    assert graph.vertices[0].max_parallelism == 256
    assert graph.settings == JobSettings(batch_rows=7, unbounded=True)


def test_the_job_graph_is_a_value_that_survives_pickling() -> None:
    def pipeline() -> Transformation:
        return f.sink("out", f.one("w", f.partition(f.union(f.source("a"), f.source("b")), BroadcastPartitioner())))

    graph = build(pipeline(), parallelism=2)
    assert graph == build(pipeline(), parallelism=2)
    assert pickle.loads(pickle.dumps(graph)) == graph


def test_a_chain_of_thousands_of_operators_is_built() -> None:
    stream: Transformation = f.source()
    for number in range(3000):
        stream = f.one(f"{number}", stream)
    (vertex,) = build(f.sink("out", stream)).vertices
    assert len(vertex.operators) == 3002
    assert vertex.name.startswith("source -> 0 -> 1 -> 2")


def test_an_iteration_becomes_a_head_and_a_tail_vertex_that_share_slots() -> None:
    loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=f.source(), wait_ms=10)
    loop.feedback_edges.append(f.one("body", loop))
    graph = build(f.sink("out", loop.feedback_edges[0]))
    assert vertex_names(graph) == ["source", "loop (head)", "body -> out", "loop (tail)"]
    head, tail = graph.vertices[1], graph.vertices[3]
    assert head.co_location_key == tail.co_location_key is not None
    assert head.operators[0].factory == IterationHeadFactory("iteration-1", 10)
    assert tail.operators[0].factory == IterationTailFactory("iteration-1")
