"""A job that is torn down after a checkpoint and goes on from it gives what it would have given: every row once, in order.

The checkpoint is taken at a random point, with consumers that are behind, so that rows are in flight on every exchange.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass

import pytest
from recording_operators import Outcome, Remember, ReplayingSource
from runtime_fakes import Vertex, job, rows, until, vertex
from task_bench import MemoryStorage, Signal, TaskBench, in_flight_rows, resume

from flowrun.core.clock import ManualClock
from flowrun.core.elements import (
    ACTIVE,
    IDLE,
    Alignment,
    CheckpointBarrier,
    CheckpointOptions,
    Element,
    RecordBatch,
    Watermark,
)
from flowrun.core.recovery import CheckpointSettings
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.graph.partitioner import KeyGroupPartitioner, RebalancePartitioner
from flowrun.runtime.lifecycle import ExecutionState

BY_KEY = KeyGroupPartitioner((0,))
OPTIONS = {
    "aligned": CheckpointOptions(),
    "unaligned": CheckpointOptions(alignment=Alignment.UNALIGNED),
    "timeout": CheckpointOptions(alignment_timeout_ms=10),
}
KEYS = 9


def elements(chance: random.Random, producer: int, *, late: bool) -> list[Element]:
    """Batches of rising values (their event times), unique to the producer, with watermarks; some rows late, if wanted."""
    made: list[Element] = []
    value = mark = 0
    for _ in range(chance.randint(10, 25)):
        values = []
        for _ in range(chance.randint(1, 6)):
            value += 1
            behind = late and chance.random() < 0.3 and mark > 10
            values.append((mark - chance.randint(0, 5) if behind else value) * 10 + producer)
        made.append(rows([chance.randrange(KEYS) for _ in values], values))
        roll = chance.random()
        if roll < 0.5 and value > mark:
            mark = value
            made.append(Watermark(mark * 10 + 9))
        elif late and roll < 0.6:  # beside other channels an idle one may become late
            made += [IDLE, ACTIVE]
    return made


@dataclass
class Shape:
    """A random job: producers of one or two inputs, one of which may be a union, then one or two keyed layers."""

    producers: list[int]
    inputs: list[int]
    layers: list[int]
    streams: list[list[list[Element]]]
    batch_rows: int

    @staticmethod
    def draw(chance: random.Random, topology: str) -> Shape:
        inputs = {"one": [0], "union": [0, 0], "two": [0, 1], "both": [0, 1, 0]}[topology]
        producers = [chance.randint(1, 2) for _ in inputs]
        streams, number = [], 0
        for parallelism in producers:
            streams.append([elements(chance, number + s, late=False) for s in range(parallelism)])
            number += parallelism
        layers = [chance.randint(1, 3) for _ in range(chance.randint(1, 2))]
        return Shape(producers, inputs, layers, streams, chance.choice([1, 5, 1000]))

    def graph(
        self, outcome: Outcome, may_end: Signal, *, limits: list[int] | None = None,
        tickets: threading.Semaphore | None = None, progress: list[int] | None = None,
    ) -> JobGraph:  # fmt: skip
        sources = [
            vertex(
                f"source{i}",
                lambda i=i: ReplayingSource(  # type: ignore[misc]
                    lambda s: self.streams[i][s], may_end, None if limits is None else limits[i], progress=progress
                ),
                parallelism=parallelism,
            )
            for i, parallelism in enumerate(self.producers)
        ]
        vertices: list[Vertex] = [*sources]
        for number, parallelism in enumerate(self.layers):
            first, last = number == 0, number == len(self.layers) - 1
            inputs = 1 + max(self.inputs) if first else 1
            layer = vertex(
                f"layer{number}",
                lambda inputs=inputs, last=last, first=first: Remember(  # type: ignore[misc]
                    outcome if last else None, tickets if first else None, inputs
                ),
                parallelism=parallelism,
            )
            for source, index in zip(sources, self.inputs, strict=True) if first else ():
                layer.read(source, BY_KEY, index)
            if not first:
                layer.read(vertices[-1], BY_KEY)
            vertices.append(layer)
        settings = JobSettings(batch_rows=self.batch_rows, checkpoint=CheckpointSettings(1_000))
        return job(*vertices, settings=settings, buffer_timeout_ms=-1 if self.batch_rows == 5 else 5)

    def expected(self) -> dict[tuple[int, int], list[int]]:
        """(key, producer) → values in order."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for stream in (s for streams in self.streams for s in streams):
            for batch in (e for e in stream if isinstance(e, RecordBatch)):
                for k, v in zip(batch.columns["k"].to_pylist(), batch.columns["v"].to_pylist(), strict=True):
                    found[k, v % 10].append(v)
        return dict(found)


def by_producer(outcome: Outcome) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, values in outcome.values().items():
        for v in values:
            found[k, v % 10].append(v)
    return dict(found)


