"""Who takes the rows that an unaligned barrier overtook."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
from runtime_fakes import ROWS, Count, job, rows, vertex

from flowrun.core.elements import MIN_TIMESTAMP, CheckpointKind, RecordBatch, Watermark
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionGraph, build_execution_graph
from flowrun.graph.job_graph import ChainEdge
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flowrun.runtime.checkpoint.in_flight import InFlightAssignment
from flowrun.runtime.messages import RestoredChannel
from flowrun.state.checkpoints import ChannelProgress, CheckpointMetadata, InFlight, OperatorMetadata
from flowrun.state.key_groups import key_group_range

EDGE = "source>sink.0."
KEYED = KeyGroupPartitioner((0,))


def graph(partitioner: Partitioner, consumers: int, producers: int = 1) -> ExecutionGraph:
    source = vertex("source", Count, parallelism=producers)
    return build_execution_graph(job(source, vertex("sink", Count, parallelism=consumers).read(source, partitioner)))


def metadata(old: int, in_flight: list[InFlight], progress: list[ChannelProgress] | None = None) -> CheckpointMetadata:
    return CheckpointMetadata(
        3, CheckpointKind.CHECKPOINT, 0, 1, "test", "l", "/jobs/test", "0", None, None,
        {"sink-0": OperatorMetadata("sink-0", None, "sink", "sink-0", old, 128)},
        tuple(in_flight), tuple(progress or ()), unaligned=True,
    )  # fmt: skip


def held(consumer: int, *elements: RecordBatch | Watermark, producer: int = 0, received: bool = True) -> InFlight:
    return InFlight(EDGE, producer, consumer, received, elements)


def dealt(graph: ExecutionGraph, saved: CheckpointMetadata) -> list[tuple[RestoredChannel, ...]]:
    assignment = InFlightAssignment(saved, graph)
    assignment.check_all_assigned()
    return [assignment.channels_of(v) for v in graph.job_vertex("sink-0").vertices]


def test_what_the_consumer_had_received_goes_before_what_the_producer_held() -> None:
    first, second, third = rows([1]), Watermark(5), rows([2])
    saved = metadata(1, [held(0, third, received=False), held(0, first, second)])
    (channels,) = dealt(graph(KEYED, 1), saved)
    assert channels == (RestoredChannel(0, 0, 0, MIN_TIMESTAMP, False, (first, second, third), False),)


def test_channels_without_elements_come_with_their_watermark() -> None:
    saved = metadata(
        1, [held(0, rows([1]))], [ChannelProgress(EDGE, 0, 0, 7, False), ChannelProgress(EDGE, 1, 0, 4, True)]
    )
    (channels,) = dealt(graph(KEYED, 1, producers=2), saved)
    assert [(c.producer, c.watermark, c.idle, len(c.elements)) for c in channels] == [(0, 7, False, 1), (1, 4, True, 0)]


def test_at_the_same_parallelism_each_consumer_takes_back_its_own() -> None:
    saved = metadata(2, [held(0, rows([1])), held(1, rows([2]))])
    channels = dealt(graph(KEYED, 2, producers=2), saved)
    assert [[c.old_consumer for c in own] for own in channels] == [[0], [1]]
    assert not any(c.filter_keys for own in channels for c in own)


@given(old=st.integers(1, 9), new=st.integers(1, 9))
def test_keyed_rows_go_to_all_who_own_their_key_groups_now(old: int, new: int) -> None:
    saved = metadata(old, [held(c, rows([c])) for c in range(old)])
    for subtask, channels in enumerate(dealt(graph(KEYED, new), saved)):
        mine = key_group_range(subtask, new, 128)
        overlapping = [
            c for c in range(old)
            if key_group_range(c, old, 128).start < mine.stop and mine.start < key_group_range(c, old, 128).stop
        ]  # fmt: skip
        assert [c.old_consumer for c in channels] == ([subtask] if old == new else overlapping)
        assert all(c.filter_keys == (old != new) for c in channels)


UNKEYED = (
    RebalancePartitioner(),
    RescalePartitioner(),
    ShufflePartitioner(),
    GlobalPartitioner(),
    CustomPartitioner(lambda batch, channels: np.zeros(batch.num_rows, np.int64)),
)


@given(partitioner=st.sampled_from(UNKEYED), old=st.integers(1, 9), new=st.integers(1, 9))
def test_rows_without_keys_go_to_one_subtask_each_and_those_of_a_consumer_stay_together(
    partitioner: Partitioner, old: int, new: int
) -> None:
    saved = metadata(old, [held(c, rows([c])) for c in range(old)])
    found = dealt(graph(partitioner, new), saved)
    assert sorted(c.old_consumer for own in found for c in own) == list(range(old))
    assert not any(c.filter_keys for own in found for c in own)
    if old == new:
        assert [[c.old_consumer for c in own] for own in found] == [[c] for c in range(old)]


@given(old=st.integers(1, 9), new=st.integers(1, 9))
def test_broadcast_rows_go_to_all_as_broadcast_state_does(old: int, new: int) -> None:
    saved = metadata(old, [held(c, rows([c])) for c in range(old)])
    found = dealt(graph(BroadcastPartitioner(), new), saved)
    assert [[c.old_consumer for c in own] for own in found] == [[subtask % old] for subtask in range(new)]


def two_inputs(consumers: int) -> ExecutionGraph:
    keyed, others = vertex("keyed", Count), vertex("others", Count)
    sink = vertex("sink", Count, parallelism=consumers).read(keyed, KEYED).read(others, BroadcastPartitioner(), 1)
    return build_execution_graph(job(keyed, others, sink))


def test_who_gets_rows_of_a_consumer_knows_the_event_time_of_all_its_channels() -> None:
    """Three subtasks take over from two: the second has keys of both old ones, and the broadcast rows of the second."""
    progress = [
        ChannelProgress(data_set, 0, consumer, 10 * consumer + number, False)
        for consumer in range(2)
        for number, data_set in enumerate(("keyed>sink.0.", "others>sink.1."))
    ]
    in_flight = [
        InFlight(data_set, 0, c, True, (rows([c]),)) for data_set in ("keyed>sink.0.", "others>sink.1.") for c in (0, 1)
    ]
    found = dealt(two_inputs(3), metadata(2, in_flight, progress))
    assert [(c.gate, c.old_consumer, c.watermark, len(c.elements)) for c in found[1]] == [
        (0, 0, 0, 1), (0, 1, 10, 1), (1, 0, 1, 0), (1, 1, 11, 1)
    ]  # fmt: skip
    assert [(c.gate, c.old_consumer, len(c.elements)) for c in found[0]] == [(0, 0, 1), (1, 0, 1)]
    assert [(c.gate, c.old_consumer, len(c.elements)) for c in found[2]] == [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]


@pytest.mark.parametrize("new", [1, 3])
def test_keys_that_would_miss_broadcast_rows_are_refused_elsewhere(new: int) -> None:
    """The second subtask has not seen the row yet: its keys belong to others now, which have seen it and would not see it for them."""
    unequal = [InFlight("others>sink.1.", 0, 1, False, (rows([1]),))]
    with pytest.raises(StateError, match=f"some of its 2 subtasks had processed .* at parallelism {new}") as caught:
        dealt(two_inputs(new), metadata(2, unequal))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("resume at parallelism 2 and take a savepoint")
    assert [len(own) for own in dealt(two_inputs(2), metadata(2, unequal))] == [0, 1]


@pytest.mark.parametrize("new", [1, 3])
def test_broadcast_rows_that_no_subtask_has_seen_are_seen_by_all(new: int) -> None:
    alike = [
        InFlight("others>sink.1.", 0, 0, True, (rows([1, 2]),)),
        InFlight("others>sink.1.", 0, 1, True, (rows([1]),)),
        InFlight("others>sink.1.", 0, 1, False, (rows([2]),)),
    ]
    assert [len([c for c in own if c.elements]) for own in dealt(two_inputs(new), metadata(2, alike))] == [1] * new


def chained(parallelism: int) -> ExecutionGraph:
    """source → sink in one chain, where there was an exchange between them."""
    made = job(vertex("source", Count, Count, parallelism=parallelism))
    (one,) = made.vertices
    source, sink = one.operators
    operators = (replace(source, operator_id="source-0"), replace(sink, operator_id="sink-0"))
    edge = ChainEdge(0, 1, None, EDGE, ROWS)
    return build_execution_graph(replace(made, vertices=(replace(one, operators=operators, chain_edges=(edge,)),)))


@pytest.mark.parametrize(("old", "new", "expected"), [(2, 1, [[0, 1]]), (2, 2, [[0], [1]]), (1, 2, [[0], []])])
def test_rows_on_an_exchange_that_is_inside_a_chain_now_go_to_the_operator_that_read_them(
    old: int, new: int, expected: list[list[int]]
) -> None:
    graph = chained(new)
    assignment = InFlightAssignment(metadata(old, [held(c, rows([c])) for c in range(old)]), graph)
    assignment.check_all_assigned()
    found = [assignment.channels_of(v) for v in graph.job_vertex("source-0").vertices]
    assert [[c.old_consumer for c in own] for own in found] == expected
    assert {c.operator for own in found for c in own} == {1}


def test_changes_of_rows_that_would_lose_their_order_are_refused() -> None:
    """On a forward exchange: at half the parallelism each consumer goes on for two whole ones, at three for parts of them."""
    plain = rows([1, 2])
    changes = RecordBatch(plain.columns, plain.timestamps, pa.array([0, 3], pa.int8()))
    with pytest.raises(
        StateError, match="keep their order only if its parallelism, which was 2, divides by the new one, 3"
    ):
        dealt(graph(ForwardPartitioner(), 3, 3), metadata(2, [held(0, changes)]))
    dealt(graph(ForwardPartitioner(), 1, 1), metadata(2, [held(0, changes)]))
    dealt(graph(ForwardPartitioner(), 2, 2), metadata(2, [held(0, changes)]))
    dealt(graph(ForwardPartitioner(), 3, 3), metadata(2, [held(0, plain)]))


def test_watermarks_are_moved() -> None:
    channels = dealt(graph(KEYED, 1), metadata(2, [held(0, Watermark(3)), held(1, Watermark(4))]))
    assert [c.elements for c in channels[0]] == [(Watermark(3),), (Watermark(4),)]


def test_rows_on_an_exchange_that_is_gone_are_refused() -> None:
    gone = InFlight("gone", 0, 0, True, (rows([1, 2]),))
    with pytest.raises(StateError, match="2 rows in flight on an exchange that the pipeline no longer has"):
        dealt(graph(KEYED, 1), metadata(1, [gone]))
    dealt(graph(KEYED, 1), metadata(1, [InFlight("gone", 0, 0, True, (Watermark(1),))]))


def test_rows_with_other_columns_are_refused() -> None:
    other = RecordBatch(pa.record_batch({"k": pa.array([1], pa.int32())}))
    with pytest.raises(StateError, match="with columns k int32; the pipeline sends it k int64, v int64"):
        dealt(graph(KEYED, 1), metadata(1, [held(0, other)]))
