"""Runs on Spark that somebody ends: Ctrl-C, a killed driver, a lost executor. Each is a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark.session_fixture import QUICK_RUN

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

PIPELINE = """
name: numbers
settings: {mode: batch}
sources:
  g: {connector: datagen, number-of-rows: 20, schema: {a: BIGINT}, fields.a.kind: sequence, fields.a.start: 1, fields.a.end: 20}
steps:
  s: {from: g, map: 'functions:held'}
sinks:
  out: {from: s, connector: filesystem, path: out, format: json}
"""
FUNCTIONS = """
import os, signal, time

def first(name):
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def parent(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])

def held(batch):
    folder = os.path.dirname(__file__)
    if os.path.exists(folder + "/hold"):
        with open(folder + "/reached", "w") as reached:
            reached.write("x")
        time.sleep(600)
    if os.path.exists(folder + "/kill") and first(folder + "/killed"):
        os.kill(parent(parent(os.getpid())), signal.SIGKILL)  # the executor, over the daemon that made this worker
        time.sleep(600)
    return batch
"""
QUICK = (*QUICK_RUN, "--conf", "spark.shuffle.io.retryWait=200ms")
LONGEST_S = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    os.mkfifo(tmp_path / "reached")
    return tmp_path


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "flowrun", "run", "p.yaml", *QUICK, *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose Python function has been called and does not come back."""
    (folder / "hold").touch()
    reached = os.open(folder / "reached", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with started(folder, "--spark-master", "local[1]") as process:
            ready, _, _ = select.select([reached], [], [], LONGEST_S)
            assert ready, "the function was never called"
            (folder / "hold").unlink()
            yield process
    finally:
        os.close(reached)


def visible(folder: Path) -> list[Path]:
    files = [f for f in (folder / "out").rglob("*") if f.is_file()]
    return [f for f in files if not any(part.startswith((".", "_")) for part in f.relative_to(folder).parts)]


def numbers(folder: Path) -> list[int]:
    return sorted(json.loads(line)["a"] for f in visible(folder) for line in f.read_text().splitlines())


def test_ctrl_c_leaves_nothing_and_says_so(folder: Path) -> None:
    with held(folder) as process:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everything started from it gets the signal
        said = process.communicate(timeout=LONGEST_S)[1]
    assert process.returncode == 130
    assert said.endswith("stopped: nothing was written\n")
    assert "Traceback" not in said
    assert not list((folder / "out").iterdir())


def test_after_a_killed_driver_the_next_run_is_whole(folder: Path) -> None:
    with held(folder) as process:
        process.kill()
        process.wait()
    assert visible(folder) == []
    assert list((folder / "out").iterdir()), "what it had begun is hidden there"
    with started(folder, "--spark-master", "local[1]", "-q") as process:
        said = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, *said) == (0, "", "")
    assert numbers(folder) == list(range(1, 21))
    assert sorted((folder / "out").iterdir()) == sorted(visible(folder)), "nothing is left of the killed one"


@pytest.mark.soak  # that of test_savepoint_failures.py runs in CI
def test_a_lost_executor_is_replaced(folder: Path) -> None:
    (folder / "kill").touch()
    installed = Path(pyspark.__file__).parent
    before = set(installed.rglob("work/*"))
    memory = ("--conf", "spark.executor.memory=512m")
    with started(folder, "--spark-master", "local-cluster[2,1,512]", *memory, "-q") as process:
        said = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, said[1]) == (0, "")
    assert (folder / "killed").exists()
    assert numbers(folder) == list(range(1, 21))
    assert set(installed.rglob("work/*")) == before, "executors leave nothing where PySpark is installed"
