"""Who takes the rows that an unaligned barrier overtook."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
from runtime_fakes import Count, job, rows, vertex

from flowrun.core.elements import MIN_TIMESTAMP, CheckpointKind, RecordBatch, Watermark
from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionGraph, build_execution_graph
from flowrun.graph.partitioner import BroadcastPartitioner, KeyGroupPartitioner, Partitioner, RebalancePartitioner
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


def test_rows_are_refused_where_none_can_have_been_in_flight() -> None:
    for partitioner in (RebalancePartitioner(), BroadcastPartitioner()):
        with pytest.raises(StateError, match="1 rows in flight on an exchange that the pipeline no longer has"):
            dealt(graph(partitioner, 2), metadata(2, [held(0, rows([1]))]))


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
