"""Rows in flight on every kind of exchange: a job that goes on from an unaligned checkpoint loses none of them and repeats none."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from recording_operators import Outcome, Remember, ReplayingSource
from runtime_fakes import ROWS, job, rows, until, vertex
from task_bench import MemoryStorage, Signal, TaskBench, in_flight_rows, resume
from test_restored_jobs import BY_KEY, OPTIONS, elements

from flowrun.api.state import OperatorSnapshot, OperatorState, Redistribution
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointBarrier, Element, RecordBatch, Watermark
from flowrun.core.recovery import CheckpointSettings
from flowrun.graph.job_graph import ChainEdge, JobGraph, JobSettings
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flowrun.operators.base import AbstractOperator
from flowrun.state.checkpoints import CheckpointMetadata
from tests.slices import everyday

DEALT: dict[str, Partitioner] = {
    "rebalance": RebalancePartitioner(),
    "rescale": RescalePartitioner(),
    "shuffle": ShufflePartitioner(),
    "global": GlobalPartitioner(),
    "custom": CustomPartitioner(lambda batch, channels: batch.columns["k"].to_numpy() % channels),
    "broadcast": BroadcastPartitioner(),
    "forward": ForwardPartitioner(),
}
SETTINGS = JobSettings(batch_rows=1, checkpoint=CheckpointSettings(1_000))


class Passing(AbstractOperator):
    """Passes rows on, one batch a ticket if there are any; knows which rows were late."""

    def __init__(self, tickets: threading.Semaphore | None, late: list[int]) -> None:
        self._tickets = tickets
        self._late = late
        self._reached = -(2**63)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        if self._tickets is not None:
            self._tickets.acquire()
        self._late += [v for v in batch.columns["v"].to_pylist() if v <= self.current_watermark]
        self.output.emit(batch)

    def on_watermark(self, timestamp: int) -> None:
        assert timestamp > self._reached, "event time must advance strictly"
        self._reached = timestamp


class Job:
    """source → dealt → last: the exchange to `dealt`, which lags behind, is the one that matters."""

    def __init__(self, partitioner: Partitioner, streams: Sequence[Sequence[Element]]) -> None:
        self.partitioner = partitioner
        self.streams = streams
        self.outcome, self.may_end = Outcome(), Signal()
        self.progress: list[int] = []
        self.late: list[int] = []

    def graph(self, parallelism: int, tickets: threading.Semaphore | None = None) -> JobGraph:
        self.outcome, self.late = Outcome(), []
        source = vertex("source", self._source, parallelism=len(self.streams))
        dealt = vertex("dealt", lambda: Passing(tickets, self.late), parallelism=parallelism)
        last = vertex("last", lambda: Remember(self.outcome)).read(dealt.read(source, self.partitioner), BY_KEY)
        return job(source, dealt, last, settings=SETTINGS)

    def chained(self) -> JobGraph:
        """The same with source and `dealt` in one task."""
        self.outcome, self.late = Outcome(), []
        source = vertex("source", self._source, lambda: Passing(None, self.late), parallelism=len(self.streams))
        made = job(source, vertex("last", lambda: Remember(self.outcome)).read(source, BY_KEY), settings=SETTINGS)
        head = made.vertices[0]
        ids = [replace(o, operator_id=i) for o, i in zip(head.operators, ("source-0", "dealt-0"), strict=True)]
        edge = ChainEdge(0, 1, None, "source>dealt.0.", ROWS)
        last = made.vertices[1]
        data_set = "dealt>last.0."
        head = replace(
            head, operators=tuple(ids), chain_edges=(edge,), results=(replace(head.results[0], data_set_id=data_set),)
        )
        last = replace(last, inputs=(replace(last.inputs[0], data_set_id=data_set),))
        return replace(made, vertices=(head, last))

    def checkpoint(self, parallelism: int, kind: str, storage: MemoryStorage, tickets: int) -> CheckpointMetadata:
        """Taken while most rows wait before `dealt`."""
        clock, gate = ManualClock(1_000), threading.Semaphore(tickets)
        due = sum(len(s) for s in self.streams)
        with TaskBench(self.graph(parallelism, gate), clock=clock, storage=storage) as bench:
            until(lambda: len(self.progress) == due)
            bench.trigger(CheckpointBarrier(1, 1_000, OPTIONS[kind]))
            if kind == "timeout":
                clock.advance(10)
            for subtask in range(len(self.streams)):
                bench.snapshot(1, "source", subtask)
            gate.release(1_000_000)
            return bench.assemble(1)

    def finish(self, graph: JobGraph, metadata: CheckpointMetadata, storage: MemoryStorage) -> Counter[int]:
        """How often each row arrived."""
        self.may_end.set()
        with resume(graph, metadata, storage) as bench:
            bench.join()
            assert {u.failure for u in bench.told if getattr(u, "failure", None)} == set()
        return Counter(v for values in self.outcome.values().values() for v in values)

    def _source(self) -> ReplayingSource:
        return ReplayingSource(lambda s: self.streams[s], self.may_end, progress=self.progress)


def sent(streams: Sequence[Sequence[Element]]) -> list[int]:
    return [v for s in streams for e in s if isinstance(e, RecordBatch) for v in e.columns["v"].to_pylist()]


@pytest.mark.parametrize("kind", ["unaligned", "timeout"])
@pytest.mark.parametrize("name", DEALT)
@pytest.mark.parametrize("parallelism", everyday([2, 1, 3], 3))
def test_every_row_counts_once_after_a_restore(name: str, parallelism: int, kind: str) -> None:
    chance = random.Random(f"{name} {parallelism} {kind}")
    producers = parallelism if name == "forward" else chance.randint(1, 2)
    made = Job(DEALT[name], [elements(chance, p, late=False) for p in range(producers)])
    storage = MemoryStorage()
    metadata = made.checkpoint(parallelism, kind, storage, chance.randint(0, 5))
    assert in_flight_rows(metadata.in_flight) > 0
    for restored_at in (parallelism,) if name == "forward" else (parallelism, 1 + parallelism % 3):
        found = made.finish(made.graph(restored_at), metadata, storage)
        if name == "broadcast":
            assert set(found) == set(sent(made.streams))
            assert restored_at != parallelism or set(found.values()) == {parallelism}
        else:
            assert found == Counter(sent(made.streams))
        assert made.late == [], "nothing is late on its own channel"


@pytest.mark.parametrize("seed", range(4))
def test_rows_go_on_within_a_chain_and_are_late_exactly_if_they_were(seed: int) -> None:
    """One consumer of one producer, which are a task each, and then one."""
    chance = random.Random(seed)
    stream = elements(chance, 0, late=True)
    mark, late = -1, []
    for element in stream:
        if isinstance(element, Watermark):
            mark = element.timestamp
        elif isinstance(element, RecordBatch):
            late += [v for v in element.columns["v"].to_pylist() if v <= mark]
    assert late
    made, storage = Job(RebalancePartitioner(), [stream]), MemoryStorage()
    metadata = made.checkpoint(1, "unaligned", storage, 0)  # all but the first batch are in flight
    assert in_flight_rows(metadata.in_flight) > 0
    assert made.finish(made.chained(), metadata, storage) == Counter(sent([stream]))
    assert made.late == late


@pytest.mark.parametrize("old", [2, 3])
def test_rows_of_several_consumers_go_on_within_a_chain(old: int) -> None:
    stream = [rows([i % 5], [10 * i]) for i in range(40)]
    made, storage = Job(RebalancePartitioner(), [stream]), MemoryStorage()
    metadata = made.checkpoint(old, "unaligned", storage, 4)
    assert in_flight_rows(metadata.in_flight) > 20
    assert made.finish(made.chained(), metadata, storage) == Counter(sent([stream]))


def test_broadcast_state_and_what_is_in_flight_to_its_subtask_belong_together() -> None:
    """The subtasks have come differently far; each goes on from where it was, so that all have seen each row once in the end."""
    stream = [rows([i], [i]) for i in range(30)]
    gates = [threading.Semaphore(n) for n in (3, 11)]
    seen: dict[int, list[int]] = {}

    class Listening(AbstractOperator):
        def __init__(self, *, gated: bool) -> None:
            self._gated = gated
            self._mine: list[int] = []

        def initialize_state(self, restored: OperatorSnapshot | None) -> None:
            if restored is not None:
                self._mine = restored.operator["seen"].rows["v"].to_pylist()

        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            if self._gated:
                gates[self.context.subtask].acquire()
            self._mine += batch.columns["v"].to_pylist()

        def snapshot_state(self, checkpoint_id: int) -> OperatorSnapshot:
            table = pa.table({"v": pa.array(self._mine, pa.int64())})
            return OperatorSnapshot(operator={"seen": OperatorState(table, Redistribution.BROADCAST)})

        def finish(self) -> None:
            seen[self.context.subtask] = self._mine

    may_end, progress, storage = Signal(), list[int](), MemoryStorage()

    def graph(parallelism: int, *, gated: bool) -> JobGraph:
        source = vertex("source", lambda: ReplayingSource(lambda _: stream, may_end, progress=progress))
        listening = vertex("listening", lambda: Listening(gated=gated), parallelism=parallelism)
        return job(source, listening.read(source, BroadcastPartitioner()), settings=SETTINGS)

    with TaskBench(graph(2, gated=True), storage=storage) as bench:
        until(lambda: len(progress) == 30)
        bench.trigger(CheckpointBarrier(1, 1_000, OPTIONS["unaligned"]))
        bench.snapshot(1, "source")
        for gate in gates:
            gate.release(1_000)
        metadata = bench.assemble(1)
    may_end.set()
    for parallelism in (1, 2, 3):
        seen.clear()
        with resume(graph(parallelism, gated=False), metadata, storage) as bench:
            bench.join()
        assert seen == {subtask: list(range(30)) for subtask in range(parallelism)}
