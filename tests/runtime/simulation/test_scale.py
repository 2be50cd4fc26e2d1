"""A thousand workers and ten thousand subtasks: what a job master does for them costs as much a subtask as with a hundred workers."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner
from flowrun.runtime.lifecycle import ExecutionState, JobState
from tests.job_graphs import Edge, Vertex, job_graph
from tests.runtime.simulation.cluster import Cluster, with_settings
from tests.slices import in_ci

VERTICES = 10
SLOTS = 10
MOST_TIMES = 25
"""How many times as much ten times as many subtasks may cost: what is linear takes 10 to 15 times, as memory is further away."""
LIMIT_MS = 600_000.0


def chains(parallelism: int, *, joined: bool) -> JobGraph:
    """Ten vertices in a row; `joined`: into one sink, so that all of it is one region."""
    names = [f"v{i}" for i in range(VERTICES)]
    vertices = [Vertex(name, parallelism) for name in names]
    edges = [Edge(a, b, ForwardPartitioner()) for a, b in pairwise(names)]
    if joined:
        vertices.append(Vertex("sink", 1))
        edges.append(Edge(names[-1], "sink", RebalancePartitioner()))
    return with_settings(
        job_graph(vertices, edges),
        "large",
        checkpoint=CheckpointSettings(10_000, timeout_ms=600_000),
        restart=RestartSettings("fixed_delay", attempts=10, delay_ms=0),
    )


class Timed:
    """Processor seconds of each phase of one job's life."""

    def __init__(self, workers: int, *, joined: bool) -> None:
        self.seconds: dict[str, float] = {}
        self.cluster = Cluster(0, delay_ms=1, pace_ms=1)
        self.cluster.looks_at_deployments = False
        for _ in range(workers):
            self.cluster.add_worker(SLOTS)
        self.cluster.time.run_for(100)
        graph = chains(workers, joined=joined)
        with self._timed("submit"):
            self.job = self.cluster.submit(graph, None)
        with self._timed("deploy"):
            self._until(self._runs)
        with self._timed("checkpoint"):
            self._until(lambda: self.job.master.checkpoints_status.completed >= 1)
        for phase, trouble in {"failure and restart": self._fail_one, "loss and restart": self._lose_one}.items():
            restarts = self.job.master._scheduler.restarts
            with self._timed(phase):
                trouble()
                self._until(lambda restarts=restarts: self.job.master._scheduler.restarts > restarts and self._runs())  # type: ignore[misc]
        with self._timed("cancel"):
            self.job.cancelled = True
            self.job.master.cancel()
            self._until(self.job.look)
        self.cluster.check_quiet()

    def _fail_one(self) -> None:
        self._living_task().fail(OSError("broke"))

    def _lose_one(self) -> None:
        self.cluster.kill(next(w for w in self.cluster.workers if w.living))
        self.cluster.add_worker(SLOTS)

    def _living_task(self):  # type: ignore[no-untyped-def]
        return next(task for w in self.cluster.workers for task in w.living)

    def _runs(self) -> bool:
        scheduler = self.job.master._scheduler
        return scheduler.state is JobState.RUNNING and all(
            e.state is ExecutionState.RUNNING for e in scheduler.executions
        )

    def _until(self, holds: Callable[[], bool]) -> None:
        """Look now and then: to look at all subtasks after each event would be what costs."""
        for _ in range(1000):
            if holds():
                return
            self.cluster.time.run_for(LIMIT_MS / 1000)
        raise AssertionError("it did not come to that")

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        gc.collect()
        gc.disable()
        began = time.process_time()
        yield
        self.seconds[phase] = time.process_time() - began
        gc.enable()


@pytest.mark.exhaustive
@pytest.mark.parametrize("joined", in_ci([True, False], 2))
def test_ten_thousand_subtasks_on_a_thousand_workers_cost_ten_times_as_much_as_a_thousand(joined: bool) -> None:
    small, large = Timed(100, joined=joined).seconds, Timed(1_000, joined=joined).seconds
    times = {phase: large[phase] / small[phase] for phase in small}
    assert max(times.values()) < MOST_TIMES, (times, large)
