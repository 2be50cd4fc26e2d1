"""Staying on one core: in processes of their own, as it cannot be taken back."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from flowrun.core.cores import usable_cores

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has abstract sockets")

_PROGRAM = """
import os, sys, threading
from flowrun.core import cores
cores._PLACE += sys.argv[1]
seen, may_look = [], threading.Event()

def look():
    may_look.wait()
    seen.append(sorted(os.sched_getaffinity(0)))

earlier, later = threading.Thread(target=look), threading.Thread(target=look)
earlier.start()
taken = cores.stay_on_one_core(int(sys.argv[2]))
later.start()
may_look.set()
earlier.join()
later.join()
assert seen[0] == seen[1] == sorted(os.sched_getaffinity(0))
print(taken, seen[0], cores.usable_cores(), flush=True)
sys.stdin.read()
"""


class _Process:
    """Stays on one core, if it may, until it is ended."""

    def __init__(self, place: str, processes: int) -> None:
        command = [sys.executable, "-c", _PROGRAM, place, str(processes)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Processes:
    def __init__(self) -> None:
        self._place = uuid.uuid4().hex
        self._all: list[_Process] = []

    def start(self, processes: int) -> _Process:
        self._all.append(_Process(self._place, processes))
        return self._all[-1]

    def end(self) -> None:
        for process in self._all:
            process.end()


@pytest.fixture
def processes() -> Iterator[_Processes]:
    made = _Processes()
    yield made
    made.end()


def test_each_process_has_a_core_of_its_own_until_it_ends(processes: _Processes) -> None:
    cores = sorted(os.sched_getaffinity(0))
    started = [processes.start(len(cores)) for _ in cores]
    assert sorted(p.said() for p in started) == sorted(f"{core} [{core}] {len(cores)}" for core in cores)
    assert processes.start(len(cores)).said() == f"None {cores} {len(cores)}"
    started[0].end()
    assert processes.start(len(cores)).said() != f"None {cores} {len(cores)}"


def test_fewer_processes_than_cores_stay_nowhere(processes: _Processes) -> None:
    assert processes.start(usable_cores() - 1).said().startswith("None")
