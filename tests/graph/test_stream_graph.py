"""From transformations to the stream graph: what becomes a node, and what is written onto an edge."""

from __future__ import annotations

from dataclasses import replace

import graph_fakes as f
import pytest

from flowrun.api.operator import ChainingStrategy, OutputTag
from flowrun.core.recovery import CheckpointSettings
from flowrun.core.resources import ResourceSpec
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import InternalError, PipelineError, UnsupportedPlanError
from flowrun.graph.job_graph import JobSettings
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    ForwardPartitioner,
    KeyGroupPartitioner,
    RebalancePartitioner,
    RescalePartitioner,
)
from flowrun.graph.stream_graph import ExchangeMode, ExecutionMode, GraphSettings, NodeKind, StreamGraph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import (
    CoFeedbackTransformation,
    FeedbackTransformation,
    Transformation,
    WatermarkTransformation,
)


def edges(graph: StreamGraph) -> list[str]:
    """Every edge as `source -> target [tag] PARTITIONER`, in order."""
    shown = []
    for e in graph.edges:
        tag = "" if e.tag is None else f" [{e.tag.name}]"
        shown.append(f"{graph.node(e.source).name} -> {graph.node(e.target).name}{tag} {e.partitioner.label}")
    return shown


def names(graph: StreamGraph) -> list[str]:
    return [n.name for n in graph.nodes]


def test_a_line_of_operators_becomes_nodes_in_order_with_forward_edges() -> None:
    graph = build_stream_graph("line", [f.sink("out", f.one("filter", f.source("in")))])
    assert names(graph) == ["in", "filter", "out"]
    assert [n.kind for n in graph.nodes] == [NodeKind.SOURCE, NodeKind.ONE_INPUT, NodeKind.SINK]
    assert [n.id for n in graph.nodes] == [1, 2, 3]
    assert edges(graph) == ["in -> filter FORWARD", "filter -> out FORWARD"]
    assert [n.name for n in graph.sources] == ["in"]


def test_a_transformation_that_two_read_is_translated_once() -> None:
    shared = f.one("shared", f.source())
    graph = build_stream_graph("diamond", [f.sink("out", f.two("join", f.one("a", shared), f.one("b", shared)))])
    assert names(graph) == ["source", "shared", "a", "b", "join", "out"]
    assert [e.input_index for e in graph.in_edges(5)] == [0, 1]


def test_a_union_of_unions_is_only_edges_in_the_order_of_the_members() -> None:
    a, b, c = f.source("a"), f.source("b"), f.source("c")
    graph = build_stream_graph("unions", [f.sink("out", f.union(f.union(a, b), c))])
    assert edges(graph) == ["a -> out FORWARD", "b -> out FORWARD", "c -> out FORWARD"]
    assert {e.input_index for e in graph.edges} == {0}


def test_each_member_of_a_union_keeps_its_own_partitioner_and_a_key_by_after_it_holds_for_all() -> None:
    a, b = f.source("a"), f.partition(f.source("b"), BroadcastPartitioner())
    mixed = build_stream_graph("mixed", [f.sink("out", f.union(a, b))])
    assert edges(mixed) == ["a -> out FORWARD", "b -> out BROADCAST"]
    keyed = build_stream_graph("keyed", [f.sink("out", f.keyed(f.union(a, b)))])
    assert edges(keyed) == ["a -> out HASH[0]", "b -> out HASH[0]"]


def test_of_two_partitionings_in_a_row_the_later_one_counts() -> None:
    stream = f.partition(f.keyed(f.source()), RescalePartitioner())
    assert edges(build_stream_graph("twice", [f.sink("out", stream)])) == ["source -> out RESCALE"]


def test_a_side_output_is_a_tag_on_the_edge_with_the_tags_schema() -> None:
    tag = OutputTag("bad", Schema.of(raw=BIGINT))
    split = f.one("split", f.source())
    graph = build_stream_graph("side", [f.sink("good", split), f.sink("bad", f.side(split, tag))])
    assert edges(graph) == ["source -> split FORWARD", "split -> good FORWARD", "split -> bad [bad] FORWARD"]
    assert [e.schema for e in graph.edges] == [f.ROWS, f.ROWS, tag.schema]


def test_a_side_output_of_a_side_output_is_the_operators_other_tag() -> None:
    graph = build_stream_graph("sides", [f.sink("out", f.side(f.side(f.one("op", f.source()), f.LATE), f.BIG))])
    assert edges(graph)[-1] == "op -> out [big] FORWARD"


