"""Whole jobs on threads: every row arrives exactly once, in channel order, and no watermark overtakes data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import (
    Collect,
    Count,
    ListSource,
    RepeatSource,
    Seen,
    Vertex,
    job,
    pairs,
    random_rows,
    rows,
    until,
    vertex,
)

from flowrun.api.operator import OutputTag
from flowrun.core.clock import ManualClock
from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    MAX_TIMESTAMP,
    MAX_WATERMARK,
    CheckpointBarrier,
    Element,
    RecordBatch,
    Watermark,
)
from flowrun.graph.job_graph import JobSettings, ResultType
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
from flowrun.operators.base import AbstractOperator
from flowrun.runners.embedded import run_embedded, start_embedded
from flowrun.runtime.lifecycle import JobState
from tests.examples import examples

ANY_PARTITIONER = st.sampled_from(
    [
        RebalancePartitioner(),
        RescalePartitioner(),
        ShufflePartitioner(),
        BroadcastPartitioner(),
        GlobalPartitioner(),
        KeyGroupPartitioner((0,)),
        CustomPartitioner(lambda batch, n: batch.columns["k"].to_numpy() % n, "by k"),
    ]
)


def stream(subtask: int, batches: int, size: int) -> list[Element]:
    """Batches with rising values, a watermark after each; values tell the subtask apart by their last digit."""
    elements: list[Element] = []
    for index in range(batches):
        values = [10 * (index * size + i) + subtask for i in range(size)]
        elements += [rows([v % 7 for v in values], values), Watermark(values[-1])]
    return elements


def check_no_overtaking(seen: Seen) -> None:
    for (subtask, index), elements in seen.elements.items():
        reached = -1
        for element in elements:
            if isinstance(element, Watermark):
                assert element.timestamp > reached
                reached = element.timestamp
            elif isinstance(element, RecordBatch):
                assert min(element.columns["v"].to_pylist()) > reached, (subtask, index)


@examples(40)
@given(st.data())
def test_random_topologies_lose_repeat_and_reorder_nothing(data: st.DataObject) -> None:
    """Source → one or two layers → end, with random partitioners, parallelisms, batch sizes and buffer timeouts."""
    producers = data.draw(st.integers(1, 3), "producers")
    batches, size = data.draw(st.integers(0, 5), "batches"), data.draw(st.integers(1, 200), "size")
    layers: list[tuple[Partitioner, Seen]] = []
    source = vertex("source", lambda: ListSource(lambda s: stream(s, batches, size)), parallelism=producers)
    vertices: list[Vertex] = [source]
    sent = Counter(
        pair for s in range(producers) for e in stream(s, batches, size) if isinstance(e, RecordBatch)
        for pair in pairs([e])
    )  # fmt: skip
    for number in range(data.draw(st.integers(1, 2), "layers")):
        seen, partitioner = Seen(), data.draw(ANY_PARTITIONER)
        parallelism = data.draw(st.integers(1, 3))
        layers.append((partitioner, seen))
        layer = vertex(f"layer{number}", lambda seen=seen: Collect(seen), parallelism=parallelism)  # type: ignore[misc]
        vertices.append(layer.read(vertices[-1], partitioner))
    graph = job(
        *vertices,
        settings=JobSettings(batch_rows=data.draw(st.sampled_from([1, 7, 1024]))),
        buffer_timeout_ms=data.draw(st.sampled_from([0, 5, -1])),
        type=data.draw(st.sampled_from(ResultType)),
    )
    run_embedded(graph)
    for (partitioner, seen), layer in zip(layers, vertices[1:], strict=True):
        if isinstance(partitioner, BroadcastPartitioner):
            sent = Counter({pair: n * layer.parallelism for pair, n in sent.items()})
        assert Counter(seen.pairs()) == sent
        check_no_overtaking(seen)
        for subtask in range(layer.parallelism):
            assert seen.of(Watermark, subtask)[-1] == MAX_WATERMARK
            if layer is vertices[1]:
                for producer in range(producers):
                    mine = [v for _, v in seen.pairs(subtask) if v % 10 == producer]
                    assert mine == sorted(mine), "one channel keeps its order"


def run_and_see(elements: Sequence[Element], **options: object) -> list[Element | str]:
    """What an operator behind an exchange sees of one source's elements."""
    seen = Seen()
    source = vertex("source", lambda: ListSource(lambda _: elements))
    run_embedded(job(source, vertex("sink", lambda: Collect(seen)).read(source), **options))  # type: ignore[arg-type]
    return seen.elements[0, 0]


