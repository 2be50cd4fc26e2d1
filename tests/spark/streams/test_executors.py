"""`flowrun run FILE --on spark` on executors that are processes: what dies is replaced, and nothing is left behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, kill, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.runtime.rpc.certificates import make_authority, make_identity, needs_openssl
from tests.slices import in_ci
from tests.spark.streams.executors import STARTS_WITHIN_S, all_end, descendants, on_spark, task_executors, victim
from tests.spark.streams.many_runs import LOCAL_CLUSTER

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ends processes with their parents")

ENDS_WITHIN_S = 200
VICTIMS = ("task executor", "Python worker", "executor")


def is_under_way(folder: Path) -> bool:
    return newest(folder) > 2


@pytest.mark.parametrize("unaligned", in_ci(["true", "false"], 2))
def test_what_is_killed_is_replaced_and_every_row_counts_once(tmp_path: Path, unaligned: str) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % unaligned, rows=300_000)
    with on_spark(file, cwd=tmp_path) as run:
        everything = []
        for what in VICTIMS:
            known = newest(tmp_path)
            wait_for(lambda: newest(tmp_path) > known + 2, run, STARTS_WITHIN_S)  # noqa: B023 - of this round
            everything += descendants(run.pid)
            kill(victim(run, what))
        _, said = run.communicate(timeout=ENDS_WITHIN_S)
        assert run.returncode == 0, said
        assert "restarts: 3" in said
        assert all_end(everything)
    check_counts(tmp_path, 300_000)


@pytest.mark.parametrize("number", in_ci([signal.SIGKILL, signal.SIGINT, signal.SIGTERM], 3))
def test_the_end_of_the_command_is_the_end_of_all(tmp_path: Path, number: signal.Signals) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=10_000_000)
    with on_spark(file, cwd=tmp_path) as run:
        wait_for(lambda: is_under_way(tmp_path), run, STARTS_WITHIN_S)
        everything = descendants(run.pid)
        assert len(everything) > 6
        kill(run.pid, number)
        _, said = run.communicate(timeout=60)
        assert all_end(everything)
    if number is not signal.SIGKILL:
        assert run.returncode == 130, said
        assert f"--on spark --spark-master '{LOCAL_CLUSTER}'" in said.partition("resume with:")[2]


def test_a_terminal_that_is_closed_ends_it_with_a_last_checkpoint(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup ignore it, and so would the command
    try:
        close_the_terminal(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)


def close_the_terminal(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=10_000_000)
    with on_spark(file, cwd=tmp_path) as run:
        wait_for(lambda: is_under_way(tmp_path), run, STARTS_WITHIN_S)
        everything = descendants(run.pid)
        for pid in (run.pid, *(p.pid for p in everything)):
            if os.getsid(pid) == os.getsid(run.pid):  # a terminal tells all processes of its session
                kill(pid, signal.SIGHUP)
        _, said = run.communicate(timeout=60)
        assert run.returncode == 130, said
        assert "resume with:" in said
        assert all_end(everything)


@pytest.mark.parametrize("number", in_ci([signal.SIGINT, signal.SIGTERM], 2))
def test_a_command_that_is_ended_while_spark_starts_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with on_spark(write_pipeline(tmp_path), cwd=tmp_path) as run:
        wait_for(lambda: len(descendants(run.pid)) > 1, run, STARTS_WITHIN_S)
        everything = descendants(run.pid)
        kill(run.pid, number)
        _, said = run.communicate(timeout=60)
        assert run.returncode == 130, said
        assert all_end(everything)
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_a_savepoint_of_spark_goes_on_in_one_process_and_the_other_way_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="c", dir="/tmp") as controls:  # jobs of other tests have the same name
        monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", controls)
        file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=400_000)
        with on_spark(file, cwd=tmp_path) as run:
            wait_for(lambda: is_under_way(tmp_path), run, STARTS_WITHIN_S)
            saved = stop_with_savepoint(tmp_path)
            _, said = run.communicate(timeout=60)
            assert run.returncode == 0, said
        with started("run", file, "--workers", 0, "--from-savepoint", saved, cwd=tmp_path) as run:
            known = newest(tmp_path)
            wait_for(lambda: newest(tmp_path) > known + 2, run)
            saved = stop_with_savepoint(tmp_path)
            _, said = run.communicate(timeout=60)
            assert run.returncode == 0, said
        with on_spark(file, "-p", 3, "--from-savepoint", saved, cwd=tmp_path) as run:
            _, said = run.communicate(timeout=ENDS_WITHIN_S)
            assert run.returncode == 0, said
            assert "resuming from savepoint" in said
    check_counts(tmp_path, 400_000)


def stop_with_savepoint(folder: Path) -> str:
    with started("stop", "counted", "--savepoint=sp", cwd=folder) as stop:
        out, said = stop.communicate(timeout=60)
    found = re.search(r"--from-savepoint (\S+)", out + said)
    assert found is not None, out + said
    return shlex.split(found[1])[0]


@pytest.mark.soak
def test_rescaling_brings_task_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="c", dir="/tmp") as controls:
        monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", controls)
        file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=400_000)
        with on_spark(file, "-p", 1, cwd=tmp_path) as run:
            wait_for(lambda: is_under_way(tmp_path), run, STARTS_WITHIN_S)
            assert len(task_executors(run, 1)) == 1
            with started("rescale", "counted", "-p", 2, cwd=tmp_path) as rescale:
                _, said = rescale.communicate(timeout=120)
                assert rescale.returncode == 0, said
            assert len(task_executors(run, 2)) == 2
            _, said = run.communicate(timeout=ENDS_WITHIN_S)
            assert run.returncode == 0, said
    check_counts(tmp_path, 400_000)


@pytest.mark.soak
@needs_openssl
def test_rows_and_orders_are_encrypted(tmp_path: Path) -> None:
    identity = make_identity(tmp_path / "identity", make_authority(tmp_path / "authority"))
    with on_spark(
        write_pipeline(tmp_path, CHECKPOINTS % "true"), "--tls", identity.name, "--patience", "5m", cwd=tmp_path
    ) as run:
        _, said = run.communicate(timeout=STARTS_WITHIN_S + ENDS_WITHIN_S)
        assert run.returncode == 0, said
    check_counts(tmp_path)


@pytest.mark.soak
def test_too_few_cores_are_an_error_that_says_so(tmp_path: Path) -> None:
    with on_spark(
        write_pipeline(tmp_path), "--task-executors", 3, "--patience", "90s", cwd=tmp_path, master="local-cluster[1,1,1024]"
    ) as run:  # fmt: skip
        _, said = run.communicate(timeout=ENDS_WITHIN_S)
    assert run.returncode == 1
    assert "Spark started 1 of 3 task executors within 90 s: its executors have no more free cores" in said
    assert "--task-executors 1" in said
    assert said.count("error:") == 1
    assert "WARNING" not in said


def test_a_python_without_flowrun_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    if not bare.exists() or (Path(sys.executable).resolve().parent == bare.parent and sys.prefix == sys.base_prefix):
        pytest.skip("there is no Python without packages")
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    with on_spark(write_pipeline(tmp_path), cwd=tmp_path) as run:
        _, said = run.communicate(timeout=ENDS_WITHIN_S)
    assert run.returncode == 2, said
    assert "ModuleNotFoundError" in said
    assert "install flowrun, of the same version, in the Python of Spark's executors" in said
