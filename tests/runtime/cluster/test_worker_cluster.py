"""Jobs over several workers, whose threads are in this process: what a job master hears of them, and what they give back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from flowrun.errors import JobFailedError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.workers import choose_workers
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.jobmaster.repeated_failures import SAME_FAILURES
from flowrun.runtime.lifecycle import JobState
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, write_pipeline
from tests.runtime.cluster.thread_workers import ThreadWorkers


@contextmanager
def running(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: str = "",
    rows: int = 20_000,
    rate: int = 1_000_000,
    compiled_by_workers: JobGraph | None = None,
) -> Iterator[tuple[LocalJob, ThreadWorkers, WorkerCluster]]:
    monkeypatch.chdir(folder)
    compiled = compile_pipeline(write_pipeline(folder, settings, rows, rate))
    graph = compiled.job_graph
    numbers = choose_workers(graph, 2)
    assert numbers is not None
    workers = ThreadWorkers(compiled_by_workers or graph, numbers.workers, numbers.slots)
    with (
        WorkerCluster(workers, JobText(compiled.text)) as cluster,
        start_embedded(graph, cluster=cluster, state=JobStateOptions(str(folder / "state"))) as job,
    ):
        yield job, workers, cluster


def until(holds: Callable[[], object]) -> None:
    """Wait without taking the interpreter lock from whom is waited for."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_a_job_gives_back_all_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, monkeypatch) as (job, workers, cluster):
        result = job.wait(60_000)
        assert result is not None
        assert result.state is JobState.FINISHED
        assert [v.records_in for v in result.vertices if v.name.startswith("Source")] == [20_000]
        check_counts(tmp_path, 20_000)
        assert cluster.manager.slots.held == {}
        for worker in workers.workers:
            until(lambda worker=worker: worker.pool.free_slots == worker.pool.total_slots)  # type: ignore[misc]


def test_no_worker_may_come_again_when_connections_are_closed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepting: list[bool] = []
    with running(tmp_path, monkeypatch) as (job, workers, _):
        for worker in workers.workers:
            worker.connection.on_close(lambda _: accepting.append(workers.accepts))
        job.wait(60_000)
    assert accepting == [False, False]


def test_it_is_said_whether_everything_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with running(tmp_path, monkeypatch) as (job, workers, _):
        workers.workers[0].pool.create_local(3, 3)  # of nobody
        job.wait(60_000)
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "given back its slots: 0 are in use, 0 lost" in text]
    assert [
        r.levelname for r in caplog.records if "w1 (process 1 on here) has not got back 3 network" in r.getMessage()
    ] == ["WARNING"]
    assert [text for text in said if "w2 (process 1 on here) has got back all network buffers" in text]


def test_workers_are_asked_at_the_same_time_when_the_job_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2)
    with running(tmp_path, monkeypatch) as (job, workers, _):
        for worker in workers.workers:
            close = worker.executor.close_job

            def close_job(*arguments: object, close: Callable[..., object] = close) -> object:
                with suppress(threading.BrokenBarrierError):
                    together.wait(10)  # breaks if the other one is asked only when this one has answered
                return close(*arguments)

            monkeypatch.setattr(worker.executor, "close_job", close_job)
        result = job.wait(60_000)
    assert result is not None
    assert [v.records_in for v in result.vertices if v.name.startswith("Source")] == [20_000], "with their last metrics"
    assert not together.broken


def test_a_worker_that_is_lost_is_told_of_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path, monkeypatch, CHECKPOINTS % "true", rate=10_000) as (job, workers, cluster):
        until(lambda: (status := job.status().checkpoints) is not None and status.completed)
        lost = workers.workers[0]
        lost.job_manager_end.abandon("it was cut")
        until(lambda: job.status().restarts)
        lost.data.close()
        assert "worker w1 (process 1 on here): it was cut" in (job.status().last_failure or "")
        until(lambda: "slots" in (job.status().waits_for or ""))
        workers.add()
        result = job.wait(60_000)
        assert result is not None
        assert result.restarts == 1
        check_counts(tmp_path, 20_000)
        assert [w.name for w in cluster.manager.workers] == ["w2", "w3"]


@pytest.mark.parametrize("settings", ["", CHECKPOINTS % "false"])
def test_a_worker_that_compiled_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    other = compile_pipeline(write_pipeline(tmp_path, settings, 10, 1_000_000)).job_graph
    with (
        pytest.raises(JobFailedError, match=r"job 'counted' is compiled otherwise in this process.*'Source: rows"),
        running(tmp_path, monkeypatch, settings, compiled_by_workers=other) as (job, _, _),
    ):
        job.wait(60_000)
    assert job.status().restarts == (SAME_FAILURES - 1 if settings else 0), "it would do the same again"
