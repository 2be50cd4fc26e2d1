"""What a stage of batch mode had written when its process was killed: read where it is, or written again if it is not whole."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.clusters import all_gone, cluster, end, session
from tests.cluster.worker_jobs import children, kill
from tests.end_to_end.processes import started, wait_for
from tests.end_to_end.running import json_rows
from tests.slices import in_ci

Process = subprocess.Popen[str]
ROWS = 20_000
PIPELINE = """
name: staged
settings:
  functions: [fns]
  parallelism: {parallelism}
  embedded_mode: batch
  restart: {{strategy: fixed_delay, attempts: 10, delay: 0s}}
sources:
  rows:
    connector: datagen
    schema: {{id: BIGINT, k: BIGINT}}
    number-of-rows: {rows}
    rows-per-second: 1000000
    fields.id.kind: sequence
    fields.id.start: 0
    fields.id.end: {last}
    fields.k.min: 0
    fields.k.max: 20
steps:
  read: {{from: rows, map: {{function: 'fns:read', row: true}}}}
  counted: {{from: read, key_by: [k], aggregate: ["COUNT(*) AS n", "SUM(id) AS s"]}}
  told: {{from: counted, map: {{function: 'fns:tell', row: true}}}}
sinks:
  out: {{from: told, connector: filesystem, path: out, format: debezium-json}}
"""
FUNCTIONS = """
import os, time
from pathlib import Path

