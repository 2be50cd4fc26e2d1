"""Each phase of a job in which a process of each role is killed, is stopped for a while, or hangs for good.

Whatever it was, every row counts once, and nobody is left behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from tests.cluster.clusters import free_port
from tests.cluster.struck import MANAGER, WORKER
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, is_alive, kill, write_pipeline
from tests.end_to_end.processes import begun, checkpoints, started, wait_for
from tests.slices import in_ci

Process = subprocess.Popen[str]
ROWS = 30_000
STOPPED_ROWS = 60_000
PAUSE_S = 0.5
FATES = ("killed", "paused", "hung")
COUNTS = {"rows": 20, "end of input": 1, "going back": 1}
"""Which time a phase is the one; the second unless it is said: there is a checkpoint before it, even on a busy machine."""
PACES = {
    "overtaken barrier": {
        "rows": 1_200_000,
        "rate": 100_000_000,
    },  # it comes only while a job cannot keep up with its source
    "after commit": {"rows": 4 * ROWS},  # the second comes behind the second checkpoint, late on a busy machine
}
"""Phases that need other sources than usual."""


def checkpointing(phase: str) -> str:
    """The settings of a job. A barrier overtakes rows only if that of another channel came before it: it takes many to be sure."""
    settings = CHECKPOINTS % "true"
    return settings.replace("100ms", "20ms") if phase == "overtaken barrier" else settings


@pytest.fixture(autouse=True)
def _own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", str(tmp_path / "registry"))
    monkeypatch.setenv("STRUCK", str(tmp_path / "struck"))


@contextmanager
def struck(folder: Path, phase: str, fate: str, *arguments: object, count: int | None = None) -> Iterator[Process]:
    """`flowrun`, of which one process is struck in a phase, when it comes to it for the `count`-th time."""
    number = "SIGKILL" if fate == "killed" else "SIGSTOP"
    words = ["-m", "tests.cluster.struck", phase, number, count or COUNTS.get(phase, 2), *arguments]
    with begun([str(word) for word in words], cwd=folder) as process:
        yield process


def all_below(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    return [found for child in children(pid) for found in (child, *all_below(child))]


def wait_until_struck(folder: Path, run: Process, fate: str, limit_s: float = 60) -> int:
    """The process that was struck; if it was only paused, it goes on."""
    marker = folder / "struck"
    wait_for(lambda: marker.exists() and marker.read_text(), run, limit_s)
    pid = int(marker.read_text())
    if fate == "paused":
        wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", run)
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)
    return pid


REPORTED = ("--log-level", "info")
"""So that the roles say what they have got back."""


def check_slots_came_back(said: str) -> None:
    """As the job manager says at the end of the job."""
    assert re.findall(r"has given back its slots: (\d+) are in use, (\d+) lost", said)[-1:] == [("0", "0")], said


def check_all_came_back(said: str) -> None:
    """Slots and network buffers, as the job manager and its workers say themselves at the end of the job."""
    check_slots_came_back(said)
    assert "has got back all network buffers of job 'counted'" in said, said
    assert "has not got back" not in said, said


def check_nobody_is_left(processes: list[int]) -> None:
    deadline = time.monotonic() + 15
    while left := [pid for pid in processes if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {left} are left behind"
        time.sleep(0.02)


def cases(phases: dict[str, tuple[type, str, bool]]) -> list[tuple[str, str]]:
    return [(phase, fate) for phase in phases for fate in FATES]


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    strike_a_worker(tmp_path, *cases(WORKER)[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("phase", "fate"), in_ci(cases(WORKER)[1:], 4))
def test_a_worker(tmp_path: Path, phase: str, fate: str) -> None:
    strike_a_worker(tmp_path, phase, fate)


def strike_a_worker(tmp_path: Path, phase: str, fate: str) -> None:
    pace = PACES.get(phase, {"rows": ROWS})
    file = write_pipeline(tmp_path, checkpointing(phase), **pace)
    with struck(tmp_path, phase, fate, "run", file, "--workers", 2, "--no-live", *REPORTED) as run:
        victim = wait_until_struck(tmp_path, run, fate)
        processes = [victim, *all_below(run.pid)]
        _, said = run.communicate(timeout=90)
    assert run.returncode == 0, said
    check_all_came_back(said)
    assert fate == "paused" or "restarts: " in said, said
    check_counts(tmp_path, pace["rows"])
    check_nobody_is_left(processes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", in_ci([p for p in MANAGER if p != "going back"], 2))
def test_the_command_that_is_killed_is_resumed(tmp_path: Path, phase: str) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=ROWS)
    with struck(tmp_path, phase, "killed", "run", file, "--workers", 2, "--no-live", *REPORTED) as run:
        wait_for(lambda: checkpoints(tmp_path / "state"), run)
        processes = all_below(run.pid)
        _, said = run.communicate(timeout=90)
    assert run.returncode == -signal.SIGKILL, said
    check_nobody_is_left(processes)
    with started(
        "resume", file, "--from-savepoint", "state", "--workers", 2, "--no-live", *REPORTED, cwd=tmp_path
    ) as again:
        _, said = again.communicate(timeout=90)
    assert again.returncode == 0, said
    check_all_came_back(said)
    check_counts(tmp_path, ROWS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", in_ci([p for p in MANAGER if p != "going back"], 3))
def test_the_command_that_is_stopped_goes_on(tmp_path: Path, phase: str) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=ROWS)
    with struck(tmp_path, phase, "paused", "run", file, "--workers", 2, "--no-live", *REPORTED) as run:
        wait_until_struck(tmp_path, run, "paused")
        processes = all_below(run.pid)
        _, said = run.communicate(timeout=90)
    assert run.returncode == 0, said
    check_all_came_back(said)
    check_counts(tmp_path, ROWS)
    check_nobody_is_left(processes)


@pytest.mark.exhaustive
def test_the_command_that_is_killed_while_it_restarts_the_job_is_resumed(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=ROWS)
    with struck(tmp_path, "going back", "killed", "run", file, "--workers", 2, "--no-live", *REPORTED) as run:
        wait_for(lambda: checkpoints(tmp_path / "state"), run)
        processes = all_below(run.pid)
        kill(max(processes))
        _, said = run.communicate(timeout=90)
    assert run.returncode == -signal.SIGKILL, said
    check_nobody_is_left(processes)
    with started(
        "resume", file, "--from-savepoint", "state", "--workers", 2, "--no-live", *REPORTED, cwd=tmp_path
    ) as again:
        _, said = again.communicate(timeout=90)
    assert again.returncode == 0, said
    check_all_came_back(said)
    check_counts(tmp_path, ROWS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fate", in_ci(FATES, 3))
@pytest.mark.parametrize(
    ("drain", "phase"),
    in_ci(product([False, True], ["upload", "after acknowledge", "between pre-commit and commit"]), 2),
)
def test_a_worker_while_the_job_is_stopped(tmp_path: Path, phase: str, drain: bool, fate: str) -> None:
    """Only the savepoint with which the job is stopped comes to the phase: there is no checkpoint before it.

    If it cannot be completed, who wanted to stop the job is told so, and the job goes on. If it is complete, the job ends as stopped,
    and has committed all that the savepoint holds, also what a subtask that is lost then had not handed over.
    """
    settings = (CHECKPOINTS % "false").replace("interval: 100ms", "interval: 1h")
    file = write_pipeline(tmp_path, settings, rows=STOPPED_ROWS, rate=8_000)
    with struck(tmp_path, phase, fate, "run", file, "--workers", 2, "--no-live", *REPORTED, count=1) as run:
        wait_for(lambda: list(tmp_path.glob("out/.*")), run)
        processes = all_below(run.pid)
        with started("stop", "counted", "--savepoint", "saved", *(["--drain"] if drain else []), cwd=tmp_path) as stop:
            processes.append(wait_until_struck(tmp_path, run, fate))
            answer = stop.communicate(timeout=90)
        _, said = run.communicate(timeout=90)
    check_all_came_back(said)
    check_nobody_is_left(processes)
    complete = list(tmp_path.glob("saved/savepoint-*/_metadata.json"))
    if not complete:
        assert fate != "paused", answer
        assert stop.returncode == 1, answer
        assert "error: the job failed: worker w" in answer[1], answer
        assert run.returncode == 0, said
        check_counts(tmp_path, STOPPED_ROWS)
        return
    saved = complete[0].parent
    assert (stop.returncode, run.returncode) == (0, 0), (answer, said)
    assert f"--from-savepoint {saved}" in said
    assert not list(tmp_path.glob("out/.*.inprogress")), "all is committed"
    if not drain:
        with started(
            "resume", file, "--from-savepoint", saved, "--workers", 2, "--no-live", *REPORTED, cwd=tmp_path
        ) as again:
            _, said = again.communicate(timeout=90)
        assert again.returncode == 0, said
        check_all_came_back(said)
        check_counts(tmp_path, STOPPED_ROWS)


@contextmanager
def cluster(folder: Path, file: Path, phase: str, fate: str, *, of: str) -> Iterator[tuple[Process, list[Process]]]:
    """A job manager and two task managers; one process `of` the job manager's or a task manager's is struck."""
    place, secret = f"127.0.0.1:{free_port()}", folder / "secret"
    listening = ("jobmanager", file, "--listen", place, "--secret-file", secret, "--no-live", *REPORTED)
    joining = ("taskmanager", "--jobmanager", place, "--secret-file", secret, "--slots", 1)
    managing = struck(folder, phase, fate, *listening) if of == "jobmanager" else started(*listening, cwd=folder)
    with managing as run:
        wait_for(secret.exists, run)
        first = struck(folder, phase, fate, *joining) if of == "taskmanager" else started(*joining, cwd=folder)
        with first as one, started(*joining, cwd=folder) as other:
            yield run, [one, other]


@pytest.mark.exhaustive
@pytest.mark.parametrize("fate", in_ci(["killed", "paused"], 2))
@pytest.mark.parametrize("phase", in_ci(WORKER, 3))
def test_a_process_of_a_task_manager(tmp_path: Path, phase: str, fate: str) -> None:
    pace = PACES.get(phase, {"rows": ROWS})
    file = write_pipeline(tmp_path, checkpointing(phase), **pace)
    with cluster(tmp_path, file, phase, fate, of="taskmanager") as (run, managers):
        victim = wait_until_struck(tmp_path, run, fate)
        _, said = run.communicate(timeout=90)
        assert run.returncode == 0, said
        check_all_came_back(said)
        processes = [victim, *(p for m in managers for p in all_below(m.pid))]
        for manager in managers:
            manager.send_signal(signal.SIGTERM)
            manager.communicate(timeout=30)
    check_counts(tmp_path, pace["rows"])
    check_nobody_is_left(processes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", in_ci([p for p in MANAGER if p != "going back"], 3))
def test_a_job_manager_that_is_killed_is_started_again(tmp_path: Path, phase: str) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=ROWS)
    with cluster(tmp_path, file, phase, "killed", of="jobmanager") as (run, managers):
        _, said = run.communicate(timeout=90)
        assert run.returncode == -signal.SIGKILL, said
        place = str(run.args[run.args.index("--listen") + 1])  # type: ignore[union-attr,index,arg-type]
        again = (
            "jobmanager",
            file,
            "--listen",
            place,
            "--secret-file",
            "secret",
            "--no-live",
            *REPORTED,
            "--from-savepoint",
            "state",
        )
        with started(*again, cwd=tmp_path) as second:
            _, said = second.communicate(timeout=90)
        assert second.returncode == 0, said
        check_all_came_back(said)
        processes = [p for m in managers for p in all_below(m.pid)]
        for manager in managers:
            manager.send_signal(signal.SIGTERM)
            manager.communicate(timeout=30)
    check_counts(tmp_path, ROWS)
    check_nobody_is_left(processes)
