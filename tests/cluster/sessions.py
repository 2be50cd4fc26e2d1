"""Session clusters in processes of their own, and the commands that use them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from flowrun.core.record import record
from tests.cluster.worker_jobs import children
from tests.end_to_end.processes import started, wait_for

Process = subprocess.Popen[str]


@record(eq=False)
class Session:
    """A running cluster: its folder, its processes, and the options that name it."""

    folder: Path
    dispatcher: Process
    managers: list[Process]
    options: tuple[str, ...]

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


@contextmanager
def session(folder: Path, managers: int = 2, slots: int = 2) -> Iterator[Session]:
    """A dispatcher and its task managers."""
    place, secret = f"127.0.0.1:{free_port()}", folder / "secret"
    with ExitStack() as stack:
        common = ("--secret-file", secret)
        dispatcher = stack.enter_context(started("jobmanager", "--listen", place, *common, cwd=folder))
        wait_for(secret.exists, dispatcher)
        joining = ("taskmanager", "--jobmanager", place, *common, "--slots", slots, "--log-level", "warning")
        joined = [stack.enter_context(started(*joining, cwd=folder)) for _ in range(managers)]
        yield Session(folder, dispatcher, joined, ("--cluster", place, "--secret-file", str(secret)))
