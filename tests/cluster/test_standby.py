"""Job managers that go on by themselves: from the newest checkpoint, and one in the place of another."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.clusters import end, free_port
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, kill, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.end_to_end.running import json_rows

Process = subprocess.Popen[str]
ROWS = 100_000
pytestmark = pytest.mark.exhaustive


class Cluster:
    """Places for two job managers, of which task managers know both."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.secret = folder / "secret"
        self.places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self._stack = stack

    def lead(self, place: int, *options: object) -> Process:
        at = ("--listen", self.places[place], "--secret-file", self.secret, "--no-live")
        run = started("jobmanager", "counted.yaml", *at, *options, cwd=self.folder)
        return self._stack.enter_context(run)

    def join(self) -> Process:
        wait_for(self.secret.exists, self._any)
        known = [argument for place in self.places for argument in ("--jobmanager", place)]
        run = started("taskmanager", *known, "--secret-file", self.secret, "--slots", 1, cwd=self.folder)
        return self._stack.enter_context(run)

    def wait_for_another(self, run: Process) -> None:
        known = newest(self.folder)
        wait_for(lambda: newest(self.folder) > known, run)

    def begin(self, *options: object, rate: int = 1_000) -> tuple[Process, list[Process]]:
        """A leading job manager with a job that has taken a checkpoint, and two task managers."""
        write_pipeline(self.folder, CHECKPOINTS % "false", rows=ROWS, rate=rate)
        self._any = first = self.lead(0, *options)
        managers = [self.join(), self.join()]
        wait_for(lambda: newest(self.folder), first)
        return first, managers


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@contextmanager
def fast(folder: Path) -> Iterator[None]:
    """What begins in here reads as fast as it can."""
    file = folder / "counted.yaml"
    slow = file.read_text()
    file.write_text(slow.replace("rows-per-second: 1000\n", "rows-per-second: 10000000\n"))
    yield
    file.write_text(slow)


def test_a_job_manager_that_is_started_again_goes_on_from_its_newest_checkpoint(cluster: Cluster) -> None:
    first, _ = cluster.begin("--recover")
    cluster.wait_for_another(first)
    kill(first.pid)
    first.communicate()
    with fast(cluster.folder):
        again = cluster.lead(1, "--recover")
        _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert "resuming from checkpoint" in said
    check_counts(cluster.folder, ROWS)


def test_a_standby_takes_over_when_the_leader_dies(cluster: Cluster) -> None:
    first, managers = cluster.begin("--standby")
    with fast(cluster.folder):
        second = cluster.lead(1, "--standby")
        assert second.stderr is not None
        assert f"standing by: process {first.pid} on" in second.stderr.readline()
        cluster.wait_for_another(first)
        kill(first.pid)
        first.communicate()
        _, said = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert f"process {first.pid} on" in said
    assert "this one leads now" in said
    check_counts(cluster.folder, ROWS)
    assert all("the job manager is gone" in end(manager) for manager in managers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_leader_that_is_told_to_go_hands_over_and_one_that_is_stopped_does_not(
    cluster: Cluster, number: signal.Signals
) -> None:
    first, _ = cluster.begin("--standby")
    with fast(cluster.folder):
        second = cluster.lead(1, "--standby")
        assert second.stderr is not None
        assert "standing by" in second.stderr.readline()
        first.send_signal(number)
        _, said = first.communicate(timeout=60)
        assert first.returncode == 130, said
        _, said = second.communicate(timeout=60)
    assert second.returncode == 0, said
    if number is signal.SIGINT:
        assert "the job has ended (stopped): there is nothing to take over" in said
        assert len(json_rows(cluster.folder / "out")) > 0
    else:
        check_counts(cluster.folder, ROWS)


def test_a_leader_that_hangs_is_killed_where_it_runs_and_another_goes_on(cluster: Cluster) -> None:
    first, _ = cluster.begin("--standby", "--hang-timeout", "4s")
    with fast(cluster.folder):
        second = cluster.lead(1, "--standby")
        assert second.stderr is not None
        assert "standing by" in second.stderr.readline()
        first.send_signal(signal.SIGSTOP)
        _, said = first.communicate(timeout=60)
        assert "the job manager of 'counted' was ended (SIGKILL): it gave no sign of life for 4 s" in said
        _, said = second.communicate(timeout=60)
    assert second.returncode == 0, said
    check_counts(cluster.folder, ROWS)


def test_a_standby_names_a_leader_that_nobody_kills(cluster: Cluster) -> None:
    first, _ = cluster.begin("--standby", "--hang-timeout", "0s")
    second = cluster.lead(1, "--standby", "--hang-timeout", "3s")
    assert second.stderr is not None
    assert "standing by" in second.stderr.readline()
    first.send_signal(signal.SIGSTOP)
    line = second.stderr.readline()
    assert f"process {first.pid} on" in line
    assert "has given no sign of life for" in line
    assert f"(kill -9 {first.pid}), and this one leads" in line
    assert second.poll() is None, "the lock is not taken from one that lives"
    kill(first.pid)
    assert "is gone: this one leads now" in second.stderr.readline()
