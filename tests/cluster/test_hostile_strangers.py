"""Strangers at every port of a cluster while a job runs: it costs no restart and no row, and whoever belongs to it gets in."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from flowrun import __version__
from flowrun.runtime.rpc.handshake import _INTRODUCTION
from tests.cluster.clusters import end, free_port
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, write_pipeline
from tests.end_to_end.processes import checkpoints, started, wait_for

pytestmark = pytest.mark.exhaustive

_LISTENS = "0A"


def ports_of(pid: int) -> set[int]:
    """Where a process listens on loopback."""
    sockets = set()
    with suppress(OSError):  # it has ended, or files were closed meanwhile
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                sockets.add(str(link.readlink()))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1][-4:], 16) for line in lines if line[3] == _LISTENS and f"socket:[{line[9]}]" in sockets}


def harm(port: int, rng: random.Random, kept: list[socket.socket]) -> None:
    """One stranger: silent, slow, cut, of another version, without the secret, or speaking something else."""
    version = rng.choice([__version__, "0.0.1"]).encode()
    protocol, purpose, role = rng.choice([1, 99]), rng.randrange(4), rng.choice([b"taskmanager", b"jobmanager", b"x"])
    said = _INTRODUCTION.pack(b"flowrun\n", protocol, purpose, role, b"w1", version, rng.randbytes(32))
    with suppress(OSError), ExitStack() as stack:
        stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2))
        match rng.randrange(6):
            case 0 | 1 as spoken:
                stranger.sendall(said[: spoken * rng.randrange(len(said))])
                kept.append(stranger)
                stack.pop_all()
            case 2:
                stranger.sendall(said + rng.randbytes(rng.randrange(200)))
            case 3:
                stranger.sendall(rng.randbytes(rng.randrange(2000)))
            case 4:
                stranger.sendall(b"\x16\x03\x01\x02\x00\x01" + rng.randbytes(400))
            case _:
                stranger.sendall(said)
                stranger.settimeout(0.5)
                stranger.sendall(stranger.recv(500)[-32:])
                stranger.recv(100)
    if len(kept) > 300:
        kept.pop(0).close()


@contextmanager
def strangers(pids: list[int]) -> Iterator[list[int]]:
    """Harm at all ports of these processes and of those that they start; gives how many came, at the end."""
    over, came = threading.Event(), [0]

    def come(seed: int) -> None:
        rng, kept = random.Random(seed), list[socket.socket]()
        while not over.wait(0.002):
            family = {*pids, *(child for pid in pids for child in children(pid))}
            ports = sorted({port for pid in family for port in ports_of(pid)})
            for _ in range(100 if ports else 0):
                harm(rng.choice(ports), rng, kept)
                came[0] += 1
        for one in kept:
            one.close()

    threads = [threading.Thread(target=come, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield came
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_job_does_not_notice_strangers(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=150_000)
    at = f"127.0.0.1:{free_port()}"
    joining = ("taskmanager", "--jobmanager", at, "--secret-file", "secret", "--slots", 1)
    with started("jobmanager", file, "--listen", at, "--secret-file", "secret", "--no-live", cwd=tmp_path) as run:
        wait_for((tmp_path / "secret").exists, run)
        with strangers([run.pid]), started(*joining, cwd=tmp_path) as one, started(*joining, cwd=tmp_path) as two:
            wait_for(lambda: checkpoints(tmp_path / "state"), run)
            with strangers([one.pid, two.pid]) as came:
                _, said = run.communicate(timeout=120)
            logs = end(one) + end(two)
    assert run.returncode == 0, said
    assert "restarts" not in said
    assert came[0] > 200
    check_counts(tmp_path, 150_000)
    assert "Traceback" not in said + logs, said + logs
    assert (said + logs).count("was refused") < 500, "nobody fills a log"


def test_a_session_does_not_notice_strangers(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=50_000)
    at = f"127.0.0.1:{free_port()}"
    secret = ("--secret-file", tmp_path / "secret")
    with started("jobmanager", "--listen", at, *secret, cwd=tmp_path) as session:
        wait_for((tmp_path / "secret").exists, session)
        joining = ("taskmanager", "--jobmanager", at, *secret, "--slots", 2)
        with started(*joining, cwd=tmp_path) as manager, strangers([session.pid, manager.pid]):
            with started("run", file, "--cluster", at, *secret, "--no-live", cwd=tmp_path) as run:
                _, said = run.communicate(timeout=120)
            logs = end(manager)
    assert run.returncode == 0, said
    check_counts(tmp_path, 50_000)
    assert "Traceback" not in said + logs, said + logs
