"""Stories of a cluster on a simulated network: whoever dies, hangs or is cut off, and in whatever order messages come.

The resource manager, the slot pool and the job masters are the real ones; a seed is a story, which a failing test names.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.partitioner import ForwardPartitioner, RebalancePartitioner
from tests.job_graphs import Edge, Vertex, job_graph
from tests.runtime.simulation.cluster import Cluster, Job, all_over, with_settings
from tests.runtime.simulation.workers import Worker
from tests.slices import in_ci

EVERYDAY = 30
ALL = 3_000
HOUR_MS = 3_600_000.0


def a_graph(cluster: Cluster) -> JobGraph:
    """A job of some shape."""
    chance = cluster.time.chance
    p = chance.randint(1, 3)
    shape = chance.randrange(3)
    if shape == 0:
        graph = job_graph([Vertex("a", p), Vertex("b", p)], [Edge("a", "b", ForwardPartitioner())])
    elif shape == 1:
        graph = job_graph(
            [Vertex("a", p), Vertex("b", chance.randint(1, 3)), Vertex("c", 1)],
            [Edge("a", "b", RebalancePartitioner()), Edge("b", "c", RebalancePartitioner())],
        )
    else:
        graph = job_graph(
            [Vertex("a", p), Vertex("x", 1, group="other"), Vertex("j", 2)],
            [Edge("a", "j", RebalancePartitioner()), Edge("x", "j", RebalancePartitioner(), 1)],
        )
    checkpoint = chance.choice(
        [
            None,
            CheckpointSettings(200, timeout_ms=5_000, tolerable_failures=chance.choice([0, 3, 100])),
            CheckpointSettings(100, timeout_ms=20_000, max_concurrent=2, tolerable_failures=100, retain=2),
        ]
    )
    restart = chance.choice(
        [
            None,
            RestartSettings("fixed_delay", attempts=chance.randint(1, 3), delay_ms=100),
            RestartSettings("exponential"),
        ]
    )
    return with_settings(
        graph,
        f"job{len(cluster.jobs) + 1}",
        checkpoint=checkpoint,
        restart=restart,
        request_timeout_ms=chance.choice([0, 30_000]),
        cancellation_timeout_ms=chance.choice([2_000, 20_000]),
    )


class Story:
    """Some jobs on some workers, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self.chance = self.cluster.time.chance
        self.cluster.trouble = self.chance.choice([0.0, 0.0, 0.1])
        for _ in range(self.chance.randint(1, 4)):
            self.cluster.add_worker(self.chance.randint(1, 3))
        self.befalls: list[Callable[[], None]] = [
            self.submit,
            self.kill,
            self.kill,
            self.hang,
            self.cut_off,
            self.fail_subtask,
            self.fail_subtask,
            self.have_one_stuck,
            self.cancel,
            self.stop,
            self.savepoint,
            self.join,
            self.replace_by_name,
        ]

    @property
    def jobs(self) -> list[Job]:
        return list(self.cluster.jobs.values())

    def tell(self) -> None:
        for _ in range(self.chance.randint(1, 2)):
            self.submit()
        for _ in range(self.chance.randint(3, 15)):
            self.cluster.time.run_for(self.chance.expovariate(1 / 400))
            self.chance.choice(self.befalls)()
            self.cluster.time.after(self.chance.uniform(0, 3_000), self.cluster.repeat_old_news)
            self.cluster.check()
        self.heal()
        self.end()

    def heal(self) -> None:
        """Nothing more goes wrong."""
        self.cluster.trouble = 0
        for worker in list(self.cluster.workers):
            self.cluster.mend(worker)
            worker.process.go_on()
        if self.chance.random() < 0.7:
            for _ in range(3):
                self.cluster.add_worker(3)

    def end(self) -> None:
        """Left alone, every job comes to an end, or waits for slots that are not there: it gets them, then."""
        self.cluster.time.run_until(lambda: all_over(self.jobs), HOUR_MS)
        for job in self.jobs:
            assert job.look() or job.waits_in_vain, f"{job.job_id} stands still: {job.master.status()}"
        if not all_over(self.jobs):
            for _ in range(4):
                self.cluster.add_worker(3)
            assert self.cluster.time.run_until(lambda: all_over(self.jobs), HOUR_MS), "there are slots for all"
        self.cluster.time.run_for(120_000)
        self.cluster.check()
        self.cluster.check_quiet()

    def one(self) -> Worker | None:
        return self.chance.choice(self.cluster.workers) if self.cluster.workers else None

    def submit(self) -> None:
        self.cluster.submit(a_graph(self.cluster), self.chance.choice([5, 60, 300]))

    def join(self) -> None:
        self.cluster.add_worker(self.chance.randint(1, 3))

    def kill(self) -> None:
        worker = self.one()
        if worker is not None:
            self.cluster.kill(worker)
            if self.chance.random() < 0.7:
                self.cluster.time.run_for(self.chance.uniform(0, 1_000))
                self.cluster.add_worker(worker.slots)

    def replace_by_name(self) -> None:
        """Another process of the same name comes while the job manager still knows the one before."""
        worker = self.one()
        if worker is not None:
            self.cluster.cut(worker)
            self.cluster.add_worker(self.chance.randint(1, 3), worker.name)

    def hang(self) -> None:
        worker = self.one()
        if worker is not None and not worker.process.is_stopped:
            worker.process.stop()
            self.cluster.time.after(self.chance.choice([500, 20_000, 80_000]), worker.process.go_on)

    def cut_off(self) -> None:
        worker = self.one()
        if worker is not None:
            self.cluster.cut(worker)
            self.cluster.time.after(self.chance.choice([500, 20_000, 80_000]), lambda: self.cluster.mend(worker))

    def fail_subtask(self) -> None:
        tasks = [task for worker in self.cluster.workers for task in worker.living]
        if tasks:
            self.chance.choice(tasks).fail(OSError("broke"))

    def have_one_stuck(self) -> None:
        """It does not end when it is cancelled."""
        tasks = [task for worker in self.cluster.workers for task in worker.living]
        if tasks:
            self.chance.choice(tasks).is_stuck = True

    def cancel(self) -> None:
        job = self.chance.choice(self.jobs)
        job.cancelled = True
        job.master.cancel()

    def stop(self) -> None:
        self.chance.choice(self.jobs).master.stop(drain=self.chance.random() < 0.5)

    def savepoint(self) -> None:
        stop = self.chance.random() < 0.5
        job = self.chance.choice(self.jobs)
        job.records.stopped = job.records.stopped or stop
        job.master.take_snapshot(None, savepoint=True, stop=stop, drain=False)


@pytest.mark.parametrize("seed", range(EVERYDAY))
def test_every_job_ends_and_no_slot_is_lost(seed: int) -> None:
    Story(seed).tell()


@pytest.mark.exhaustive
@pytest.mark.parametrize("hundred", in_ci(range(EVERYDAY // 100, ALL // 100), 5))
def test_every_job_of_thousands_of_stories_ends(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        try:
            Story(seed).tell()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