def run_to_checkpoint(shape: Shape, chance: random.Random, kind: str, storage: MemoryStorage):  # type: ignore[no-untyped-def]
    """Take a checkpoint while the first layer lags behind; gives its metadata."""
    clock, tickets, progress = ManualClock(1_000), threading.Semaphore(chance.randint(0, 8)), list[int]()
    limits = [chance.randint(0, max(len(s) for s in streams)) for streams in shape.streams]
    graph = shape.graph(Outcome(), Signal(), limits=limits, tickets=tickets, progress=progress)
    due = sum(min(limit, len(s)) for limit, streams in zip(limits, shape.streams, strict=True) for s in streams)
    with TaskBench(graph, clock=clock, storage=storage) as bench:
        bench.wait_for(ExecutionState.RUNNING)
        until(lambda: len(progress) == due)
        bench.trigger(CheckpointBarrier(1, clock.now_ms(), OPTIONS[kind]))
        if kind == "timeout":
            for _ in range(chance.randint(0, 6)):
                tickets.release()
            clock.advance(10)
        tickets.release(1_000_000)
        metadata = bench.assemble(1)
        if chance.random() < 0.5:
            bench.complete(1)
    return metadata


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("topology", ["one", "union", "two", "both"])
@pytest.mark.parametrize("seed", range(4))
def test_every_row_counts_once_and_in_order(kind: str, topology: str, seed: int) -> None:
    chance = random.Random(f"{seed} {kind} {topology}")
    shape, storage = Shape.draw(chance, topology), MemoryStorage()
    metadata = run_to_checkpoint(shape, chance, kind, storage)
    if kind == "aligned":
        assert not metadata.in_flight
    again = Shape(shape.producers, shape.inputs, list(shape.layers), shape.streams, shape.batch_rows)
    for parallelism in {0, chance.randint(1, 3)}:
        if parallelism:
            again.layers = [parallelism for _ in shape.layers]
        outcome, may_end = Outcome(), Signal()
        may_end.set()
        with resume(again.graph(outcome, may_end), metadata, storage) as bench:
            bench.join()
            assert {u.failure for u in bench.told if getattr(u, "failure", None)} == set()
        assert by_producer(outcome) == shape.expected()
        assert outcome.late() == [], "nothing is late on its own channel"


@pytest.mark.parametrize("kind", ["unaligned", "timeout"])
@pytest.mark.parametrize("seed", range(6))
def test_rows_in_flight_are_late_exactly_if_they_were_late_before(kind: str, seed: int) -> None:
    """One producer: the order of rows and watermarks decides, whatever the parallelism of the consumers."""
    chance = random.Random(f"{seed} {kind}")
    stream = elements(chance, 0, late=True)
    shape = Shape([1], [0], [chance.randint(1, 3)], [[stream]], 1000)
    late, mark = [], -1
    for element in stream:
        if isinstance(element, Watermark):
            mark = element.timestamp
        elif isinstance(element, RecordBatch):
            late += [v for v in element.columns["v"].to_pylist() if v <= mark]
    assert late
    storage = MemoryStorage()
    metadata = run_to_checkpoint(shape, chance, kind, storage)
    for parallelism in (1, 2, 3):
        outcome, may_end = Outcome(), Signal()
        may_end.set()
        again = Shape([1], [0], [parallelism], [[stream]], 1000)
        with resume(again.graph(outcome, may_end), metadata, storage) as bench:
            bench.join()
        assert outcome.late() == sorted(late), f"restored at parallelism {parallelism}"


def test_rows_really_were_in_flight() -> None:
    """Else the tests above would prove nothing."""
    found = 0
    for seed in range(8):
        chance = random.Random(seed)
        metadata = run_to_checkpoint(Shape.draw(chance, "both"), chance, "unaligned", MemoryStorage())
        found += in_flight_rows(metadata.in_flight)
        assert metadata.progress
    assert found > 100


def test_rows_dealt_round_robin_are_in_flight_too() -> None:
    stream = [rows([i], [10 * i]) for i in range(40)]
    tickets, progress, storage, clock = threading.Semaphore(2), list[int](), MemoryStorage(), ManualClock(1_000)

    def graph(outcome: Outcome, may_end: Signal, parallelism: int, tickets: threading.Semaphore | None) -> JobGraph:
        source = vertex("source", lambda: ReplayingSource(lambda _: stream, may_end, progress=progress))
        dealt = vertex("dealt", lambda: Passing(tickets), parallelism=parallelism).read(source, RebalancePartitioner())
        last = vertex("last", lambda: Remember(outcome)).read(dealt, BY_KEY)
        return job(source, dealt, last, settings=JobSettings(batch_rows=1, checkpoint=CheckpointSettings(1_000)))

    class Passing(Remember):
        def __init__(self, tickets: threading.Semaphore | None) -> None:
            super().__init__()
            self._own_tickets = tickets

        def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
            if self._own_tickets is not None:
                self._own_tickets.acquire()
            self.output.emit(batch)

    with TaskBench(graph(Outcome(), Signal(), 2, tickets), clock=clock, storage=storage) as bench:
        until(lambda: len(progress) == 40)
        bench.trigger(CheckpointBarrier(1, 1_000, OPTIONS["unaligned"]))
        bench.snapshot(1, "source")
        tickets.release(1_000)
        metadata = bench.assemble(1)
    assert metadata.in_flight
    for parallelism in (1, 2, 3):
        outcome, may_end = Outcome(), Signal()
        may_end.set()
        with resume(graph(outcome, may_end, parallelism, None), metadata, storage) as bench:
            bench.join()
        assert outcome.values() == {i: [10 * i] for i in range(40)}
