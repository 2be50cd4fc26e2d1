"""Programs become graphs: what each call adds, and which mistakes are refused at once."""

from __future__ import annotations

import json
import pickle
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flowrun.api.aggregate import Accumulator, AggregateKernel, BoundAggregate
from flowrun.api.operator import ChainingStrategy, OutputTag
from flowrun.connectors.memory import MemorySink, MemorySource
from flowrun.core.elements import RecordBatch
from flowrun.core.resources import ResourceSpec, SlotSettings, SlotSharingGroup
from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys, TimeDomain
from flowrun.core.types import BIGINT, STRING, DataType, timestamp
from flowrun.datastream import (
    ColumnValue,
    DataStream,
    SessionGap,
    StreamExecutionEnvironment,
)
from flowrun.errors import DataError, PipelineError
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.transformation import PhysicalTransformation
from flowrun.operators.factories import CalcFactory
from flowrun.operators.timed.assigners import SlidingSlices, TumblingSlices
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.operators.windows.slices.factories import SliceWindowFactory
from flowrun.testing import OperatorHarness

CLICKS = Schema.of(user=STRING, amount=BIGINT, ts=timestamp(3))


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "amount", pc.multiply(batch.column("amount"), 2))


def is_big(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.greater(batch.column("amount"), 10)


def is_big_numpy(batch: pa.RecordBatch) -> Any:
    return batch.column("amount").to_numpy() > 10


def is_nothing(batch: pa.RecordBatch) -> list[bool]:
    return [True] * batch.num_rows


def by_length(batch: RecordBatch, channels: int) -> Any:
    return np.asarray(pc.utf8_length(batch.columns.column("user"))) % channels


def take_sum(columns: list[pa.Array], result: DataType) -> pa.Array:
    return columns[0].cast(result.arrow)


TOTAL = BoundAggregate(
    "total",
    AggregateKernel("SUM", BIGINT, BIGINT, (Accumulator("sum", "sum", "sum", BIGINT),), finish=take_sum),
    argument=1,
)


def environment(**options: Any) -> tuple[StreamExecutionEnvironment, DataStream]:
    env = StreamExecutionEnvironment("clicks", **options)
    strategy = WatermarkStrategy.bounded(0, ColumnValue("ts"))
    return env, env.from_source(MemorySource("clicks", CLICKS), name="clicks", watermarks=strategy)


def edges(env: StreamExecutionEnvironment) -> list[str]:
    graph = env.stream_graph()
    return [
        f"{graph.node(e.source).name} -> {graph.node(e.target).name}"
        f"{'' if e.tag is None else f' [{e.tag.name}]'} {e.partitioner.label}"
        for e in graph.edges
    ]


def sink(stream: DataStream, name: str = "out") -> Any:
    return stream.sink_to(MemorySink(name, stream.schema), name=name)


class TestGraphs:
    def test_a_line_of_calls_is_a_line_of_operators_in_one_chain(self) -> None:
        env, clicks = environment()
        sink(
            clicks.filter_batches(is_big, name="big")
            .map_batches(double, CLICKS, name="double")
            .select("user", "amount")
        )
        (vertex,) = env.job_graph().vertices
        assert vertex.name == "clicks -> big -> double -> select -> out"
        assert vertex.operators[3].schema == Schema.of(user=STRING, amount=BIGINT)

    def test_partitionings_are_written_onto_edges(self) -> None:
        env, clicks = environment(parallelism=2)
        streams = {
            "FORWARD": clicks.forward(),
            "REBALANCE": clicks.rebalance(),
            "RESCALE": clicks.rescale(),
            "SHUFFLE": clicks.shuffle(seed=1),
            "BROADCAST": clicks.broadcast(),
            "GLOBAL": clicks.global_(),
            "CUSTOM[by length]": clicks.partition_custom_batches(by_length, "by length"),
            "HASH[0, 1]": clicks.key_by("user", "amount"),
        }
        for label, stream in streams.items():
            sink(stream, label)
        assert edges(env) == [f"clicks -> {label} {label}" for label in streams]

    def test_union_and_split(self) -> None:
        env, clicks = environment()
        more = env.from_source(MemorySource("more", CLICKS), name="more")
        split = clicks.union(more).split_batches({"big": is_big, "user": f"{__name__}:is_big_numpy"})
        sink(split.get_side_output("big"), "big out")
        sink(split, "rest")
        assert edges(env) == [
            "clicks -> split FORWARD",
            "more -> split FORWARD",
            "split -> big out [big] FORWARD",
            "split -> rest FORWARD",
        ]

    def test_a_keyed_window_with_local_aggregation(self) -> None:
        env, clicks = environment(parallelism=2)
        result = clicks.key_by("user").window(TumblingSlices(1000)).aggregate(TOTAL)
        sink(result)
        assert edges(env) == [
            "clicks -> local window FORWARD",
            "local window -> window HASH[0]",
            "window -> out FORWARD",
        ]
        assert [f.name for f in result.schema] == ["user", "window_start", "window_end", "total"]
        node = env.stream_graph().node(3)
        assert node.state_keys == ((0,),)
        assert isinstance(node.factory, SliceWindowFactory)
        assert node.factory.partial_input

    def test_lateness_late_output_and_settings_reach_the_window_operator(self) -> None:
        env, clicks = environment()
        window = (
            clicks.key_by("amount")
            .window(SlidingSlices(1000, 500))
            .allowed_lateness(100)
            .side_output_late_data("late")
            .null_keys(NullKeys.DROP)
        )
        result = window.aggregate(TOTAL, name="hop")
        sink(result.get_side_output("late"), "late out")
        assert edges(env) == ["clicks -> hop HASH[1]", "hop -> late out [late] FORWARD"]
        factory = env.stream_graph().node(2).factory
        assert isinstance(factory, SliceWindowFactory)
        assert (factory.allowed_lateness_ms, factory.null_keys) == (100, NullKeys.DROP)
        assert factory.late_tag == OutputTag("late", CLICKS)

    def test_windows_in_processing_time_do_not_pre_aggregate(self) -> None:
        env, clicks = environment()
        result = clicks.key_by("user").window(TumblingSlices(1000)).in_processing_time().aggregate(TOTAL)
        sink(result)
        assert edges(env)[0] == "clicks -> window HASH[0]"
        assert env.stream_graph().node(2).factory.domain is TimeDomain.PROCESSING  # type: ignore[union-attr]

    def test_sessions_and_windows_over_all_rows(self) -> None:
        env, clicks = environment(parallelism=2, local_aggregation=False)
        sink(clicks.key_by("user").window(SessionGap(500)).aggregate(TOTAL, name="session"), "a")
        sink(clicks.window_all(TumblingSlices(1000)).aggregate(TOTAL, name="all"), "b")
        assert edges(env) == [
            "clicks -> session HASH[0]",
            "session -> a FORWARD",
            "clicks -> all GLOBAL",
            "all -> b REBALANCE",
        ]
        assert [n.parallelism for n in env.stream_graph().nodes] == [2, 2, 2, 1, 2]

    def test_keyed_and_connected_processing_has_state_keys(self) -> None:
        env, clicks = environment()
        other = env.from_source(MemorySource("other", CLICKS), name="other")
        keyed = clicks.key_by("user").process(CalcFactory(), CLICKS, name="keyed")
        joined = keyed.connect(other).key_by(["user"], ["user"]).process(CalcFactory(), CLICKS, name="join")
        plain = keyed.connect(other).process(CalcFactory(), CLICKS, name="plain")
        sink(joined, "a")
        sink(plain, "b")
        by_name = {n.name: n for n in env.stream_graph().nodes}
        assert by_name["keyed"].state_keys == ((0,),)
        assert by_name["join"].state_keys == ((0,), (0,))
        assert by_name["plain"].state_keys is None

    def test_watermarks_in_mid_stream(self) -> None:
        env, clicks = environment()
        sink(clicks.assign_timestamps_and_watermarks(WatermarkStrategy.monotonous(ColumnValue("ts"))))
        assert edges(env)[0] == "clicks -> timestamps and watermarks FORWARD"

    def test_iterations(self) -> None:
        env, clicks = environment()
        loop = clicks.iterate(wait_ms=100)
        body = loop.map_batches(double, CLICKS, name="body")
        loop.close_with(body.filter_batches(is_big, name="again"))
        sink(body)
        assert "iteration (head) -> body FORWARD" in edges(env)
        assert "again -> iteration (tail) FORWARD" in edges(env)

    def test_iterations_with_columns_of_their_own(self) -> None:
        env, clicks = environment()
        feedback = Schema.of(user=STRING)
        loop = clicks.iterate(wait_ms=100).with_feedback(feedback)
        body = loop.process(CalcFactory(), CLICKS, name="body")
        loop.close_with(body.select("user"))
        sink(body)
        graph = env.stream_graph()
        assert [(graph.node(e.source).name, e.input_index) for e in graph.in_edges(3)] == [
            ("clicks", 0),
            ("iteration (head)", 1),
        ]

    def test_settings_are_put_on_the_operator(self) -> None:
        env, clicks = environment()
        mapped = (
            clicks.map_batches(double, CLICKS)
            .named("twice")
            .uid("u")
            .user_hash("0" * 32)
            .set_parallelism(3)
            .set_max_parallelism(9)
            .set_buffer_timeout(5)
            .slot_sharing_group("g")
            .co_location_key("c")
            .set_resources(ResourceSpec(1.0, 2))
            .start_new_chain()
        )
        sink(mapped).named("end").disable_chaining()
        _, node, end = env.stream_graph().nodes
        assert (node.name, node.uid, node.user_hash, node.parallelism, node.max_parallelism) == (
            "twice",
            "u",
            "0" * 32,
            3,
            9,
        )
        assert (node.slot_sharing_group, node.co_location_key) == ("g", "c")
        assert node.min_resources == node.preferred_resources == ResourceSpec(1.0, 2)
        assert (node.chaining, end.chaining) == (ChainingStrategy.HEAD, ChainingStrategy.NEVER)
        assert [e.buffer_timeout_ms for e in env.stream_graph().edges] == [100, 5]

    def test_a_group_of_slots_has_resources_that_one_operator_or_the_environment_names(self) -> None:
        env, clicks = environment()
        env.set_slots(4, resources=ResourceSpec(2.0), request_timeout_ms=1_000)
        mapped = clicks.map_batches(double, CLICKS).slot_sharing_group(SlotSharingGroup("g", cpu=1.5, memory=1 << 20))
        sink(mapped)
        graph = env.job_graph()
        assert graph.slot_sharing_groups == (SlotSharingGroup("g", 1.5, 1 << 20),)
        assert graph.settings.slots == SlotSettings(4, ResourceSpec(2.0), 1_000)
        env.register_slot_sharing_group(SlotSharingGroup("g", cpu=1.0))
        with pytest.raises(PipelineError, match="the job's settings and 'map' give the slots of group 'g' different"):
            env.job_graph()
        mapped.slot_sharing_group("g")
        assert env.job_graph().slot_sharing_groups == (SlotSharingGroup("g", 1.0),)

    def test_the_execution_plan_is_json(self) -> None:
        env, clicks = environment()
        sink(clicks)
        assert [n["type"] for n in json.loads(env.execution_plan())["nodes"]] == ["clicks", "out"]

    def test_execute_hands_the_job_graph_to_the_runner(self) -> None:
        env, clicks = environment()
        sink(clicks)

        def runner(graph: JobGraph) -> str:
            assert pickle.loads(pickle.dumps(graph)).name == graph.name
            return f"ran {graph.name}"

        assert env.execute(runner) == "ran clicks"

    def test_row_functions(self) -> None:
        env, clicks = environment()
        sink(clicks.map(double, CLICKS, name="r").flat_map(double, CLICKS, name="fr"), "a")
        sink(clicks.flat_map_batches(double, CLICKS, name="fb"), "b")
        factories = {n.name: n.factory for n in env.stream_graph().nodes}
        flags = {n: (factories[n].flat, factories[n].row) for n in ("r", "fr", "fb")}  # type: ignore[union-attr]
        assert flags == {"r": (False, True), "fr": (True, True), "fb": (True, False)}


class TestMistakes:
    def test_an_unknown_column(self) -> None:
        _, clicks = environment()
        with pytest.raises(PipelineError, match="key_by: there is no column 'usr'") as caught:
            clicks.key_by("usr")
        assert "did you mean 'user'?" in str(caught.value)
        with pytest.raises(PipelineError, match="key_by: the column 'user' is named more than once"):
            clicks.key_by("user", "user")
        with pytest.raises(PipelineError, match="select: there is no column 'x'"):
            clicks.select("x")

    def test_a_key_without_columns(self) -> None:
        with pytest.raises(PipelineError, match="key_by needs at least one column"):
            environment()[1].key_by()

    def test_a_function_that_tasks_cannot_load(self) -> None:
        _, clicks = environment()
        lock = threading.Lock()
        with pytest.raises(PipelineError, match=r"map: '.*<lambda>' cannot be sent to tasks: TypeError: .*lock"):
            clicks.map_batches(lambda batch: (batch, lock), CLICKS)

    def test_settings_on_what_is_no_operator(self) -> None:
        _, clicks = environment()
        with pytest.raises(PipelineError, match="uid cannot be set on 'rebalance': it is no operator of its own"):
            clicks.rebalance().uid("x")

    def test_an_undeclared_side_output(self) -> None:
        _, clicks = environment()
        split = clicks.split_batches({"big": is_big})
        with pytest.raises(PipelineError, match="'split' has no side output 'bg'") as caught:
            split.get_side_output("bg")
        assert "did you mean 'big'?" in str(caught.value)
        with pytest.raises(PipelineError, match=r"no side output 'big' with the columns \(x BIGINT\)"):
            split.get_side_output(OutputTag("big", Schema.of(x=BIGINT)))

    def test_streams_of_two_environments(self) -> None:
        (_, one), (_, other) = environment(), environment()
        for call in (one.union, one.connect):
            with pytest.raises(PipelineError, match="belong to different environments"):
                call(other)  # type: ignore[operator]
        with pytest.raises(PipelineError, match="belong to different environments"):
            one.iterate(1).close_with(other)

    def test_a_sink_with_other_columns(self) -> None:
        _, clicks = environment()
        with pytest.raises(PipelineError, match=r"out: the sink expects \(x BIGINT\), but 'clicks' has \(user STRING"):
            clicks.sink_to(MemorySink("out", Schema.of(x=BIGINT)), name="out")

    def test_connected_streams_with_keys_of_different_types(self) -> None:
        _, clicks = environment()
        with pytest.raises(PipelineError, match=r"the keys have the types \(STRING\) and \(BIGINT\)"):
            clicks.connect(clicks).key_by(["user"], ["amount"])

    def test_two_aggregates_of_one_name(self) -> None:
        _, clicks = environment()
        with pytest.raises(PipelineError, match="column total occurs more than once"):
            clicks.key_by("user").window(TumblingSlices(1)).aggregate(TOTAL, TOTAL)

    def test_negative_lateness(self) -> None:
        with pytest.raises(PipelineError, match="must not be negative, got -1 ms"):
            environment()[1].key_by("user").window(TumblingSlices(1)).allowed_lateness(-1)

    def test_a_job_without_sink(self) -> None:
        with pytest.raises(PipelineError, match="job 'clicks' has no sink"):
            environment()[0].job_graph()


class TestFunctions:
    def harness(self, function: Any) -> OperatorHarness:
        transformation = environment()[1].filter_batches(function).transformation
        assert isinstance(transformation, PhysicalTransformation)
        return OperatorHarness(pickle.loads(pickle.dumps(transformation.factory)), schema=CLICKS)

    @pytest.mark.parametrize("function", [is_big, is_big_numpy])
    def test_a_condition_keeps_rows(self, function: Any) -> None:
        with self.harness(function) as harness:
            harness.push({"user": ["a", "b"], "amount": [5, 50], "ts": [None, None]})
            assert harness.rows() == [("b", 50, None)]

    def test_a_condition_must_return_one_boolean_a_row(self) -> None:
        with self.harness(is_nothing) as harness, pytest.raises(DataError, match="got 1 rows and returned a list"):
            harness.push({"user": ["a"], "amount": [5], "ts": [None]})

    def test_selected_columns_are_computed_without_copies(self) -> None:
        transformation = environment()[1].select("amount", "user").transformation
        assert isinstance(transformation, PhysicalTransformation)
        with OperatorHarness(transformation.factory, schema=CLICKS) as harness:
            harness.push({"user": ["a"], "amount": [5], "ts": [None]})
            assert harness.rows() == [(5, "a")]