def test_max_comes_at_the_end_then_end_of_input_then_finish() -> None:
    assert run_and_see([Watermark(3)]) == [Watermark(3), MAX_WATERMARK, "end", "finish"]


def test_idleness_is_passed_on_and_over_at_the_end() -> None:
    assert run_and_see([Watermark(3), IDLE]) == [Watermark(3), IDLE, ACTIVE, MAX_WATERMARK, "end", "finish"]


def test_a_chain_calls_directly_and_finishes_from_head_to_tail() -> None:
    seen, log = Seen(), list[str]()

    class Logging(Collect):
        def open(self) -> None:
            log.append(f"open {self.context.name}")

        def finish(self) -> None:
            log.append(f"finish {self.context.name}")

        def close(self) -> None:
            log.append(f"close {self.context.name}")

    batch = rows([1, 2])
    source = lambda: ListSource(lambda _: [batch])  # noqa: E731
    chain = vertex("chain", source, lambda: Logging(seen), lambda: Logging(seen))
    result = run_embedded(job(chain))
    assert log == [
        "open chain.2", "open chain.1", "finish chain.1", "finish chain.2", "close chain.1", "close chain.2"
    ]  # fmt: skip
    assert all(b is batch for b in seen.of(RecordBatch))
    assert result.accumulators["chain.2"]["numRecordsIn"] == 2


class Scribble(Collect):
    """Overwrites the first column in place, after the next operators have seen it."""

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        super().process_batch(batch, input_index)
        keys = np.frombuffer(batch.columns.column(0).buffers()[1], np.int64)
        keys.setflags(write=True)
        keys[:] = -1


def scribbled(*, object_reuse: bool) -> tuple[Seen, Seen]:
    """What operators hold that write into their rows, and what those hold that read the same rows, chained and over an exchange."""
    ruined, kept = Seen(), Seen()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1, 2])]), lambda: Collect(kept))
    first = vertex("first", lambda: Scribble(ruined), lambda: Scribble(ruined)).read(source, BroadcastPartitioner())
    second = vertex("second", lambda: Collect(kept)).read(source, BroadcastPartitioner())
    run_embedded(job(source, first, second, settings=JobSettings(object_reuse=object_reuse)))
    return ruined, kept


def test_without_object_reuse_each_operator_has_rows_of_its_own() -> None:
    ruined, kept = scribbled(object_reuse=False)
    assert [k for k, _ in ruined.pairs()] == [-1] * 4
    assert [k for k, _ in kept.pairs()] == [1, 2] * 2


def test_with_object_reuse_operators_share_their_rows() -> None:
    _, kept = scribbled(object_reuse=True)
    assert [k for k, _ in kept.pairs()] == [-1] * 4


EVEN = OutputTag("even", rows([]).columns.schema)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", list(ResultType))
def test_more_data_than_the_buffers_hold_gets_through(kind: ResultType) -> None:
    """40 batches of 1.4 MB over a pool of 8 MiB: pipelined ones wait for their reader, spilled ones need no buffers."""
    source = vertex("source", lambda: RepeatSource(random_rows(60_000), 20), parallelism=2)
    sink = vertex("sink", Count, parallelism=2).read(source, KeyGroupPartitioner((0,)))
    assert run_embedded(job(source, sink, type=kind)).accumulators["sink"]["seen"] == 40 * 60_000


class Split(AbstractOperator):
    """Even keys to the side output."""

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        import pyarrow.compute as pc

        odd = pc.equal(pc.bit_wise_and(batch.columns["k"], 1), 1)
        self.output.emit(batch.filter(odd))
        self.output.emit_side(EVEN, batch.filter(pc.invert(odd)))
        self.output.emit_side(OutputTag("unread", EVEN.schema), batch)


