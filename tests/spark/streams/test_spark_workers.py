"""Task executors as Spark keeps them, with a Spark that runs each task on a thread of this process: their processes are real."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowrun.core.clock import ForwardClock, SystemClock
from flowrun.errors import ClusterError, SetupError
from flowrun.runners.spark_stream import task_executors
from flowrun.runners.spark_task_executor import Orders, encode_orders
from flowrun.runtime.cluster.local_workers import WorkerNumbers
from flowrun.runtime.cluster.resource_manager import ConnectedWorker
from flowrun.runtime.cluster.worker_cluster import WorkerCluster
from flowrun.runtime.rpc.address import TcpAddress
from flowrun.runtime.rpc.link import Credentials
from flowrun.runtime.rpc.secret import secret_of_text
from flowrun.runtime.rpc.tls import read_identity
from flowrun.spark.streams import spark_workers
from flowrun.spark.streams.spark_workers import SparkHosting, SparkWorkers
from tests.cluster.worker_jobs import is_alive
from tests.job_graphs import Vertex, job_graph
from tests.runtime.rpc.certificates import make_authority, make_identity, needs_openssl

pytestmark = pytest.mark.everyday

SECRET = "0123456789abcdef" * 4
MODULE = "flowrun.runners.spark_task_executor"


class ThreadSpark:
    """A session of Spark whose jobs are calls of their function; `collect` may be told to do something else.

    Attributes:
        running: how many tasks Spark says that it runs.
    """

    def __init__(self, collect: Callable[[Callable[[Iterator[Any]], Iterator[Any]]], object] | None = None) -> None:
        self._jsparkSession = None  # a session in this process
        self._collect = collect or (lambda function: list(function(iter([]))))
        self.running = 0
        self.submitted = 0
        self.ended = threading.Event()
        """Spark was told to end jobs."""
        self.sparkContext = SimpleNamespace(
            addJobTag=lambda tag: None, cancelJobsWithTag=lambda tag: self.ended.set(), statusTracker=self._tracker
        )

    def range(self, *_: int) -> Any:
        return SimpleNamespace(mapInArrow=lambda function, _: SimpleNamespace(collect=lambda: self._run(function)))

    def _run(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> object:
        self.submitted += 1
        return self._collect(function)

    def _tracker(self) -> Any:
        return SimpleNamespace(
            getActiveStageIds=lambda: [1], getStageInfo=lambda _: SimpleNamespace(numActiveTasks=self.running)
        )


def workers(
    spark: ThreadSpark,
    number: int = 1,
    patience_s: float = 60.0,
    most: int | None = None,
    tls: tuple[Path, Path] | None = None,
) -> SparkWorkers:
    """`tls`: folders of certificates, of this process and of task executors."""

    def orders(number: int, manager: TcpAddress) -> bytes:
        folder = "" if tls is None else str(tls[1])
        return encode_orders(Orders(manager.host, manager.port, SECRET, number, 1, tls=folder))

    hosting = SparkHosting(MODULE, orders, TcpAddress("127.0.0.1", 0), "127.0.0.1", patience_s, most)
    identity = None if tls is None else read_identity(tls[0])
    session: Any = spark
    credentials = Credentials(secret_of_text(SECRET, "this test"), identity)
    return SparkWorkers(session, WorkerNumbers(number, 1), hosting, credentials)


def wait_for_workers(started: WorkerCluster, fits: Callable[[list[ConnectedWorker]], bool]) -> list[ConnectedWorker]:
    pause, clock = threading.Event(), ForwardClock(SystemClock())
    until = clock.monotonic_ns() + 30 * 10**9
    while not fits(found := list(started.manager.workers)):
        assert clock.monotonic_ns() < until, "workers did not come"
        pause.wait(0.02)
    return found


def test_one_that_is_killed_comes_back_and_all_end_with_the_cluster() -> None:
    with WorkerCluster(workers(ThreadSpark(), 2)) as started:
        first, second = sorted(wait_for_workers(started, lambda all_: len(all_) == 2), key=lambda w: w.name)
        os.kill(first.registration.pid, signal.SIGKILL)
        found = wait_for_workers(started, lambda all_: len(all_) == 2 and first.name not in {w.name for w in all_})
        pids = {w.registration.pid for w in found}
        assert second.registration.pid in pids
        assert {w.name.split("-")[1] for w in found} == {"1", "2"}
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


@pytest.mark.exhaustive
def test_more_slots_bring_more_of_them_as_far_as_spark_has_cores() -> None:
    with WorkerCluster(workers(ThreadSpark(), 1, most=2)) as started:
        started.prepare(4, None)
        found = wait_for_workers(started, lambda all_: len(all_) == 2)
        assert started.manager.slots.workers[0].total == 2
        assert len(found) == 2


def test_the_first_error_of_the_start_is_told_at_once_with_a_remedy() -> None:
    def lacks_a_module(_: object) -> object:
        raise ModuleNotFoundError("ModuleNotFoundError: No module named 'msgspec'")

    made = workers(ThreadSpark(lacks_a_module))
    with pytest.raises(SetupError, match="msgspec") as raised, WorkerCluster(made):
        pass
    made.close()
    assert raised.value.hint is not None
    assert "install flowrun" in raised.value.hint


@pytest.mark.exhaustive
def test_one_that_hangs_is_ended_by_spark_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_workers, "_END_HANGING_S", 0.5)
    spark = ThreadSpark()
    with WorkerCluster(workers(spark)) as started:
        (hanging,) = wait_for_workers(started, lambda all_: len(all_) == 1)
        os.kill(hanging.registration.pid, signal.SIGSTOP)
        hanging.connection.close()  # as when it has sent no heartbeats for long
        assert spark.ended.wait(20)
        os.kill(hanging.registration.pid, signal.SIGKILL)  # what Spark does with a task that is ended
        wait_for_workers(started, lambda all_: {w.name for w in all_} != {hanging.name} and len(all_) == 1)
        spark.ended.clear()
        made: Any = started
        made._workers._end_hanging(1, submitted=1)  # that of before: another one has taken its place
        made._workers._end_hanging(1, submitted=2)  # it is connected
        assert not spark.ended.is_set()


@pytest.mark.exhaustive
@needs_openssl
def test_connections_are_encrypted_with_the_certificates_of_each_machine(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "authority")
    one, two = make_identity(tmp_path / "one", authority), make_identity(tmp_path / "two", authority)
    with WorkerCluster(workers(ThreadSpark(), tls=(one, two))) as started:
        wait_for_workers(started, lambda all_: len(all_) == 1)
    stranger = make_identity(tmp_path / "stranger", make_authority(tmp_path / "other"))
    with pytest.raises(SetupError, match="not trusted"), WorkerCluster(workers(ThreadSpark(), tls=(one, stranger))):
        pass
    missing = tmp_path / "missing"
    with pytest.raises(SetupError, match="cannot read") as raised:
        WorkerCluster(workers(ThreadSpark(), tls=(one, missing)))
    assert f"{missing / 'cert.pem'}" in raised.value.message
    assert f", on {socket.gethostname()}" in raised.value.message


@pytest.mark.parametrize(
    ("running", "said"),
    [(0, "Spark started none of 1 task executors within 0.2 s"), (1, "Spark runs 1, and not all of them have reached")],
)
def test_nobody_is_waited_for_for_ever(running: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_workers, "_END_BY_ITSELF_S", 0.0)
    spark = ThreadSpark(lambda _: spark.ended.wait(20))
    spark.running = running
    made = workers(spark, patience_s=0.2)
    with pytest.raises(ClusterError, match=said), WorkerCluster(made):
        pass
    made.close()
    assert spark.ended.is_set()


@pytest.mark.exhaustive
def test_one_that_cannot_be_started_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_workers, "_FIRST_PAUSE_S", 0.001)
    gone = threading.Event()

    def until_gone(function: Callable[[Iterator[Any]], Iterator[Any]]) -> object:
        if gone.is_set():
            raise RuntimeError("SparkContext was shut down")
        return list(function(iter([])))

    spark = ThreadSpark(until_gone)
    expected: list[tuple[int | None, str]] = []
    made = workers(spark)
    with WorkerCluster(made) as started:
        monkeypatch.setattr(made, "_expect", lambda slots, why: expected.append((slots, why)))
        (only,) = wait_for_workers(started, lambda all_: len(all_) == 1)
        gone.set()
        os.kill(only.registration.pid, signal.SIGKILL)
        wait_for_workers(started, lambda _: bool(expected))
    ((slots, why),) = expected
    assert (slots, "it was started 5 times in vain" in why) == (0, True)
    assert spark.submitted == 1 + spark_workers.MOST_FAILED_STARTS


@pytest.mark.parametrize(
    ("asked", "capacity", "wanted"),
    [(None, None, (4, 1)), (None, 3, (3, 2)), (None, 9, (4, 1)), (2, None, (2, 2)), (6, 3, (6, 1))],
)
def test_a_slot_each_as_far_as_spark_has_cores(
    asked: int | None, capacity: int | None, wanted: tuple[int, int]
) -> None:
    numbers = task_executors(job_graph([Vertex("v", 4)], []), asked, capacity)
    assert (numbers.workers, numbers.slots) == wanted