FOLDER = Path({folder!r})
CALLS = os.open(FOLDER / "calls", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

def halt(name, row):
    (FOLDER / name).write_text(str(os.getpid()))
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
    return row

def read(row):
    os.write(CALLS, b"x")
    (FOLDER / "producer").write_text(str(os.getpid())) if row["id"] == 0 else None
    return halt("writing", row) if {halts!r} == "writing" and row["id"] == {rows} // 2 else row

def tell(row):
    return halt("reading", row) if {halts!r} == "reading" else row
"""


@pytest.fixture(autouse=True)
def spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where everything is spilled; nothing may be left there."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", str(tmp_path / "registry"))
    yield folder
    deadline = time.monotonic() + 10
    while left := list(folder.glob("flowrun-*")):
        assert time.monotonic() < deadline, f"{left} are left"
        time.sleep(0.02)


def write(folder: Path, parallelism: int, halts: str) -> Path:
    (folder / "fns.py").write_text(FUNCTIONS.format(folder=str(folder), rows=ROWS, halts=halts))
    file = folder / "staged.yaml"
    file.write_text(PIPELINE.format(parallelism=parallelism, rows=ROWS, last=ROWS - 1))
    return file


def comes_to(folder: Path, what: str, run: Process) -> int:
    """The process that has halted."""
    wait_for(lambda: (folder / what).exists() and (folder / what).read_text(), run, 60)
    return int((folder / what).read_text())


def go_on(folder: Path) -> None:
    (folder / "go").touch()


def ends_well(folder: Path, run: Process, *, reads: int | None = ROWS) -> None:
    """Every row is counted once; and the source has read so many, or more than once if that is None."""
    _, said = run.communicate(timeout=90)
    assert run.returncode == 0, said
    rows = [change["after"] for change in json_rows(folder / "out")]
    assert (len(rows), sum(r["n"] for r in rows), sum(r["s"] for r in rows)) == (21, ROWS, ROWS * (ROWS - 1) // 2)
    calls = (folder / "calls").stat().st_size
    assert calls > ROWS if reads is None else calls == reads


@pytest.mark.exhaustive
@pytest.mark.parametrize("parallelism", in_ci([1, 2, 3], 2))
def test_a_worker_that_has_written(tmp_path: Path, parallelism: int) -> None:
    with started("run", write(tmp_path, parallelism, "reading"), "--workers", 2, "--no-live", cwd=tmp_path) as run:
        comes_to(tmp_path, "reading", run)
        kill(comes_to(tmp_path, "producer", run))
        go_on(tmp_path)
        ends_well(tmp_path, run)


@pytest.mark.exhaustive
@pytest.mark.parametrize("parallelism", in_ci([1, 2, 3], 2))
def test_a_worker_that_writes(tmp_path: Path, parallelism: int) -> None:
    with started("run", write(tmp_path, parallelism, "writing"), "--workers", 2, "--no-live", cwd=tmp_path) as run:
        kill(comes_to(tmp_path, "writing", run))
        go_on(tmp_path)
        ends_well(tmp_path, run, reads=None)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"nonsense")


@pytest.mark.exhaustive
@pytest.mark.parametrize("spoil", [Path.unlink, damage])
def test_files_that_are_gone_or_damaged_with_their_worker(tmp_path: Path, spilled: Path, spoil: object) -> None:
    with started("run", write(tmp_path, 2, "reading"), "--workers", 2, "--no-live", cwd=tmp_path) as run:
        comes_to(tmp_path, "reading", run)
        files = list(spilled.rglob("*.arrows"))
        assert files
        for path in files:
            spoil(path)  # type: ignore[operator]
        kill(comes_to(tmp_path, "producer", run))
        go_on(tmp_path)
        ends_well(tmp_path, run, reads=None)


@pytest.mark.exhaustive
def test_the_command_and_the_process_that_forks_are_killed(tmp_path: Path, spilled: Path) -> None:
    """Nobody is left who could delete anything: the next command does."""
    with started("run", write(tmp_path, 2, "reading"), "--workers", 2, "--no-live", cwd=tmp_path) as run:
        comes_to(tmp_path, "reading", run)
        server = next(child for child in children(run.pid) if children(child))
        kill(server, signal.SIGSTOP)  # so that it does not see the command's end
        kill(run.pid)
        kill(server)
        run.communicate(timeout=30)
        assert all_gone([server])
    assert list(spilled.glob("flowrun-spill-*"))
    go_on(tmp_path)
    (tmp_path / "calls").unlink()
    with started("run", "staged.yaml", "--workers", 2, "--no-live", cwd=tmp_path) as run:
        ends_well(tmp_path, run)
    for path in spilled.glob("flowrun-workers-*"):
        path.joinpath("manager").unlink()
        path.rmdir()


@pytest.mark.exhaustive
@pytest.mark.parametrize("parallelism", in_ci([1, 2], 2))
def test_the_process_of_a_task_manager_of_one_slot(tmp_path: Path, parallelism: int) -> None:
    """Nobody is left on its machine who reads its files, until another process has taken its place."""
    with cluster(tmp_path, write(tmp_path, parallelism, "reading")) as (run, managers):
        comes_to(tmp_path, "reading", run)
        kill(comes_to(tmp_path, "producer", run))
        go_on(tmp_path)
        ends_well(tmp_path, run)
        for manager in managers:
            end(manager)


@pytest.mark.exhaustive
def test_a_task_manager_that_is_lost(tmp_path: Path, spilled: Path) -> None:
    with cluster(tmp_path, write(tmp_path, 1, "reading")) as (run, managers):
        comes_to(tmp_path, "reading", run)
        producer = comes_to(tmp_path, "producer", run)
        lost = next(m for m in managers if producer in children(m.pid))
        kill(lost.pid)
        go_on(tmp_path)
        ends_well(tmp_path, run, reads=None)
        lost.communicate(timeout=30)
        for manager in managers:
            if manager is not lost:
                end(manager)
    for path in tmp_path.glob("out/*"):
        path.unlink()
    with started("run", "staged.yaml", "--workers", 2, "--no-live", cwd=tmp_path) as run:  # deletes what is left
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said


@pytest.mark.exhaustive
@pytest.mark.parametrize("parallelism", in_ci([1, 2, 3], 2))
def test_a_worker_of_a_session(tmp_path: Path, spilled: Path, parallelism: int) -> None:
    with session(tmp_path, managers=2, slots=2) as running:
        running.flowrun("run", write(tmp_path, parallelism, "reading"), "--detach")
        comes_to(tmp_path, "reading", running.dispatcher)
        kill(comes_to(tmp_path, "producer", running.dispatcher))
        go_on(tmp_path)
        wait_for(lambda: running.job("staged")["state"] == "finished", running.dispatcher, 60)
        assert (tmp_path / "calls").stat().st_size == ROWS
        wait_for(lambda: not list(spilled.rglob("*.arrows")), running.dispatcher)


@pytest.mark.exhaustive
def test_a_task_manager_of_a_session_that_is_lost(tmp_path: Path, spilled: Path) -> None:
    with session(tmp_path, managers=2, slots=2) as running:
        running.flowrun("run", write(tmp_path, 2, "reading"), "--detach")
        comes_to(tmp_path, "reading", running.dispatcher)
        producer = comes_to(tmp_path, "producer", running.dispatcher)
        below = {
            m.pid: [g for s in children(m.pid) for f in children(s) for g in children(f)] for m in running.managers
        }
        lost = next(m for m in running.managers if producer in below[m.pid])
        kill(lost.pid)
        go_on(tmp_path)
        wait_for(lambda: running.job("staged")["state"] == "finished", running.dispatcher, 60)
        assert (tmp_path / "calls").stat().st_size > ROWS
