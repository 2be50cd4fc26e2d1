"""Processes that are forked without threads: how they begin, how they end, and that none is left behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

WAIT_S = 20


def run_program(text: str, tmp_path: Path, **variables: str) -> subprocess.Popen[str]:
    """A Python program of its own: the test process has threads."""
    file = tmp_path / "program.py"
    file.write_text(PRELUDE + textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


PRELUDE = """
import os, queue, signal, sys, time
from flowrun.runtime.cluster.fork_server import ForkServer, ProcessStarted, ProcessEnded, ServerGone

heard = queue.Queue()

def next_event():
    return heard.get(timeout=20)
"""


def output(program: subprocess.Popen[str]) -> str:
    out, err = program.communicate(timeout=WAIT_S)
    assert program.returncode == 0, err
    return out


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_workers_begin_with_what_the_command_has_and_are_known_by_name(tmp_path: Path) -> None:
    program = run_program(
        """
        compiled = {"graph": 42}
        server = ForkServer(lambda name: print(name, compiled["graph"], flush=True))
        server.listen(heard.put)
        for name in ("w1", "w2"):
            server.spawn(name)
            started, ended = next_event(), next_event()
            assert (started.name, ended.name) == (name, name)
            assert started.pid == ended.pid != os.getpid()
            assert str(ended) == "ended with exit code 0"
        server.close()
        server.close()
        """,
        tmp_path,
    )
    assert output(program) == "w1 42\nw2 42\n"


def test_how_a_worker_ended_is_told(tmp_path: Path) -> None:
    program = run_program(
        """
        def main(name):
            if name == "raises":
                raise ValueError("of a worker")
            if name == "exits":
                sys.exit(7)
            time.sleep(60)

        server = ForkServer(main)
        server.listen(heard.put)
        for name in ("raises", "exits", "killed"):
            server.spawn(name)
            started = next_event()
            if name == "killed":
                os.kill(started.pid, signal.SIGINT)
                os.kill(started.pid, signal.SIGTERM)
                os.kill(started.pid, signal.SIGKILL)
            print(name, next_event(), flush=True)
        server.close()
        """,
        tmp_path,
    )
    out, err = program.communicate(timeout=WAIT_S)
    assert out == "raises ended with exit code 1\nexits ended with exit code 7\nkilled was killed by SIGKILL\n"
    assert "ValueError: of a worker" in err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_command_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    program = run_program(
        """
        server = ForkServer(lambda name: time.sleep(60))
        server.listen(heard.put)
        for name in ("w1", "w2"):
            server.spawn(name)
        print(server._pid, next_event().pid, next_event().pid, flush=True)
        time.sleep(60)
        """,
        tmp_path,
    )
    assert program.stdout is not None
    pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 3
    program.send_signal(number)
    program.communicate(timeout=WAIT_S)
    until(lambda: not any(map(is_alive, pids)))


def test_workers_do_not_outlive_the_fork_server(tmp_path: Path) -> None:
    program = run_program(
        """
        server = ForkServer(lambda name: time.sleep(60))
        server.listen(heard.put)
        server.spawn("w1")
        print(next_event().pid, flush=True)
        os.kill(server._pid, signal.SIGKILL)
        assert isinstance(next_event(), ServerGone)
        try:
            server.spawn("w2")
        except Exception as error:
            print(error.message, flush=True)
        server.close()
        """,
        tmp_path,
    )
    pid, message = output(program).splitlines()
    assert message == "no process can be started any more: the process that forks them was ended from outside"
    until(lambda: not is_alive(int(pid)))


def test_a_process_with_threads_does_not_fork() -> None:
    import threading

    from flowrun.errors import ClusterError
    from flowrun.runtime.cluster.fork_server import ForkServer

    release: queue.Queue[None] = queue.Queue()
    thread = threading.Thread(target=release.get, name="somebody")
    thread.start()
    try:
        with pytest.raises(ClusterError, match=r"there are threads already: .*somebody"):
            ForkServer(lambda _: None)
    finally:
        release.put(None)
        thread.join()


def test_a_process_that_is_stopped_is_killed_by_its_parent(tmp_path: Path) -> None:
    program = run_program(
        """
        server = ForkServer(lambda name: os.kill(os.getpid(), signal.SIGSTOP))
        server.listen(heard.put)
        server.spawn("w1")
        started = next_event()
        while open(f"/proc/{started.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.01)
        server.kill("w2")
        server.kill("w1")
        assert str(next_event()) == "was killed by SIGKILL"
        server.kill("w1")
        server.close()
        server.kill("w1")
        """,
        tmp_path,
    )
    output(program)