def test_side_output_and_partitioning_combine_in_either_order() -> None:
    op = f.one("op", f.source())
    one = build_stream_graph("a", [f.sink("out", f.keyed(f.side(op, f.LATE)))])
    other = build_stream_graph("b", [f.sink("out", f.side(f.keyed(op), f.LATE))])
    assert edges(one) == edges(other)
    assert edges(one)[-1] == "op -> out [late] HASH[0]"


def test_several_edges_between_one_pair_have_ids_of_their_own() -> None:
    op = f.one("op", f.source())
    graph = build_stream_graph("pair", [f.sink("out", f.union(op, f.side(op, f.LATE), op))])
    ids = [e.edge_id for e in graph.edges]
    assert ids == ["1_2_0", "2_3_0", "2_3_1", "2_3_2"]


def test_a_self_join_has_one_edge_an_input() -> None:
    src = f.source()
    graph = build_stream_graph("self", [f.sink("out", f.two("join", src, src, state_keys=((0,), (1,))))])
    assert [(e.edge_id, e.input_index) for e in graph.in_edges(2)] == [("1_2_0", 0), ("1_2_1", 1)]
    assert graph.node(2).state_keys == ((0,), (1,))


def test_edges_are_ordered_by_input_index() -> None:
    a, b, c = f.source("a"), f.source("b"), f.source("c")
    graph = build_stream_graph("multi", [f.sink("out", f.many("m", f.union(c, a), b))])
    target = graph.node(4)
    assert target.kind is NodeKind.MULTI_INPUT
    assert [(graph.node(e.source).name, e.input_index) for e in graph.in_edges(4)] == [("c", 0), ("a", 0), ("b", 1)]


@pytest.mark.parametrize(
    ("up", "down", "expected"), [(2, 2, ForwardPartitioner), (2, 1, RebalancePartitioner), (1, 3, RebalancePartitioner)]
)
def test_without_a_partitioner_equal_parallelism_forwards_and_unequal_rebalances(
    up: int, down: int, expected: type
) -> None:
    graph = build_stream_graph("p", [f.sink("out", f.source(parallelism=up), parallelism=down)])
    assert isinstance(graph.edges[0].partitioner, expected)


def test_forward_across_unequal_parallelism_is_an_error_that_names_both_operators() -> None:
    forward = f.partition(f.source("orders", parallelism=2), ForwardPartitioner())
    with pytest.raises(PipelineError, match=r"'orders' has 2 and 'out' has 3") as caught:
        build_stream_graph("p", [f.sink("out", forward, parallelism=3)])
    assert "rebalance or rescale" in str(caught.value)


def test_settings_are_resolved_from_operator_job_and_defaults() -> None:
    src = f.source(max_parallelism=512, buffer_timeout_ms=0, min_resources=ResourceSpec(1.0, 64))
    settings = GraphSettings(parallelism=100, job=JobSettings(buffer_timeout_ms=20))
    graph = build_stream_graph("p", [f.sink("out", f.one("a", src, parallelism=7, uid="a-1"))], settings)
    assert [(n.parallelism, n.max_parallelism) for n in graph.nodes] == [(100, 512), (7, 128), (100, 256)]
    assert [e.buffer_timeout_ms for e in graph.edges] == [0, 20]
    assert graph.node(1).min_resources == ResourceSpec(1.0, 64)
    assert graph.node(2).uid == "a-1"


def test_a_transformation_may_override_its_factorys_chaining() -> None:
    src = f.source()
    op = f.one("a", src, chaining=ChainingStrategy.NEVER)
    graph = build_stream_graph("p", [f.sink("out", op)])
    assert [n.chaining for n in graph.nodes] == [ChainingStrategy.HEAD, ChainingStrategy.NEVER, ChainingStrategy.ALWAYS]


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism"), [(0, None), (-1, None), (40_000, None), (4, 2), (1, 40_000)]
)
def test_a_parallelism_out_of_range_is_an_error_that_names_the_operator(
    parallelism: int, max_parallelism: int | None
) -> None:
    with pytest.raises(PipelineError, match=r"'orders' has parallelism"):
        build_stream_graph("p", [f.source("orders", parallelism=parallelism, max_parallelism=max_parallelism)])


def test_the_slot_sharing_group_is_inherited_when_all_inputs_agree() -> None:
    fast = f.one("fast", f.source("a", slot_sharing_group="heavy"))
    mixed = f.two("mixed", fast, f.source("b"))
    own = f.one("own", fast, slot_sharing_group="other")
    graph = build_stream_graph("g", [f.sink("x", mixed), f.sink("y", f.side(f.keyed(own), f.LATE))])
    groups = {n.name: n.slot_sharing_group for n in graph.nodes}
    assert groups == {
        "a": "heavy",
        "fast": "heavy",
        "b": "default",
        "mixed": "default",
        "x": "default",
        "own": "other",
        "y": "other",
    }


