"""Clusters in processes of their own, and the commands that use them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from flowrun.core.record import record
from tests.cluster.worker_jobs import children, is_alive
from tests.end_to_end.processes import started, wait_for

Process = subprocess.Popen[str]


@record(eq=False)
class Session:
    """A running cluster: its folder, its processes, and the options that name it."""

    folder: Path
    dispatcher: Process
    managers: list[Process]
    options: tuple[str, ...]
    standbys: list[Process] = field(default_factory=list)

    def flowrun(
        self, *arguments: object, cwd: Path | None = None, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        """A command that uses the cluster, run to its end, which has that exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "flowrun", *map(str, arguments), *self.options],
            cwd=cwd or self.folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert code is None or done.returncode == code, done.stderr
        return done

    def jobs(self) -> list[dict[str, Any]]:
        """As `flowrun jobs` lists them."""
        listed = self.flowrun("jobs", "--json").stdout
        return [] if listed.startswith("no job") else json.loads(listed)  # type: ignore[no-any-return]

    def job(self, name: str) -> dict[str, Any]:
        """The newest job of that name."""
        return [job for job in self.jobs() if job["name"] == name][-1]

    def processes(self) -> set[int]:
        """All processes below those of the cluster."""
        found: set[int] = set()
        level = [self.dispatcher.pid, *(manager.pid for manager in self.managers)]
        while level:
            level = [child for pid in level for child in children(pid)]
            found.update(level)
        return found


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def all_gone(pids: Collection[int], limit_s: float = 10) -> bool:
    """Whether these processes end within some seconds."""
    pause, until = threading.Event(), time.monotonic() + limit_s
    while any(map(is_alive, pids)) and time.monotonic() < until:
        pause.wait(0.05)
    return not any(map(is_alive, pids))


@contextmanager
def session(
    folder: Path,
    managers: int = 2,
    slots: int = 2,
    dispatchers: int = 1,
    leading: tuple[object, ...] = (),
    serving: tuple[object, ...] = (),
) -> Iterator[Session]:
    """A dispatcher and its task managers; with several dispatchers, of the options `leading`, the others stand by, and jobs are kept.

    All dispatchers have the options `serving`.
    """
    places, secret = [f"127.0.0.1:{free_port()}" for _ in range(dispatchers)], folder / "secret"
    with ExitStack() as stack:
        common = ("--secret-file", secret)
        kept = ("--state", folder / "cluster", *leading) if dispatchers > 1 else ()
        all_of_them: list[Process] = []
        for place in places:
            listening = ("jobmanager", "--listen", place, *common, *kept, *serving)
            all_of_them.append(stack.enter_context(started(*listening, cwd=folder)))
            wait_for((folder / "cluster" / ".leader" if kept else secret).exists, all_of_them[-1])
        to_join = [part for place in places for part in ("--jobmanager", place)]
        joining = ("taskmanager", *to_join, *common, "--slots", slots, "--log-level", "warning")
        joined = [stack.enter_context(started(*joining, cwd=folder)) for _ in range(managers)]
        options = [part for place in places for part in ("--cluster", place)]
        yield Session(folder, all_of_them[0], joined, (*options, "--secret-file", str(secret)), all_of_them[1:])


@contextmanager
def cluster(folder: Path, *job: object, managers: int = 2) -> Iterator[tuple[Process, list[Process]]]:
    """A job manager with a job, and task managers of one slot each."""
    place, secret = f"127.0.0.1:{free_port()}", folder / "secret"
    with ExitStack() as stack:
        run = stack.enter_context(
            started("jobmanager", *job, "--listen", place, "--secret-file", secret, "--no-live", cwd=folder)
        )
        wait_for(secret.exists, run)
        joining = ("taskmanager", "--jobmanager", place, "--secret-file", secret, "--slots", 1)
        yield run, [stack.enter_context(started(*joining, cwd=folder)) for _ in range(managers)]


def end(manager: Process, number: signal.Signals = signal.SIGTERM) -> str:
    """End a task manager; gives what it had said."""
    sessions = children(manager.pid)
    manager.send_signal(number)
    _, said = manager.communicate(timeout=20)
    assert not any(map(is_alive, sessions))
    return said
