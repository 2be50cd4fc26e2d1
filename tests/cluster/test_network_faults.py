"""A job over three hosts, while the network between them delays, loses, or drops everything: rows count once, whatever happens."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.hosts import Network, network, why_no_hosts
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, kill, write_pipeline
from tests.end_to_end.processes import newest, wait_for

pytestmark = pytest.mark.exhaustive

PORT = 6123
NOTICED_S = 25.0
"""The 15 s that docs/cluster.md promises, and what a busy machine needs on top."""


@pytest.fixture(autouse=True)
def _hosts() -> None:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def running(folder: Path, rows: int, settings: str = CHECKPOINTS % "true") -> Iterator[tuple[Network, Run]]:
    """A job manager and two task managers of one slot on hosts of their own, and a host without any; the job has checkpoints."""
    file = write_pipeline(folder, settings, rows=rows)
    with network("jm", "a", "b", "c") as net:
        listen = ("--listen", f"{net['jm'].address}:{PORT}", "--secret-file", "secret", "--no-live")
        command = net["jm"].start("jobmanager", file, *listen, cwd=folder)
        wait_for((folder / "secret").exists, command)
        run = Run(folder, command, {name: join(net, name, folder) for name in ("a", "b")})
        run.wait_for_checkpoints(2)
        yield net, run


def join(net: Network, name: str, folder: Path) -> subprocess.Popen[str]:
    """A task manager of one slot."""
    at, host = f"{net['jm'].address}:{PORT}", net[name]
    options = ("--secret-file", "secret", "--slots", 1, "--host", host.address, "--patience", "2m")
    return host.start("taskmanager", "--jobmanager", at, *options, cwd=folder)


class Run:
    """What tests watch of a job."""

    def __init__(
        self, folder: Path, command: subprocess.Popen[str], managers: dict[str, subprocess.Popen[str]]
    ) -> None:
        self.folder = folder
        self.command = command
        self.managers = managers

    def wait_for_checkpoints(self, number: int, limit_s: float = 60) -> float:
        """Wait for so many more checkpoints; gives how many seconds it took."""
        known, began = newest(self.folder), time.monotonic()
        wait_for(lambda: newest(self.folder) >= known + number, self.command, limit_s)
        return time.monotonic() - began

    def wait_for_standstill(self, pause_s: float = 2.0) -> None:
        """Wait until no checkpoint is completed any more."""
        known, since = -1, time.monotonic()
        while time.monotonic() - since < pause_s:
            if (found := newest(self.folder)) != known:
                known, since = found, time.monotonic()
            time.sleep(0.05)

    def end(self, rows: int) -> int:
        """Wait for the end and check the rows; gives the number of restarts."""
        _, said = self.command.communicate(timeout=150)
        assert self.command.returncode == 0, said
        check_counts(self.folder, rows)
        found = re.search(r"restarts: (\d+)", said)
        return int(found[1]) if found else 0


def test_a_slow_network_that_loses_some_is_slow_and_no_more(tmp_path: Path) -> None:
    with running(tmp_path, 60_000) as (net, run):
        for way in net.ways.values():
            way.delay_s, way.loss = 0.03, 0.01
        assert run.end(60_000) == 0
        assert net.lost > 0


def test_a_partition_that_heals_in_time_costs_no_restart(tmp_path: Path) -> None:
    with running(tmp_path, 150_000) as (net, run):
        net.cut("b")
        run.wait_for_standstill()
        time.sleep(3)
        net.heal()
        run.wait_for_checkpoints(1)
        assert run.end(150_000) == 0


def test_a_host_that_is_gone_without_a_word_is_noticed_and_another_takes_its_place(tmp_path: Path) -> None:
    """Its processes die, too, but nobody hears of it: connections to it are half open."""
    with running(tmp_path, 200_000) as (net, run):
        join(net, "c", tmp_path)
        net.cut("b")
        for session in children(run.managers["b"].pid):
            kill(session)
        kill(run.managers["b"].pid)
        run.wait_for_standstill()
        assert run.wait_for_checkpoints(1) < NOTICED_S
        assert run.end(200_000) == 1


def test_a_host_that_comes_back_offers_its_slots_again(tmp_path: Path) -> None:
    with running(tmp_path, 200_000) as (net, run):
        net.cut("b")
        session = children(run.managers["b"].pid)
        wait_for(lambda: children(run.managers["b"].pid) != session, run.command, NOTICED_S)
        run.wait_for_standstill()
        net.heal()
        run.wait_for_checkpoints(1)
        assert run.end(200_000) == 1
        run.managers["b"].send_signal(signal.SIGTERM)
        _, said = run.managers["b"].communicate(timeout=20)
        assert "the job manager is gone" in said


def test_a_partition_between_task_managers_is_noticed_by_those_who_read(tmp_path: Path) -> None:
    """The job manager reaches both, so the job is tried again until the partition is over."""
    with running(tmp_path, 200_000) as (net, run):
        net.cut("a", "b")
        run.wait_for_standstill()
        time.sleep(NOTICED_S)
        net.heal()
        run.wait_for_checkpoints(1)
        assert 1 <= run.end(200_000) <= 6


def test_connections_that_are_cut_while_rows_are_under_way_cost_a_restart_and_no_row(tmp_path: Path) -> None:
    with running(tmp_path, 200_000) as (net, run):
        for ways in (("a", "b"), ("b", "a"), ("a", "b")):
            net.reset(*ways)
            run.wait_for_checkpoints(2)
        assert 1 <= run.end(200_000) <= 3
