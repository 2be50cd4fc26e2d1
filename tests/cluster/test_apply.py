"""`flowrun apply` of a job on a cluster: functions that change, versions that fail, commands and job managers that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.clusters import Session, free_port, session
from tests.end_to_end.processes import started
from tests.end_to_end.processes import wait_for as wait_for_process
from tests.end_to_end.running import json_rows

SQL = """\
SET 'pipeline.name' = 'ids';
SET 'execution.checkpointing.interval' = '100ms';
SET 'execution.checkpointing.dir' = 'state';
CREATE FUNCTION made AS 'mine.made' LANGUAGE PYTHON;
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '3000', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '0', 'fields.id.end' = '100000000');
CREATE TABLE found (id BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO found SELECT id, made(id) FROM ids;
"""
MODULE = 'import flowrun\n\n\n@flowrun.udf(result="BIGINT")\ndef made(value: int) -> int:\n    return {body}\n'
APPLY = ("apply", "ids.sql", "--yes", "--healthy-for", "200ms")


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for what several starts of processes, one after the other, lead to."""
    wait_for_process(condition, process)


def write(folder: Path, body: str) -> None:
    (folder / "ids.sql").write_text(SQL)
    (folder / "mine.py").write_text(MODULE.format(body=body))


def phase(folder: Path) -> str:
    file = folder / "state/ids/_versions/upgrade.json"
    return str(json.loads(json.loads(file.read_text())["content"])["phase"]) if file.is_file() else ""


def start(cluster: Session, folder: Path) -> None:
    write(folder, "1")
    cluster.flowrun("run", "ids.sql", "--detach")
    wait_for((folder / "state/ids/_versions/000001.json").is_file, cluster.dispatcher)


def check_rows(cluster: Session, folder: Path, versions: list[int]) -> None:
    """After a stop every id is there once, and these versions wrote rows."""
    cluster.flowrun("stop", "ids")
    rows = [(int(str(row["id"])), int(str(row["v"]))) for row in json_rows(folder / "out")]
    assert Counter(i for i, _ in rows) == Counter(range(len(rows)))
    assert sorted({v for _, v in rows}) == versions


@pytest.mark.soak
def test_functions_that_change_are_tried_and_gone_back_from_with_what_they_were(tmp_path: Path) -> None:
    with session(tmp_path) as cluster:
        start(cluster, tmp_path)
        write(tmp_path, "1 // (value - value)")
        failed = cluster.flowrun(*APPLY, code=1)
        assert "~ module mine.py" in failed.stdout
        assert "version 2 was not healthy: it failed:" in failed.stderr
        write(tmp_path, "3")
        accepted = cluster.flowrun(*APPLY)
        assert "version 3 is healthy and goes on" in accepted.stderr
        listed = json.loads(cluster.flowrun("history", "ids", "--json").stdout)
        assert [v["outcome"] for v in listed] == ["ran", "rejected", "accepted"]
        check_rows(cluster, tmp_path, [1, 3])


@pytest.mark.soak
def test_a_new_version_comes_over_the_rest_api(tmp_path: Path) -> None:
    script = SQL.replace("CREATE FUNCTION made AS 'mine.made' LANGUAGE PYTHON;\n", "")
    token, port = tmp_path / "token", free_port()
    with session(tmp_path, serving=("--rest", f"127.0.0.1:{port}", "--token-file", token)) as inside:
        wait_for(token.exists, inside.dispatcher)
        cluster = replace(inside, options=("--cluster", f"http://127.0.0.1:{port}", "--token-file", str(token)))
        (tmp_path / "ids.sql").write_text(script.replace("made(id)", "1"))
        cluster.flowrun("run", "ids.sql", "--detach")
        wait_for((tmp_path / "state/ids/_versions/000001.json").is_file, cluster.dispatcher)
        assert "job 'ids'" in cluster.flowrun("why", "ids.sql").stdout, "it runs, and is no file alone"
        (tmp_path / "ids.sql").write_text(script.replace("made(id)", "2"))
        assert "version 2 is healthy and goes on" in cluster.flowrun(*APPLY).stderr
        check_rows(cluster, tmp_path, [1, 2])


@pytest.mark.soak
@pytest.mark.parametrize("body", ["2", "1 // (value - value)"])
@pytest.mark.parametrize("when", ["stopping the old version", "new version on trial", "going back to the old version"])
def test_an_apply_that_is_killed_is_gone_on_with(tmp_path: Path, when: str, body: str) -> None:
    with session(tmp_path) as cluster:
        start(cluster, tmp_path)
        write(tmp_path, body)
        with started("apply", "ids.sql", "--yes", "--healthy-for", "1s", *cluster.options, cwd=tmp_path) as apply:
            try:
                wait_for(lambda: phase(tmp_path) in (when, "accepted", "went back"), apply)
            except AssertionError:
                assert phase(tmp_path) in ("accepted", "went back"), "it was faster"
            apply.kill()
        done = cluster.flowrun("apply", "ids.sql", "--continue", code=None)
        assert done.returncode in (0, 1, 2), done.stderr
        assert phase(tmp_path) in ("accepted", "went back"), done.stderr
        check_rows(cluster, tmp_path, [1, 2] if phase(tmp_path) == "accepted" else [1])


@pytest.mark.soak
def test_a_job_manager_that_is_lost_on_trial_is_no_healthy_version(tmp_path: Path) -> None:
    with session(tmp_path) as cluster:
        start(cluster, tmp_path)
        write(tmp_path, "2")
        with started("apply", "ids.sql", "--yes", "--healthy-for", "50s", *cluster.options, cwd=tmp_path) as apply:
            wait_for(lambda: phase(tmp_path) == "new version on trial", apply)
            old = {job["job_id"] for job in cluster.jobs() if job["state"] != "running"}
            wait_for(lambda: [j for j in cluster.jobs() if j["state"] == "running" and j["job_id"] not in old], apply)
            os.kill(int(cluster.job("ids")["pid"]), signal.SIGKILL)
            _, said = apply.communicate(timeout=60)
        assert apply.returncode == 1
        assert "version 2 was not healthy: its job manager process was lost" in said
        check_rows(cluster, tmp_path, [1])
