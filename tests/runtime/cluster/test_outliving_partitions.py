"""Blocking partitions when the workers die that wrote them: read from where they are, or written again; once, and nothing is left."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from runtime_fakes import Collect, ListSource, Seen, job, pairs, random_rows, until, vertex

from flowrun.core.elements import RecordBatch
from flowrun.core.recovery import RestartSettings
from flowrun.graph.job_graph import JobGraph, JobSettings, ResultType
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.jobmaster import job_master
from flowrun.runtime.jobmaster.job_master import JobMaster
from flowrun.runtime.lifecycle import JobState
from tests.runtime.cluster.thread_workers import ThreadWorker, ThreadWorkers
from tests.slices import everyday

ROWS = 20_000
"""Of each source subtask."""
SETTINGS = JobSettings(batch_mode=True, restart=RestartSettings("fixed_delay", attempts=5, delay_ms=0))


class Watching(Collect):
    """Tells of each batch before it is passed on."""

    def __init__(self, seen: Seen, watch: Callable[[RecordBatch], object]) -> None:
        super().__init__(seen)
        self._watch = watch

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._watch(batch)
        super().process_batch(batch, input_index)


class Halt:
    """Holds up who comes first to it, until it is told to go on."""

    def __init__(self, after: int = 1) -> None:
        self.reached, self._go = threading.Event(), threading.Event()
        self._left = after
        self._lock = threading.Lock()

    def __call__(self, _: RecordBatch) -> None:
        with self._lock:
            self._left -= 1
            comes_first = self._left == 0
        if comes_first:
            self.reached.set()
            assert self._go.wait(20)

    def go(self) -> None:
        self._go.set()


class Stages:
    """source → middle → sink, all exchanges of which are blocking."""

    def __init__(
        self,
        parallelism: int,
        first: Callable[[RecordBatch], object] = id,
        second: Callable[[RecordBatch], object] = id,
    ) -> None:
        self.parallelism = parallelism
        self.read: list[int] = []
        """Rows that sources have given, over all attempts."""
        self.seen = Seen()

        def count(batch: RecordBatch) -> None:
            self.read.append(batch.num_rows)
            first(batch)

        source = vertex(
            "source",
            lambda: ListSource(lambda s: [random_rows(2000, 10 * s + i) for i in range(10)]),
            lambda: Watching(Seen(), count),
            parallelism=parallelism,
        )
        middle = vertex("middle", lambda: Watching(Seen(), second), parallelism=parallelism)
        middle.read(source, KeyGroupPartitioner((0,)))
        sink = vertex("sink", lambda: Collect(self.seen), parallelism=parallelism).read(
            middle, KeyGroupPartitioner((1,))
        )
        self.graph: JobGraph = job(source, middle, sink, settings=SETTINGS, type=ResultType.BLOCKING)

    def check_rows(self) -> None:
        expected = [random_rows(2000, 10 * s + i) for s in range(self.parallelism) for i in range(10)]
        assert Counter(self.seen.pairs()) == Counter(pairs(expected))


class Run:
    def __init__(self, workers: ThreadWorkers, cluster: WorkerCluster, master: JobMaster) -> None:
        self.workers = workers
        self.cluster = cluster
        self.master = master

    def worker_of(self, name: str, subtask: int = 0) -> ThreadWorker:
        """The worker that a subtask was deployed to."""
        vertices = ((e.vertex, e.worker) for e in self.master._scheduler.executions)
        found = next(w for v, w in vertices if v.vertex_id.startswith(name) and v.subtask == subtask)
        return next(w for w in self.workers.workers if w.name == found)

    def end(self) -> int:
        """Wait for the job's end; gives how often it was restarted. Nothing is left of it then."""
        result = self.master.wait(60_000)
        assert result is not None
        assert result.state is JobState.FINISHED
        assert self.cluster.manager.slots.held == {}
        living = [w for w in self.workers.workers if not w.job_manager_end.is_closed]
        for worker in living:
            until(lambda worker=worker: worker.pool.free_slots == worker.pool.total_slots)  # type: ignore[misc]
        hosts = {worker.host_folder.path for worker in living}
        assert [p for p in self.workers.files if hosts.intersection(p.parents)] == []
        return result.restarts


@contextmanager
def running(stages: Stages, workers: int = 2, hosts: int = 1) -> Iterator[Run]:
    made = ThreadWorkers(stages.graph, workers, stages.parallelism, hosts)
    with WorkerCluster(made) as cluster:
        yield Run(made, cluster, cluster.submit(stages.graph))


