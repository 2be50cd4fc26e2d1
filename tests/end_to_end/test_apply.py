"""`flowrun apply` as users see it: real processes, versions that are healthy and not, and commands that are killed; every row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import checkpoints, newest, started
from tests.end_to_end.processes import wait_for as wait_for_process
from tests.end_to_end.running import json_rows

PIPELINE = """\
name: ids
settings:
  checkpoint: {interval: 100ms, dir: state}
  cancellation_timeout: 2s
sources:
  rows:
    connector: datagen
    rows-per-second: 3000
    schema: {id: BIGINT}
    fields: {id: {kind: sequence, start: 0, end: 100000000}}
    uid: rows
steps:
  made: {from: rows, select: [id, "VERSION AS v"]}
sinks:
  out: {from: made, connector: filesystem, path: out, format: json, uid: out}
"""
FAILS = "CAST(CONCAT('x', CAST(id AS STRING)) AS BIGINT)"
APPLY = ("apply", "ids.yaml", "--yes", "--healthy-for", "200ms")


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for what several starts of processes, one after the other, lead to."""
    wait_for_process(condition, process)


def write(project: Path, version: object) -> None:
    (project / "ids.yaml").write_text(PIPELINE.replace("VERSION", str(version)))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def running(project: Path) -> Iterator[subprocess.Popen[str]]:
    """A job of version 1, which has completed checkpoints; it is asked to end at the end."""
    with started("run", "ids.yaml", "--no-live", cwd=project) as process:
        wait_for((project / "state/ids/_versions/000001.json").is_file, process)
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def phase(project: Path) -> str:
    file = project / "state/ids/_versions/upgrade.json"
    return str(json.loads(json.loads(file.read_text())["content"])["phase"]) if file.is_file() else ""


def versions_of_rows(project: Path) -> list[int]:
    """Which versions wrote rows; every id is there once, up to the last one."""
    rows = [(int(str(row["id"])), int(str(row["v"]))) for row in json_rows(project / "out")]
    ids = Counter(i for i, _ in rows)
    assert ids == Counter(range(len(rows)))
    return sorted({v for _, v in rows})


def runs_as(flowrun: Command, number: int) -> None:
    """The job runs, as the version of that number, and can be reached."""
    (job,) = json.loads(flowrun("jobs", "--json").out)
    assert (job["name"], job["state"]) == ("ids", "running")
    listed = json.loads(flowrun("history", "ids", "--json").out)
    last = [v["version"] for v in listed if v["outcome"] in ("ran", "accepted")][-1]
    assert last == number


@pytest.mark.exhaustive
def test_versions_that_fail_leave_no_trace_and_healthy_ones_take_over(flowrun: Command, project: Path) -> None:
    with running(project) as process:
        write(project, FAILS)
        failed = flowrun(*APPLY)
        assert failed.code == 1
        assert "what is computed:" in failed.out
        assert "version 2 was not healthy: it failed: cannot cast 'x" in failed.err
        assert "version 1 goes on from the savepoint as if nothing had been" in failed.err
        runs_as(flowrun, 1)
        write(project, 3)
        savepoints = project / "state/ids/_versions/savepoints"
        (of_failed,) = savepoints.iterdir()
        accepted = flowrun(*APPLY, "--keep-savepoints", 1)
        assert (accepted.code, "version 3 is healthy and goes on" in accepted.err) == (0, True), accepted.err
        (kept,) = savepoints.iterdir()
        assert kept != of_failed
        runs_as(flowrun, 3)
        assert process.poll() is None, "the process that the user has started stays"
    assert process.returncode == 130
    assert versions_of_rows(project) == [1, 3]
    assert [v["outcome"] for v in json.loads(flowrun("history", "ids.yaml", "--json").out)] == [
        "ran",
        "rejected",
        "accepted",
    ]


@pytest.mark.exhaustive
def test_a_version_of_the_history_comes_back_with_the_modules_that_it_had(flowrun: Command, project: Path) -> None:
    function = (
        "import pyarrow as pa\n\n\ndef mark(batch: pa.RecordBatch) -> pa.RecordBatch:\n"
        "    return batch.append_column('v', pa.array([{}] * len(batch), pa.int32()))\n"
    )
    step = 'map: {function: "mine:mark", schema: {id: BIGINT, v: INT}}'
    (project / "mine.py").write_text(function.format(1))
    (project / "ids.yaml").write_text(PIPELINE.replace('select: [id, "VERSION AS v"]', step))
    with running(project):
        (project / "mine.py").write_text(function.format(2))
        assert "~ module mine.py" in flowrun(*APPLY).out
        (project / "mine.py").write_text("what is in the folder now does not matter")
        back = flowrun("apply", "--to", "ids", "--version", "1", "--yes", "--healthy-for", "200ms")
        assert (back.code, "~ module mine.py" in back.out) == (0, True), back.out + back.err
        runs_as(flowrun, 3)
        listed = json.loads(flowrun("history", "ids", "--json").out)
        assert [v["outcome"] for v in listed] == ["ran", "accepted", "accepted"]
    assert versions_of_rows(project) == [1, 2]


