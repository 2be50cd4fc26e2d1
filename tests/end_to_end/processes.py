"""Runs `flowrun` in processes of its own, as users do in a terminal, and watches them from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def started(*arguments: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A `flowrun` process; killed at the end if it still lives."""
    with begun(["-m", "flowrun", *map(str, arguments)], cwd=cwd) as process:
        yield process


@contextmanager
def begun(arguments: list[str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python process; killed at the end if it still lives."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str], limit_s: float = 120) -> None:
    """Wait until another process has got there; its progress cannot be made to depend on a clock of ours."""
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"the process ended with {process.returncode}: {process.communicate()[1]}")
        assert time.monotonic() < deadline, "the process did not get there"
        pause.wait(0.02)


def checkpoints(state: Path) -> list[Path]:
    """The complete checkpoints of the one pipeline whose folder is below `state`, oldest first.

    A job that fails or is cancelled at the very moment in which one appears gives that one up again; never the one before.
    """
    found = [path.parent for path in state.glob("*/chk-*/_metadata.json")]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("chk-")))


def newest(folder: Path) -> int:
    """Number of the newest complete checkpoint of the one pipeline whose state is in `folder`/state; 0: there is none.

    Tests wait for this number to grow, not for many checkpoints to exist: older ones are deleted as soon as a newer one is complete.
    """
    found = checkpoints(folder / "state")
    return int(found[-1].name.removeprefix("chk-")) if found else 0
