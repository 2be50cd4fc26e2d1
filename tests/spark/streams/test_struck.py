"""Each phase of a job on Spark in which a task executor, or the command, is killed, is stopped for a while, or hangs for good."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.struck import MANAGER, WORKER
from tests.cluster.test_struck import COUNTS, PACES, REPORTED, cases, check_slots_came_back, wait_until_struck
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, write_pipeline
from tests.end_to_end.processes import begun, checkpoints, started, wait_for
from tests.spark.streams.executors import QUICK, STARTS_WITHIN_S, Process, all_end, descendants
from tests.spark.streams.many_runs import LOCAL_CLUSTER, ROOT

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ends processes with their parents"),
]

ROWS = 60_000
ENDS_WITHIN_S = 400
SITE = """
import os, signal, sys
from pathlib import Path

if "flowrun.runners.spark_task_executor" in sys.orig_argv:
    from tests.cluster.struck import wrap

    phase, number, count = os.environ["STRIKE"].split("|")
    wrap(phase, signal.Signals[number], int(count), Path(os.environ["STRUCK"]), own=True)
"""
"""What the Python of executors runs at its start."""


@pytest.fixture(autouse=True)
def _own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", str(tmp_path / "registry"))
    monkeypatch.setenv("STRUCK", str(tmp_path / "struck"))


@contextmanager
def struck(folder: Path, phase: str, fate: str, file: Path) -> Iterator[Process]:
    """A run on Spark, of which one process is struck in a phase."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    number, count = "SIGKILL" if fate == "killed" else "SIGSTOP", COUNTS.get(phase, 2)
    variables = {
        "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{ROOT}",
        "STRUCK": folder / "struck",
        "STRIKE": f"{phase}|{number}|{count}",
    }
    settings = [part for name, value in variables.items() for part in ("--conf", f"spark.executorEnv.{name}={value}")]
    if phase in MANAGER:
        settings = []
    run = (
        "run",
        file,
        "--on",
        "spark",
        "--spark-master",
        LOCAL_CLUSTER,
        "--patience",
        "5m",
        "--no-live",
        *QUICK,
        *REPORTED,
    )
    words = ["-m", "tests.cluster.struck", phase, number, count, *run, *settings]
    with begun([str(word) for word in words], cwd=folder) as process:
        yield process


@pytest.mark.parametrize(("phase", "fate"), cases(WORKER))
def test_a_task_executor(tmp_path: Path, phase: str, fate: str) -> None:
    pace = PACES.get(phase, {"rows": ROWS})
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", **pace)
    with struck(tmp_path, phase, fate, file) as run:
        wait_until_struck(tmp_path, run, fate, STARTS_WITHIN_S)
        everything = descendants(run.pid)
        _, said = run.communicate(timeout=ENDS_WITHIN_S)
        assert run.returncode == 0, said
        assert fate == "paused" or "restarts: " in said, said
        check_slots_came_back(said)
        assert all_end(everything)
    check_counts(tmp_path, pace["rows"])


@pytest.mark.parametrize("phase", [p for p in MANAGER if p != "going back"])
def test_the_command_that_is_killed_is_resumed(tmp_path: Path, phase: str) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=ROWS)
    with struck(tmp_path, phase, "killed", file) as run:
        wait_for(lambda: checkpoints(tmp_path / "state"), run, STARTS_WITHIN_S)
        everything = descendants(run.pid)
        _, said = run.communicate(timeout=ENDS_WITHIN_S)
        assert run.returncode == -signal.SIGKILL, said
        assert all_end(everything)
    again = ("resume", file, "--from-savepoint", "state", "--on", "spark", "--spark-master", LOCAL_CLUSTER, "--no-live")
    with started(*again, "--patience", "5m", *QUICK, cwd=tmp_path) as resumed:
        _, said = resumed.communicate(timeout=ENDS_WITHIN_S)
        assert resumed.returncode == 0, said
    check_counts(tmp_path, ROWS)