@pytest.mark.exhaustive
def test_what_cannot_be_is_said_before_anything_is_stopped(flowrun: Command, project: Path) -> None:
    with running(project):
        same = flowrun(*APPLY)
        assert (same.code, same.err) == (0, "nothing differs in meaning: the job goes on as it is\n")
        write(project, 2)
        dry = flowrun("apply", "ids.yaml", "--dry-run")
        assert (dry.code, "- 1 AS v" in dry.out, phase(project)) == (0, True, "")
        unanswered = flowrun("apply", "ids.yaml")
        assert unanswered.code == 2
        assert "nobody can answer here" in unanswered.err
        (project / "ids.yaml").write_text(PIPELINE.replace("uid: rows", "uid: other").replace("VERSION", "2"))
        lost = flowrun(*APPLY)
        assert lost.code == 2
        assert "'Source: rows' (uid 'rows') has state in the savepoint" in lost.out
        (project / "ids.yaml").write_text(PIPELINE.replace("dir: state", "dir: elsewhere").replace("VERSION", "2"))
        moved = flowrun(*APPLY)
        assert moved.code == 2
        assert "keeps its state in" in moved.err
        assert "(in SQL: SET 'pipeline.name' = 'ids')" in moved.err
        runs_as(flowrun, 1)
    assert versions_of_rows(project) == [1]
    nobody = flowrun(*APPLY)
    assert (nobody.code, "no job of yours runs on this machine" in nobody.err) == (2, True)


@pytest.mark.soak
def test_an_apply_that_is_killed_harms_nothing_and_keeps_others_out(flowrun: Command, project: Path) -> None:
    with running(project):
        write(project, 2)
        slow = ("apply", "ids.yaml", "--yes", "--healthy-for", "3s")
        with started(*slow, cwd=project) as first:
            wait_for(lambda: phase(project) == "new version on trial", first)
            second = flowrun(*APPLY)
            assert second.code == 1
            assert "apply" in second.err
            assert "version 2 is under way" in second.err or "has this job in hand" in second.err
            first.kill()
        third = flowrun(*APPLY)
        assert third.code == 1
        assert "an apply of version 2 is under way, or was interrupted: new version on trial" in third.err
        done = flowrun("apply", "ids.yaml", "--continue")
        assert (done.code, "version 2 is healthy and goes on" in done.err) == (0, True), done.err
        nothing = flowrun("apply", "ids.yaml", "--continue")
        assert (nothing.code, "the last one is over (accepted)" in nothing.err) == (2, True)
    assert versions_of_rows(project) == [1, 2]


@pytest.mark.soak
def test_if_all_processes_of_the_job_are_killed_on_trial_apply_goes_back_and_runs_it(
    flowrun: Command, project: Path
) -> None:
    with running(project) as process:
        write(project, 2)
        with started("apply", "ids.yaml", "--yes", "--healthy-for", "50s", cwd=project) as apply:
            wait_for(lambda: phase(project) == "new version on trial" and _has_new_checkpoint(project), apply)
            (job,) = json.loads(flowrun("jobs", "--json").out)
            os.kill(process.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):  # it ends with the one that has started it
                os.kill(job["pid"], signal.SIGKILL)
            wait_for(lambda: phase(project) == "went back", apply)
            wait_for(lambda: checkpoints(project / "state"), apply)  # those of the trial are gone
            apply.send_signal(signal.SIGTERM)
            assert apply.wait(30) == 130
    assert versions_of_rows(project) == [1]


def _has_new_checkpoint(project: Path) -> bool:
    """Whether the version on trial has completed a checkpoint, which commits nothing."""
    file = project / "state/ids/_versions/upgrade.json"
    savepoint = json.loads(json.loads(file.read_text())["content"])["savepoint"]
    return newest(project) > int(savepoint.rpartition("-")[2])


@pytest.mark.soak
@pytest.mark.parametrize("when", ["stopping the old version", "new version on trial", "going back to the old version"])
@pytest.mark.parametrize("version", [2, FAILS])
def test_killed_in_every_phase(flowrun: Command, project: Path, when: str, version: object) -> None:
    with running(project):
        write(project, version)
        with started("apply", "ids.yaml", "--yes", "--healthy-for", "1s", cwd=project) as apply:
            with suppress(AssertionError):  # it was faster
                wait_for(lambda: phase(project) in (when, "accepted", "went back"), apply)
            apply.kill()
        done = flowrun("apply", "ids.yaml", "--continue")
        assert phase(project) in ("accepted", "went back"), done.err
        runs_as(flowrun, 2 if version == 2 else 1)
    assert versions_of_rows(project) == ([1, 2] if version == 2 else [1])


@pytest.mark.soak
def test_a_version_that_hangs_is_gone_back_from(flowrun: Command, project: Path) -> None:
    (project / "hangs.py").write_text(
        "import time\nimport pyarrow as pa\n\ndef wait(batch: pa.RecordBatch) -> pa.RecordBatch:\n    time.sleep(3600)\n    return batch\n"
    )
    with running(project):
        text = PIPELINE.replace("VERSION", "2").replace(
            'select: [id, "2 AS v"]', 'map: {function: "hangs:wait", schema: {id: BIGINT, v: INT}}'
        )
        (project / "ids.yaml").write_text(text)
        hung = flowrun("apply", "ids.yaml", "--yes", "--healthy-for", "200ms", "--healthy-within", "3s")
        assert hung.code == 1, hung.err
        assert "no checkpoint was completed" in hung.err
        runs_as(flowrun, 1)
    assert versions_of_rows(project) == [1]