def test_the_job_is_unbounded_when_one_source_is() -> None:
    bounded = build_stream_graph("b", [f.sink("out", f.source())])
    unbounded = build_stream_graph("u", [f.sink("out", f.union(f.source(), f.source("x", unbounded=True)))])
    assert not bounded.settings.job.unbounded
    assert unbounded.settings.job.unbounded


def test_union_members_must_have_the_same_columns() -> None:
    other = f.source("b", schema=Schema.of(user_id=BIGINT))
    with pytest.raises(PipelineError, match=r"'a' has \(user_id STRING, amount BIGINT\), 'b' has \(user_id BIGINT\)"):
        build_stream_graph("u", [f.sink("out", f.union(f.source("a"), other))])


def test_a_job_without_sinks_is_an_error() -> None:
    with pytest.raises(PipelineError, match="nothing to run"):
        build_stream_graph("empty", [])


def test_a_circle_without_an_iteration_is_an_error() -> None:
    first = f.one("first", f.source())
    second = f.one("second", first)
    first.input = second
    with pytest.raises(PipelineError, match="reads its own output"):
        build_stream_graph("circle", [f.sink("out", second)])


def test_a_pipeline_longer_than_the_stack_is_translated() -> None:
    stream: Transformation = f.source()
    for number in range(3000):
        stream = f.one(f"step {number}", stream)
    assert len(build_stream_graph("long", [f.sink("out", stream)]).nodes) == 3002


def test_a_watermark_transformation_is_an_operator_like_others() -> None:
    marks = WatermarkTransformation(name="marks", schema=f.ROWS, input=f.source(), factory=f.FakeFactory())
    assert build_stream_graph("w", [f.sink("out", marks)]).node(2).kind is NodeKind.ONE_INPUT


def test_an_unknown_transformation_is_reported() -> None:
    with pytest.raises(InternalError, match="no translator for Transformation 'odd'"):
        build_stream_graph("odd", [Transformation(name="odd", schema=f.ROWS)])


class TestBatchMode:
    batch = GraphSettings(mode=ExecutionMode.BATCH)

    def test_redistributions_are_batch_exchanges_and_forwards_are_left_open(self) -> None:
        graph = build_stream_graph("b", [f.sink("out", f.one("agg", f.keyed(f.source())))], self.batch)
        assert [e.exchange for e in graph.edges] == [ExchangeMode.BATCH, ExchangeMode.UNDEFINED]

    def test_in_streaming_mode_everything_is_pipelined(self) -> None:
        graph = build_stream_graph("s", [f.sink("out", f.one("agg", f.keyed(f.source())))])
        assert {e.exchange for e in graph.edges} == {ExchangeMode.PIPELINED}

    def test_an_unbounded_source_is_refused_by_name(self) -> None:
        with pytest.raises(UnsupportedPlanError, match="source 'ticks' is unbounded"):
            build_stream_graph("b", [f.sink("out", f.source("ticks", unbounded=True))], self.batch)

    def test_an_iteration_is_refused(self) -> None:
        loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=f.source())
        loop.feedback_edges.append(f.one("body", loop))
        with pytest.raises(UnsupportedPlanError, match="iteration 'loop' cannot run in batch mode"):
            build_stream_graph("b", [f.sink("out", loop.feedback_edges[0])], self.batch)

    def test_the_runtime_is_told_and_there_is_no_exact_time(self) -> None:
        graph = build_stream_graph("b", [f.sink("out", f.one("agg", f.keyed(f.source())))], self.batch)
        assert graph.settings.job.batch_mode
        assert not any(n.exact_watermarks for n in graph.nodes)

    def test_checkpoints_are_refused(self) -> None:
        settings = replace(self.batch, job=JobSettings(checkpoint=CheckpointSettings(1000)))
        with pytest.raises(PipelineError, match="job 'b' runs in batch mode, which takes no checkpoints"):
            build_stream_graph("b", [f.sink("out", f.source())], settings)

    def test_automatic_is_batch_where_everything_ends(self) -> None:
        automatic = GraphSettings(mode=ExecutionMode.AUTOMATIC)
        loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=f.source())
        loop.feedback_edges.append(f.one("body", loop))
        both = f.two("join", f.source(), f.source("ticks", unbounded=True))
        for read, wanted in (
            (f.two("join", f.source(), f.source("b")), ExecutionMode.BATCH),
            (both, ExecutionMode.STREAMING),
            (loop.feedback_edges[0], ExecutionMode.STREAMING),
        ):
            graph = build_stream_graph("a", [f.sink("out", read)], automatic)
            assert graph.settings.mode is wanted
            assert graph.settings.job.batch_mode is (wanted is ExecutionMode.BATCH)
        kept = replace(automatic, job=JobSettings(checkpoint=CheckpointSettings(1000)))
        graph = build_stream_graph("a", [f.sink("out", f.source())], kept)
        assert graph.settings.mode is ExecutionMode.STREAMING, "checkpoints are asked for"


