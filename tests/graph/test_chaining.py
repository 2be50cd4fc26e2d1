"""Two operators share a task when all eight conditions hold; each is broken here on its own."""

from __future__ import annotations

import graph_fakes as f
import pytest

from flowrun.api.operator import ChainingStrategy
from flowrun.graph.chaining import CHAINING_CONDITIONS, chaining_obstacles, is_chainable
from flowrun.graph.partitioner import ForwardPartitioner, RescalePartitioner
from flowrun.graph.stream_graph import GraphSettings, StreamGraph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import CoFeedbackTransformation, FeedbackTransformation, Transformation


def build(*sinks: Transformation, **settings: object) -> StreamGraph:
    return build_stream_graph("job", sinks, GraphSettings(**settings))  # type: ignore[arg-type]


def obstacles(graph: StreamGraph, source: str, target: str) -> list[str]:
    """The conditions that the (only) edge between two operators breaks."""
    (edge,) = (e for e in graph.edges if (graph.node(e.source).name, graph.node(e.target).name) == (source, target))
    assert is_chainable(edge, graph) == (not chaining_obstacles(edge, graph))
    return [c.name for c in chaining_obstacles(edge, graph)]


def test_there_are_eight_conditions_with_names_of_their_own() -> None:
    assert len({c.name for c in CHAINING_CONDITIONS}) == 8


def test_operators_in_a_line_are_chainable() -> None:
    graph = build(f.one("b", f.one("a", f.source())))
    assert obstacles(graph, "source", "a") == []
    assert obstacles(graph, "a", "b") == []


def test_1_the_downstream_operator_has_one_input_edge() -> None:
    a, b = f.source("a"), f.source("b")
    assert obstacles(build(f.one("x", f.union(a, b))), "a", "x") == ["single input edge"]
    assert obstacles(build(f.two("x", a, b)), "b", "x") == ["single input edge"]


def test_1_two_edges_from_one_operator_are_two_input_edges_too() -> None:
    op = f.one("op", f.source())
    graph = build(f.one("x", f.union(op, f.side(op, f.LATE))))
    assert [is_chainable(e, graph) for e in graph.in_edges(3)] == [False, False]


def test_1_several_outputs_are_no_obstacle() -> None:
    a = f.one("a", f.source())
    graph = build(f.sink("x", a), f.sink("y", f.side(a, f.LATE)))
    assert obstacles(graph, "a", "x") == obstacles(graph, "a", "y") == []


def test_2_both_ends_have_operators() -> None:
    co = CoFeedbackTransformation(name="co", schema=f.ROWS)
    after = f.one("after", co)
    co.feedback_edges.append(after)
    graph = build(after)
    assert "both have operators" in obstacles(graph, "co (head)", "after")
    assert "both have operators" in obstacles(graph, "after", "co (tail)")


def test_3_both_are_in_one_slot_sharing_group() -> None:
    graph = build(f.one("b", f.one("a", f.source()), slot_sharing_group="other"))
    assert obstacles(graph, "a", "b") == ["same slot sharing group"]


@pytest.mark.parametrize("strategy", [ChainingStrategy.HEAD, ChainingStrategy.NEVER])
def test_4_the_downstream_strategy_is_always(strategy: ChainingStrategy) -> None:
    graph = build(f.one("b", f.one("a", f.source()), chaining=strategy))
    assert obstacles(graph, "a", "b") == ["downstream strategy is ALWAYS"]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (ChainingStrategy.ALWAYS, []),
        (ChainingStrategy.HEAD, []),
        (ChainingStrategy.NEVER, ["upstream strategy is ALWAYS or HEAD"]),
    ],
)
def test_5_the_upstream_strategy_is_always_or_head(strategy: ChainingStrategy, expected: list[str]) -> None:
    graph = build(f.one("b", f.one("a", f.source(), chaining=strategy)))
    assert obstacles(graph, "a", "b") == expected


def test_6_the_partitioner_is_forward() -> None:
    a = f.one("a", f.source())
    assert obstacles(build(f.one("b", f.partition(a, RescalePartitioner()))), "a", "b") == ["forward partitioner"]
    assert obstacles(build(f.one("b", f.keyed(a))), "a", "b") == ["forward partitioner"]
    assert obstacles(build(f.one("b", f.partition(a, ForwardPartitioner()))), "a", "b") == []


def test_7_parallelism_is_equal() -> None:
    graph = build(f.one("b", f.one("a", f.source(), parallelism=2)))
    assert obstacles(graph, "a", "b") == ["forward partitioner", "equal parallelism"]


def test_7_max_parallelism_counts_too_as_a_task_has_one_number_of_key_groups() -> None:
    graph = build(f.one("b", f.one("a", f.source(), max_parallelism=64)))
    assert obstacles(graph, "a", "b") == ["equal parallelism"]


def test_8_chaining_is_on() -> None:
    graph = build(f.one("b", f.one("a", f.source())), chaining=False)
    assert obstacles(graph, "a", "b") == ["chaining is on"]


def test_the_body_of_an_iteration_starts_a_task() -> None:
    loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=f.source())
    loop.feedback_edges.append(f.one("body", loop))
    graph = build(f.sink("out", loop.feedback_edges[0]))
    assert "single input edge" in obstacles(graph, "source", "body")
    assert obstacles(graph, "body", "out") == []