def test_side_outputs_go_by_tag_and_get_watermarks_too() -> None:
    odd, even, both = Seen(), Seen(), Seen()
    split = vertex("split", lambda: ListSource(lambda _: [rows([1, 2, 3, 4]), Watermark(9)]), Split)
    graph = job(
        split,
        vertex("odd", lambda: Collect(odd)).read(split),
        vertex("even", lambda: Collect(even)).read(split, tag=EVEN),
        vertex("both", lambda: Collect(both)).read(split).read(split, tag=EVEN),
    )
    result = run_embedded(graph)
    assert odd.pairs() == [(1, 0), (3, 2)]
    assert even.pairs() == [(2, 1), (4, 3)]
    assert sorted(both.pairs()) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    for seen in (odd, even, both):
        assert Watermark(9) in seen.of(Watermark)
        assert seen.of(Watermark)[-1] == MAX_WATERMARK
    assert result.accumulators["split.1"]["numRecordsOut.even"] == 2


def test_one_output_to_many_targets_hands_out_the_same_rows() -> None:
    first, second = Seen(), Seen()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1, 2])]))
    run_embedded(
        job(
            source,
            vertex("first", lambda: Collect(first)).read(source),
            vertex("second", lambda: Collect(second), parallelism=2).read(source, BroadcastPartitioner()),
        )
    )
    assert first.pairs() == [(1, 0), (2, 1)]
    assert second.pairs(0) == second.pairs(1) == first.pairs()


def test_a_two_input_operator_sees_both_inputs_and_the_lower_watermark() -> None:
    seen, after = Seen(), Seen()
    left = vertex("left", lambda: ListSource(lambda _: [rows([1]), Watermark(50)]))
    right = vertex("right", lambda: ListSource(lambda _: [rows([2]), Watermark(20)]))
    both = vertex("both", lambda: Collect(seen, inputs=2), lambda: Collect(after)).read(left).read(right, index=1)
    run_embedded(job(left, right, both))
    assert pairs([e for e in seen.elements[0, 0] if isinstance(e, RecordBatch)]) == [(1, 0)]
    assert pairs([e for e in seen.elements[0, 1] if isinstance(e, RecordBatch)]) == [(2, 0)]
    assert [e for e in seen.elements[0, 1] if e == "end"] == ["end"]
    passed = after.of(Watermark)
    assert passed[-1] == MAX_WATERMARK
    assert passed == sorted(passed, key=lambda w: w.timestamp)


def test_a_union_of_edges_is_one_input() -> None:
    seen = Seen()
    sources = [vertex(f"s{i}", lambda i=i: ListSource(lambda _: [rows([i])]), parallelism=2) for i in range(3)]  # type: ignore[misc]
    union = vertex("union", lambda: Collect(seen))
    for source in sources:
        union.read(source, RebalancePartitioner())
    run_embedded(job(*sources, union))
    assert Counter(k for k, _ in seen.pairs()) == {0: 2, 1: 2, 2: 2}
    assert seen.elements[0, 0].count("end") == 1


def test_a_batch_split_for_consumers_is_put_together_again() -> None:
    """Three 1,000-row shares of each batch do not stay 1,000-row crumbs while the receiver is busy elsewhere."""
    seen = Seen()
    source = vertex("source", lambda: ListSource(lambda _: [random_rows(3_000, i) for i in range(20)]))
    sink = vertex("sink", lambda: Collect(seen), parallelism=3).read(source, KeyGroupPartitioner((0,)))
    run_embedded(job(source, sink, settings=JobSettings(batch_rows=10_000), type=ResultType.BLOCKING))
    assert len(seen.pairs()) == 60_000
    assert max(b.num_rows for b in seen.of(RecordBatch)) > 3_000