class TestIterations:
    def loop(self, **options: object) -> tuple[FeedbackTransformation, Transformation]:
        src = f.source(slot_sharing_group="g")
        loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=src, wait_ms=500, **options)  # type: ignore[arg-type]
        body = f.one("body", loop)
        loop.feedback_edges.append(f.side(body, f.BIG))
        return loop, body

    def test_head_and_tail_surround_the_body_in_one_co_location_group(self) -> None:
        _, body = self.loop()
        graph = build_stream_graph("i", [f.sink("out", body)], GraphSettings(parallelism=2))
        assert edges(graph) == [
            "source -> body FORWARD",
            "loop (head) -> body FORWARD",
            "body -> out FORWARD",
            "body -> loop (tail) [big] FORWARD",
        ]
        head, tail = (n for n in graph.nodes if n.iteration)
        assert (head.kind, tail.kind) == (NodeKind.ITERATION_HEAD, NodeKind.ITERATION_TAIL)
        assert head.iteration == tail.iteration
        assert head.iteration is not None
        assert head.iteration.wait_ms == 500
        assert head.co_location_key == tail.co_location_key == head.iteration.iteration_id
        assert head.slot_sharing_group == tail.slot_sharing_group == graph.node(3).slot_sharing_group == "g"
        assert head.factory is None

    def test_the_head_follows_the_parallelism_of_the_input(self) -> None:
        src = f.source(parallelism=3)
        loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=src)
        loop.feedback_edges.append(f.one("body", loop, parallelism=3))
        graph = build_stream_graph("i", [f.sink("out", loop.feedback_edges[0])])
        assert {n.parallelism for n in graph.nodes if n.iteration} == {3}

    def test_an_iteration_nested_in_another_is_closed_too(self) -> None:
        outer = FeedbackTransformation(name="outer", schema=f.ROWS, input=f.source())
        inner = FeedbackTransformation(name="inner", schema=f.ROWS, input=f.one("before", outer))
        body = f.one("body", inner)
        inner.feedback_edges.append(body)
        outer.feedback_edges.append(f.one("after", body))
        graph = build_stream_graph("i", [f.sink("out", body)])
        assert len({n.co_location_key for n in graph.nodes if n.iteration}) == 2
        assert "after -> outer (tail) FORWARD" in edges(graph)
        assert "body -> inner (tail) FORWARD" in edges(graph)

    def test_a_co_iteration_feeds_the_second_input_only(self) -> None:
        co = CoFeedbackTransformation(name="co", schema=f.ROWS)
        body = f.two("body", f.source(), co)
        co.feedback_edges.append(body)
        graph = build_stream_graph("i", [f.sink("out", body)])
        assert edges(graph)[:2] == ["source -> body FORWARD", "co (head) -> body FORWARD"]
        assert [e.input_index for e in graph.in_edges(3)] == [0, 1]

    def test_an_iteration_that_is_not_closed_is_an_error(self) -> None:
        loop = FeedbackTransformation(name="loop", schema=f.ROWS, input=f.source())
        with pytest.raises(PipelineError, match="iteration 'loop' has no feedback edge"):
            build_stream_graph("i", [f.sink("out", f.one("body", loop))])

    def test_feeding_back_at_another_parallelism_is_an_error(self) -> None:
        loop, body = self.loop()
        loop.feedback_edges.append(f.one("slow", body, parallelism=2))
        with pytest.raises(PipelineError, match=r"'loop' has parallelism 1, .* 'slow', has 2"):
            build_stream_graph("i", [f.sink("out", body)])

    def test_feeding_back_other_columns_is_an_error(self) -> None:
        loop, body = self.loop()
        loop.feedback_edges.append(f.side(body, OutputTag("odd", Schema.of(x=BIGINT))))
        with pytest.raises(PipelineError, match=r"'odd' feeds back \(x BIGINT\)"):
            build_stream_graph("i", [f.sink("out", body)])


def test_key_group_partitioners_show_their_columns() -> None:
    assert KeyGroupPartitioner((0, 2)).label == "HASH[0, 2]"