def kill(run: Run, halt: Halt, victim: ThreadWorker) -> None:
    """A worker dies while somebody is held up, who then goes on."""
    victim.die()
    until(lambda: victim.name not in [w.name for w in run.cluster.manager.workers])
    halt.go()
    victim.executor.close()


@pytest.mark.parametrize(
    ("parallelism", "workers", "hosts"),
    everyday([(p, workers, hosts) for workers, hosts in ((2, 1), (4, 2)) for p in (2, 3, 1)], 3),
)
def test_what_a_dead_worker_had_finished_is_read_where_it_is(parallelism: int, workers: int, hosts: int) -> None:
    halt = Halt()
    stages = Stages(parallelism, second=halt)
    with running(stages, workers, hosts) as run:
        assert halt.reached.wait(20)
        kill(run, halt, run.worker_of("source"))
        assert run.end() <= 1
        status = run.master.status()
    assert sum(stages.read) == ROWS * parallelism, f"sources were read again: {status.last_failure}"
    stages.check_rows()


@pytest.mark.parametrize("parallelism", everyday([1, 2, 3], 3))
def test_what_a_worker_was_writing_when_it_died_is_written_again(parallelism: int) -> None:
    halt = Halt(after=5)
    stages = Stages(parallelism, first=halt)
    with running(stages, 2, 2) as run:
        assert halt.reached.wait(20)
        kill(run, halt, run.worker_of("source"))
        assert run.end() == 1
    assert sum(stages.read) > ROWS * parallelism
    stages.check_rows()


@pytest.mark.parametrize("parallelism", everyday([2, 1], 2))
def test_a_host_that_comes_back_in_time_still_has_them(parallelism: int) -> None:
    """Its only worker died, as that of a task manager with one slot; the next one takes a moment."""
    halt = Halt()
    stages = Stages(parallelism, second=halt)
    with running(stages, 2, 2) as run:
        assert halt.reached.wait(20)
        victim = run.worker_of("source")
        kill(run, halt, victim)
        until(lambda: run.master.status().restarts or parallelism == 1)
        run.workers.add(run.workers.hosts.index(victim.host_folder))
        run.end()
    assert sum(stages.read) == ROWS * parallelism, "no source was read again"
    stages.check_rows()


@pytest.mark.parametrize("parallelism", everyday([2, 1], 2))
def test_what_is_lost_with_its_host_is_written_again(parallelism: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_master, "HOST_RETURNS_WITHIN_MS", 100)
    halt = Halt()
    stages = Stages(parallelism, second=halt)
    with running(stages, 2, 2) as run:
        assert halt.reached.wait(20)
        victim = run.worker_of("source")
        kill(run, halt, victim)
        result = run.master.wait(60_000)
        assert result is not None
    assert sum(stages.read) > ROWS * parallelism
    stages.check_rows()


class Spoiling:
    """Fails once, when it has done something to the files of the stage before."""

    def __init__(self, spoil: Callable[[Path], object]) -> None:
        self.folder = Path()
        self._spoil = spoil
        self._done = threading.Lock()

    def __call__(self, _: RecordBatch) -> None:
        if self._done.acquire(blocking=False):
            for path in self.folder.rglob("source>middle*"):
                self._spoil(path)
            raise OSError("something else")


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "parallelism"), everyday([(spoil, p) for p in (3, 1) for spoil in (damage, Path.unlink, shorten)], 4)
)
def test_files_that_are_gone_or_damaged_are_written_again(spoil: Callable[[Path], object], parallelism: int) -> None:
    spoiling = Spoiling(spoil)
    stages = Stages(parallelism, second=spoiling)
    made = ThreadWorkers(stages.graph, 2, parallelism)
    spoiling.folder = made.hosts[0].path
    with WorkerCluster(made) as cluster:
        run = Run(made, cluster, cluster.submit(stages.graph))
        assert run.end() <= 1 + parallelism
    assert sum(stages.read) > ROWS * parallelism
    stages.check_rows()


def test_a_worker_that_is_cut_off_writes_nothing_that_is_read() -> None:
    """It does not know that another attempt has taken the place of its own, and comes to its end."""
    halt = Halt(after=5)
    stages = Stages(1, first=halt)
    with running(stages) as run:
        assert halt.reached.wait(20)
        lost = run.worker_of("source")
        lost.die()
        until(lambda: run.master.status().restarts)
        halt.go()
        assert run.end() == 1
    stages.check_rows()
