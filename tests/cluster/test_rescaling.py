"""`flowrun rescale`: a job that changes its parallelism while it runs has the rows of one that nobody disturbed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.clusters import cluster, end
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, kill, workers_of, write_pipeline
from tests.end_to_end.processes import checkpoints, newest, started, wait_for
from tests.slices import everyday

Process = subprocess.Popen[str]
LONG = 100_000
"""Rows that a job with 1,000 a second does not come to the end of."""


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    controls = tempfile.mkdtemp(prefix="c", dir="/tmp")  # jobs of other tests have the same name
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", controls)
    yield
    shutil.rmtree(controls)


def rescale(folder: Path, parallelism: int, job: str = "counted") -> tuple[int, str]:
    """(exit code, what it said) of the command."""
    with started("rescale", job, "-p", parallelism, cwd=folder) as asked:
        _, said = asked.communicate(timeout=60)
    return asked.returncode, said


def finish(folder: Path, run: Process) -> str:
    """Stop a job that would run for long, and let another command read the rest as fast as it can: every row counts once.

    Gives what the first one said.
    """
    with started("stop", "counted", cwd=folder) as asked:
        _, said = asked.communicate(timeout=60)
    assert asked.returncode == 0, said
    _, told = run.communicate(timeout=60)
    assert run.returncode == 0, told
    at_once = ("--workers", 0, "--set", "sources.rows.rows-per-second=10000000")
    with started("resume", "--from-savepoint", "state", *at_once, cwd=folder) as rest:
        _, said = rest.communicate(timeout=60)
    assert rest.returncode == 0, said
    check_counts(folder, LONG)
    return told


def wait_for_another(folder: Path, run: Process) -> None:
    known = newest(folder)
    wait_for(lambda: newest(folder) > known, run)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "steps"), [(0, (4, 1)), (2, (3,)), (2, (4, 1))])
def test_a_job_goes_up_and_down_and_counts_every_row_once(tmp_path: Path, workers: int, steps: tuple[int, ...]) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=LONG, rate=1_000)
    with started("run", file, "--workers", workers, cwd=tmp_path) as run:
        wait_for(lambda: newest(tmp_path), run)
        for parallelism in steps:
            code, said = rescale(tmp_path, parallelism)
            assert code == 0, said
            assert f"'counted' goes on at parallelism {parallelism}" in said
            wait_for_another(tmp_path, run)
        assert "restarts" not in finish(tmp_path, run)


@pytest.mark.exhaustive
def test_task_managers_run_what_their_slots_suffice_for(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=LONG, rate=1_000)
    with cluster(tmp_path, file, managers=3) as (run, _):
        wait_for(lambda: newest(tmp_path), run)
        code, said = rescale(tmp_path, 9)
        assert code == 1
        assert "the job was not rescaled to parallelism 9: it needs 9 slots, there are 3" in said
        for parallelism in (1, 3):
            code, said = rescale(tmp_path, parallelism)
            assert code == 0, said
            wait_for_another(tmp_path, run)
        finish(tmp_path, run)


@pytest.mark.exhaustive
def test_what_cannot_be_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    settings = CHECKPOINTS % "false" + "\n  max_parallelism: 4"
    file = write_pipeline(tmp_path, settings, rows=LONG, rate=1_000)
    with started("run", file, "--workers", 0, cwd=tmp_path) as run:
        wait_for(lambda: newest(tmp_path), run)
        code, said = rescale(tmp_path, 5)
        assert code in (1, 2)
        assert "'max_parallelism' (4) is less than 'parallelism' (5)" in said
        code, said = rescale(tmp_path, 2)
        assert code == 1
        assert "the job has parallelism 2 already" in said
        finish(tmp_path, run)


@pytest.mark.exhaustive
def test_a_job_without_checkpoints_is_not_rescaled(tmp_path: Path) -> None:
    with started("run", write_pipeline(tmp_path, rows=600_000), "--workers", 0, cwd=tmp_path) as run:
        wait_for(lambda: list(tmp_path.glob("out/.*")), run)
        code, said = rescale(tmp_path, 1)
        assert code == 1
        assert "it takes no checkpoints" in said


@pytest.mark.parametrize(("seed", "unaligned"), everyday([(n, n % 2 == 0) for n in range(6)], 6, ci=3))
@pytest.mark.exhaustive
def test_kills_between_rescalings_cost_no_row(tmp_path: Path, seed: int, unaligned: bool) -> None:
    chance = random.Random(seed)
    file = write_pipeline(tmp_path, CHECKPOINTS % str(unaligned).lower(), rows=LONG, rate=1_000)
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        for _ in range(4):
            wait_for_another(tmp_path, run)
            if chance.random() < 0.7:
                kill(chance.choice(workers_of(run)))
            code, said = rescale(tmp_path, chance.choice([1, 2, 3, 5]))
            assert code == 0 or "already" in said, said
        finish(tmp_path, run)


def parallelism_of(folder: Path) -> int:
    """Of the last checkpoint's sinks."""
    try:
        kept = json.loads((checkpoints(folder / "state")[-1] / "_metadata.json").read_text())
    except FileNotFoundError:  # a newer one has taken its place
        return parallelism_of(folder)
    return int(kept["pipeline"]["overrides"]["settings.parallelism"])


@pytest.mark.exhaustive
def test_reactive_mode_follows_the_task_managers(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=LONG, rate=1_000)
    settle = "6s"  # longer than a busy machine takes to start a process in the place of another
    with cluster(tmp_path, file, "--reactive", "--settle", settle, managers=1) as (run, managers):
        wait_for(lambda: newest(tmp_path), run)
        assert parallelism_of(tmp_path) == 1
        joining = [str(argument) for argument in managers[0].args[3:]]  # type: ignore[union-attr,index]
        with started(*joining, cwd=tmp_path), started(*joining, cwd=tmp_path) as third:
            wait_for(lambda: parallelism_of(tmp_path) == 3, run)
            for session in children(third.pid):  # another takes its place before that counts
                kill(session)
            wait_for_another(tmp_path, run)
            wait_for_another(tmp_path, run)
            assert parallelism_of(tmp_path) == 3
            end(third)
            wait_for(lambda: parallelism_of(tmp_path) == 2, run)
            finish(tmp_path, run)


@pytest.mark.exhaustive
def test_reactive_mode_says_what_it_needs(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path)
    for wrong, why in ((("-p", "2"), "leave -p out"), ((), "need checkpoints"), (("--settle", "soon"), "no duration")):
        with started("jobmanager", file, "--reactive", *wrong, cwd=tmp_path) as run:
            _, said = run.communicate(timeout=60)
        assert run.returncode == 2
        assert why in said