def test_barriers_have_operators_flush_before_they_go_on() -> None:
    """A task with one channel acts on a barrier at once: prepare_snapshot, then the barrier downstream."""
    from flowrun.runtime.network.partition import ResultPartition

    prepared: list[tuple[str, int]] = []

    class Preparing(Collect):
        def prepare_snapshot(self, checkpoint_id: int) -> None:
            prepared.append((self.context.name, checkpoint_id))
            self.output.emit(rows([99]))

    class Injecting(ListSource):
        def emit_next(self) -> object:  # type: ignore[override]
            if self._position == 1 and not self._stopped:
                targets = self.output._main  # type: ignore[attr-defined]
                partition: ResultPartition = targets[0]._writer.partition
                partition.broadcast_event(CheckpointBarrier(7, 0))
            return super().emit_next()

    seen = Seen()
    source = vertex("source", lambda: Injecting(lambda _: [rows([1]), rows([2])]))
    middle = vertex("middle", lambda: Preparing(Seen()), lambda: Preparing(Seen())).read(source)
    last = vertex("last", lambda: Preparing(seen)).read(middle)
    run_embedded(job(source, middle, last))
    assert sorted(prepared) == [("last", 7), ("middle.0", 7), ("middle.1", 7)]
    assert [k for k, _ in seen.pairs()] == [1, 99, 99, 2]


def test_latency_markers_reach_the_end_of_the_pipeline() -> None:
    clock = ManualClock(1_000)
    source = vertex("source", lambda: ListSource(lambda _: [rows([1])], endless=True))
    middle = vertex("middle", lambda: Collect(Seen())).read(source)
    sink = vertex("sink", Count).read(middle)
    with start_embedded(
        job(source, middle, sink, settings=JobSettings(latency_interval_ms=100)), clock=clock
    ) as running:
        until(lambda: running.status().vertices[2].latency_ms)
        assert running.status().vertices[2].latency_ms == {"source": (0.0, 0.0)}
        assert running.status().vertices[1].latency_ms == {}


def test_the_status_adds_up() -> None:
    clock = ManualClock(5_000)
    source = vertex(
        "source", lambda: ListSource(lambda _: [rows([1, 2, 3]), Watermark(2_000)], endless=True), parallelism=2
    )
    sink = vertex("sink", Count).read(source, RebalancePartitioner())
    with start_embedded(job(source, sink), clock=clock) as running:
        until(lambda: running.status().vertices[1].watermark is not None)
        first = running.status()
        assert [v.records_in for v in first.vertices] == [6, 6]
        assert [v.records_out for v in first.vertices] == [6, 6]
        assert first.vertices[0].bytes_out == first.vertices[1].bytes_in == 6 * 24
        assert [v.watermark for v in first.vertices] == [2_000, 2_000]
        assert first.vertices[1].watermark_lag_ms == 3_000
        clock.advance(1_000)
        second = running.status()
        assert second.vertices[1].idle_ms_per_s == pytest.approx(1_000)
        assert second.running_ms == 1_000
        running.stop(drain=True)
        result = running.wait()
    assert result is not None
    assert result.state is JobState.FINISHED
    assert result.vertices[1].watermark == MAX_TIMESTAMP
    assert result.vertices[1].watermark_lag_ms is None


@pytest.mark.parametrize("drain", [True, False])
def test_stop_ends_the_sources_and_only_drain_ends_event_time(drain: bool) -> None:
    seen = Seen()
    source = vertex("source", lambda: ListSource(lambda _: [rows([1]), Watermark(5)], endless=True))
    sink = vertex("sink", lambda: Collect(seen)).read(source)
    with start_embedded(job(source, sink)) as running:
        until(lambda: not (Watermark(5) not in seen.of(Watermark)))
        running.stop(drain)
        result = running.wait()
    assert result is not None
    assert result.state is JobState.FINISHED
    tail = [MAX_WATERMARK] if drain else []
    assert seen.elements[0, 0][1:] == [Watermark(5), *tail, "end", "finish"]


def test_a_chain_of_forward_edges_at_parallelism_two_keeps_subtasks_apart() -> None:
    seen = Seen()
    source = vertex("source", lambda: ListSource(lambda s: [rows([s])]), parallelism=2)
    sink = vertex("sink", lambda: Collect(seen), parallelism=2).read(source, ForwardPartitioner())
    run_embedded(job(source, sink))
    assert seen.pairs(0) == [(0, 0)]
    assert seen.pairs(1) == [(1, 0)]


def test_many_small_jobs_leave_nothing_behind() -> None:
    source = vertex("source", lambda: ListSource(lambda _: [rows([1, 2, 3])]), parallelism=2)
    sink = vertex("sink", Count, parallelism=2).read(source, KeyGroupPartitioner((0,)))
    for _ in range(100):
        assert run_embedded(job(source, sink)).accumulators["sink"]["seen"] == 6
