"""Barriers on their way through tasks: past slow ones, on channels that are behind, and instead of them the end of a source."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from recording_operators import Outcome, Remember, ReplayingSource
from runtime_fakes import job, rows, until, vertex
from task_bench import MemoryStorage, Signal, TaskBench, in_flight_rows
from test_checkpoints import BARRIER, BY_KEY, SETTINGS, Noting, calls_of, endless

from flowrun.core.clock import ManualClock
from flowrun.core.elements import (
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    Watermark,
)
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
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
from flowrun.runtime.network.barriers import as_unaligned
from flowrun.state.checkpoints import StoredRows

EXCHANGES: tuple[Partitioner, ...] = (
    KeyGroupPartitioner((0,)),
    RebalancePartitioner(),
    RescalePartitioner(),
    ShufflePartitioner(),
    BroadcastPartitioner(),
    GlobalPartitioner(),
    ForwardPartitioner(),
    CustomPartitioner(lambda batch, channels: np.zeros(batch.num_rows, np.int64)),
)


def slow_sink(tickets: threading.Semaphore, rows_in_flight: int, progress: list[int], parallelism: int = 1) -> JobGraph:
    elements = [rows([i], [i]) for i in range(rows_in_flight)]
    source = vertex("source", lambda: ReplayingSource(lambda _: elements, Signal(), progress=progress))
    sink = vertex("sink", lambda: Remember(Outcome(), tickets), parallelism=parallelism).read(source, BY_KEY)
    return job(source, sink, settings=SETTINGS)


@pytest.mark.parametrize(("options", "batches"), [
    (CheckpointOptions(), 20),
    (CheckpointOptions(alignment=Alignment.UNALIGNED), 1),
    (CheckpointOptions(alignment_timeout_ms=50), 1),
])  # fmt: skip
def test_an_unaligned_barrier_passes_a_slow_task_where_an_aligned_one_waits(
    options: CheckpointOptions, batches: int
) -> None:
    """The sink takes a batch at a time. However many wait, an overtaking barrier is next."""
    clock, tickets, progress = ManualClock(1_000), threading.Semaphore(0), list[int]()
    with TaskBench(slow_sink(tickets, 20, progress), clock=clock) as bench:
        until(lambda: len(progress) == 20)
        until(lambda: bench.metrics.group("sink-0", "0", "sink-0").counter("numRecordsIn").count == 1)
        bench.trigger(CheckpointBarrier(1, 1_000, options))
        if options.alignment_timeout_ms is not None:
            assert bench.answers(1) == []
            clock.advance(49)
            clock.advance(1)
        source = bench.snapshot(1, "source")
        in_flight = in_flight_rows(source.in_flight)
        assert in_flight == (0 if batches == 20 else 19)
        assert source.figures.in_flight_bytes == in_flight * 24
        size = sum(f.size for f in source.files)
        assert (size > 0) is (in_flight > 0)
        assert source.figures.state_bytes == source.figures.written_bytes == size
        for _ in range(batches - 1):
            tickets.release()
        done = [a for a in bench.answers(1) if a.vertex.vertex_id == "sink-0"]
        assert done == []
        tickets.release()
        snapshot = bench.snapshot(1, "sink")
        assert bench.storage.files[snapshot.files[0].path].num_rows == batches
        if batches == 1:
            (progress_of_channel,) = snapshot.progress
            assert (progress_of_channel.producer, progress_of_channel.idle) == (0, False)
        tickets.release(1_000)


def test_a_source_that_may_still_overtake_acknowledges_when_its_barrier_was_taken() -> None:
    clock, tickets, progress = ManualClock(1_000), threading.Semaphore(0), list[int]()
    with TaskBench(slow_sink(tickets, 5, progress), clock=clock) as bench:
        until(lambda: len(progress) == 5)
        bench.trigger(CheckpointBarrier(1, 1_000, CheckpointOptions(alignment_timeout_ms=50)))
        tickets.release(1_000)
        assert not bench.snapshot(1, "source").in_flight
        assert not bench.snapshot(1, "sink").progress


@pytest.mark.parametrize("partitioner", EXCHANGES, ids=lambda p: p.label)
def test_what_other_channels_give_until_their_barrier_is_recorded(partitioner: Partitioner) -> None:
    """Two sources; one takes part late. Its rows are processed, and are part of the checkpoint nevertheless."""
    sources = [vertex(f"source{i}", endless([i])) for i in range(2)]
    calls: list[tuple[str, str]] = []
    sink = vertex("sink", lambda: Noting(calls, inputs=2))
    for index, source in enumerate(sources):
        sink.read(source, partitioner, index=index)
    barrier = as_unaligned(BARRIER)
    with TaskBench(job(*sources, sink, settings=SETTINGS)) as bench:
        until(lambda: len(calls_of(calls, "sink")) == 3)
        first, second = (t for t in bench.tasks.values() if not t.vertex.gates)
        first.trigger_checkpoint(barrier)
        until(lambda: "snapshot 1" in calls_of(calls, "sink"))
        late = rows([42], [42])
        second._mailbox.put(lambda: second._chain.head_output.emit(late))
        second._mailbox.put(lambda: second._chain.head_output.emit_watermark(Watermark(42)))
        until(lambda: "rows [42]" in calls_of(calls, "sink"))
        assert not [a for a in bench.answers(1) if a.vertex.vertex_id == "sink-0"]
        second.trigger_checkpoint(barrier)
        (recorded,) = bench.snapshot(1, "sink").in_flight
        assert recorded.received
        assert recorded.data_set_id == "source1>sink.1."
        assert isinstance(recorded.elements[0], StoredRows), "the acknowledgement says only where the rows are"
        assert bench.storage.read_in_flight([recorded.elements], "") == [(late, Watermark(42))]


@pytest.mark.parametrize("partitioner", EXCHANGES, ids=lambda p: p.label)
def test_a_checkpoint_completes_while_the_sink_is_blocked_whatever_the_exchange(partitioner: Partitioner) -> None:
    """The barrier is next although 19 batches wait; the sink takes none of them before the checkpoint is complete."""
    tickets, progress = threading.Semaphore(0), list[int]()
    elements = [rows([i], [i]) for i in range(20)]
    source = vertex("source", lambda: ReplayingSource(lambda _: elements, Signal(), progress=progress))
    sink = vertex("sink", lambda: Remember(Outcome(), tickets)).read(source, partitioner)
    with TaskBench(job(source, sink, settings=SETTINGS)) as bench:
        until(lambda: len(progress) == 20)
        until(lambda: bench.metrics.group("sink-0", "0", "sink-0").counter("numRecordsIn").count == 1)
        bench.trigger(as_unaligned(BARRIER))
        bench.snapshot(1, "source")
        tickets.release()  # the batch that it has in its hands
        metadata = bench.assemble(1)
        assert in_flight_rows(metadata.in_flight) == 19
        tickets.release(1_000)


def test_tracked_barriers_hold_nothing_up() -> None:
    sources = [vertex(f"source{i}", endless([i])) for i in range(2)]
    calls: list[tuple[str, str]] = []
    sink = vertex("sink", lambda: Noting(calls))
    for source in sources:
        sink.read(source)
    options = CheckpointOptions(alignment=Alignment.AT_LEAST_ONCE)
    with TaskBench(job(*sources, sink, settings=SETTINGS)) as bench:
        first, second = (t for t in bench.tasks.values() if not t.vertex.gates)
        first.trigger_checkpoint(CheckpointBarrier(1, 0, options))
        bench.snapshot(1, "source0")
        first._mailbox.put(lambda: first._chain.head_output.emit(rows([42])))
        until(lambda: "rows [42]" in calls_of(calls, "sink"))
        assert "snapshot 1" not in calls_of(calls, "sink")
        second.trigger_checkpoint(CheckpointBarrier(1, 0, options))
        bench.assemble(1)


def test_a_source_that_ends_during_a_checkpoint_counts_as_having_sent_its_barrier() -> None:
    ends, stays = Signal(), Signal()
    sources = [vertex("ends", endless([1], ends)), vertex("stays", endless([2], stays))]
    calls: list[tuple[str, str]] = []
    sink = vertex("sink", lambda: Noting(calls))
    for source in sources:
        sink.read(source)
    with TaskBench(job(*sources, sink, settings=SETTINGS)) as bench:
        until(lambda: len(calls_of(calls, "sink")) == 3)
        task = next(t for t in bench.tasks.values() if t.vertex.name.startswith("stays"))
        task.trigger_checkpoint(BARRIER)
        bench.snapshot(1, "stays")
        assert "snapshot 1" not in calls_of(calls, "sink")
        ends.set()
        metadata = bench.assemble(1)
        assert metadata.operators["ends-0"].finished
        bench.trigger(CheckpointBarrier(2, 0))
        bench.assemble(2)


def test_a_checkpoint_whose_rows_in_flight_cannot_be_written_is_declined() -> None:
    tickets, progress, storage = threading.Semaphore(0), list[int](), MemoryStorage()

    def full(target: str, in_flight: object) -> None:
        raise StateError("the disk is full")

    storage.write_in_flight = full  # type: ignore[method-assign, assignment]
    with TaskBench(slow_sink(tickets, 20, progress), storage=storage) as bench:
        until(lambda: len(progress) == 20)
        until(lambda: bench.metrics.group("sink-0", "0", "sink-0").counter("numRecordsIn").count == 1)
        bench.trigger(as_unaligned(BARRIER))
        until(lambda: any(a.declined for a in bench.answers(1)))
        first = next(a for a in bench.answers(1) if a.vertex.vertex_id == "source-0")
        assert first.declined is not None
        assert "the disk is full" in first.declined
        tickets.release(1_000)
