"""Whatever the topology and however few buffers there are: every row arrives, nothing waits for ever, every slot comes back."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from runtime_fakes import Collect, Count, RepeatSource, Seen, Vertex, job, random_rows, until, vertex

from flowrun.core.clock import SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.errors import JobFailedError
from flowrun.graph.execution_graph import build_execution_graph
from flowrun.graph.job_graph import JobGraph, JobSettings
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    GlobalPartitioner,
    KeyGroupPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.local_cluster import LocalCluster

PARTITIONERS: tuple[Partitioner, ...] = (
    KeyGroupPartitioner((0,)),
    RebalancePartitioner(),
    RescalePartitioner(),
    ShufflePartitioner(),
    BroadcastPartitioner(),
    GlobalPartitioner(),
)


class Topology:
    """A random graph of two sources and up to four operators, each of which reads one or two of those before it."""

    def __init__(self, seed: int, *, endless: bool = False, fails: bool = False) -> None:
        chance = self.chance = random.Random(seed)
        self.vertices: list[Vertex] = []
        self.sent: dict[str, int] = {}
        """Rows that all subtasks of a vertex emit."""
        for name in ("a", "b"):
            batch, times = random_rows(chance.choice([1, 300, 5_000, 40_000])), chance.randint(1, 6)
            parallelism = chance.randint(1, 3)
            self._add(name, self._source(batch, None if endless else times), parallelism, [])
            self.sent[name] = batch.num_rows * times * parallelism
        for name in "cdef"[: chance.randint(1, 4)]:
            reads = [(chance.choice(self.vertices), chance.choice(PARTITIONERS)) for _ in range(chance.randint(1, 2))]
            parallelism = chance.randint(1, 3)
            failing = fails and name == "c"
            inputs = len(reads)
            self._add(name, Failing if failing else (lambda n=inputs: Passing(n)), parallelism, reads)
            self.sent[name] = sum(
                self.sent[v.name] * (parallelism if isinstance(p, BroadcastPartitioner) else 1) for v, p in reads
            )
        self.graph: JobGraph = job(*self.vertices, settings=JobSettings(batch_rows=chance.choice([1, 1_000, 65_536])))

    @property
    def slots(self) -> int:
        """What all partitions and gates need at least, and a few more."""
        needed = self.chance.choice([0, 3, 40])
        for subtask in build_execution_graph(self.graph).all_vertices():
            needed += sum(2 * p.subpartitions for p in subtask.partitions) + sum(
                2 * len(g.channels) for g in subtask.gates
            )
        return needed

    def _add(
        self, name: str, make: Callable[[], object], parallelism: int, reads: list[tuple[Vertex, Partitioner]]
    ) -> None:
        added = vertex(name, make, parallelism=parallelism)
        for index, (other, partitioner) in enumerate(reads):
            added.read(other, partitioner, index)
        self.vertices.append(added)

    @staticmethod
    def _source(batch: RecordBatch, times: int | None) -> Callable[[], RepeatSource]:
        return lambda: RepeatSource(batch, times)


class Passing(Collect):
    """Counts rows and passes them on."""

    def __init__(self, inputs: int) -> None:
        super().__init__(Seen(), inputs)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self.context.metrics.counter("seen").inc(batch.num_rows)
        self.output.emit(batch)


class Failing(Count):
    inputs = 2

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        raise ValueError("no")


@pytest.mark.parametrize("seed", range(25))
def test_every_row_arrives_over_random_topologies_of_small_pools(seed: int) -> None:
    topology = Topology(seed)
    with LocalCluster(SystemClock(), total_slots=topology.slots) as cluster:
        running = cluster.submit(topology.graph)
        result = running.wait(30_000)
        assert result is not None, "it hangs"
        assert result.state is JobState.FINISHED
        for name, expected in topology.sent.items():
            if name > "b":
                assert result.accumulators[name].get("seen", 0) == expected
        assert cluster.pool.free_slots == cluster.pool.total_slots


@pytest.mark.parametrize("seed", range(5))
def test_every_slot_comes_back_when_a_job_is_cancelled(seed: int) -> None:
    topology = Topology(seed, endless=True)
    with LocalCluster(SystemClock(), total_slots=topology.slots) as cluster:
        running = cluster.submit(topology.graph)
        until(lambda: any(v.records_out for v in running.status().vertices[:2]))
        running.cancel()
        assert running.wait(30_000).state is JobState.CANCELED  # type: ignore[union-attr]
        assert cluster.pool.free_slots == cluster.pool.total_slots


@pytest.mark.parametrize("seed", range(5))
def test_every_slot_comes_back_when_a_job_fails(seed: int) -> None:
    topology = Topology(seed, endless=True, fails=True)
    with LocalCluster(SystemClock(), total_slots=topology.slots) as cluster:
        running = cluster.submit(topology.graph)
        with pytest.raises(JobFailedError, match="ValueError: no"):
            running.wait(30_000)
        assert running.status().state is JobState.FAILED
        assert cluster.pool.free_slots == cluster.pool.total_slots
