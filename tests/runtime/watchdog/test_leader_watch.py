"""A leader that hangs is killed by a process of its own, and one that does not is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.slices import everyday

ROOT = Path(__file__).parents[3]
PRELUDE = """
import fcntl, os, signal, threading, time
from flowrun.runtime.watchdog.leader_watch import watched_leader

beats = []

def lead(timeout_ms, probe=lambda: None):
    return watched_leader(timeout_ms, "the leader", probe, lambda: beats.append(time.monotonic()))

def guards():
    return open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()
"""
HANGS = {
    "it is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "what leads hangs": "hung.set(); time.sleep(60)",
}


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("how", everyday(HANGS, 2))
def test_a_leader_that_hangs_is_killed_and_so_are_the_children_that_are_stopped_with_it(
    how: str, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    done = run(
        f"""
        lock = os.open({str(lock)!r}, os.O_RDWR | os.O_CREAT)
        os.set_inheritable(lock, True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        end, of_parent = os.pipe()
        child = os.fork()
        if child == 0:  # it ends with its parent, as the process does that forks others
            os.close(of_parent)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.read(end, 1)
            os._exit(0)
        hung = threading.Event()
        with lead(500, lambda: hung.is_set() and time.sleep(60)):
            {HANGS[how]}
        """
    )
    assert done.returncode == -signal.SIGKILL
    assert "the leader was ended (SIGKILL): it gave no sign of life for 0.5 s" in done.stderr
    assert "hint: one that stands by goes on" in done.stderr
    taken = subprocess.run(["flock", "-w", "10", str(lock), "true"], check=False)
    assert taken.returncode == 0, "somebody still has the lock"


@pytest.mark.exhaustive
def test_a_leader_that_lives_beats_and_ends_with_its_guard() -> None:
    done = run(
        """
        with lead(600):
            (guard,) = guards()
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                time.sleep(0.01)
        assert not os.path.exists(f"/proc/{guard}"), "it is left"
        assert len(beats) >= 3, beats
        with lead(0):
            assert guards() == [], "nobody watches"
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
