"""`flowrun serve DIR`: all pipelines of a folder in one place."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.clusters import Process, Session, all_gone, free_port
from tests.end_to_end.conftest import Command, flowrun, own_registry
from tests.end_to_end.processes import checkpoints, started, wait_for
from tests.end_to_end.running import json_rows
from tests.rest.asking import Api

__all__ = ["flowrun", "own_registry"]

ROWS = 60_000
SCRIPT = """
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '300ms';
SET 'execution.checkpointing.dir' = 'state-{name}';
CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}', 'number-of-rows' = '{rows}',
  'fields.v.kind' = 'sequence', 'fields.v.start' = '0', 'fields.v.end' = '{last}');
CREATE TABLE found (v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out-{name}', 'format' = 'json');
INSERT INTO found SELECT {expression} FROM numbers;
"""


def write(folder: Path, name: str, rate: int = 6_000, expression: str = "v") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.sql"
    file.write_text(SCRIPT.format(name=name, rate=rate, rows=ROWS, last=ROWS - 1, expression=expression))
    return file


@contextmanager
def served(folder: Path) -> Iterator[tuple[Process, Session]]:
    """The pipelines of a folder `pipelines`, and what asks their cluster."""
    place = f"127.0.0.1:{free_port()}"
    with started("serve", "pipelines", "--listen", place, "--secret-file", "secret", cwd=folder) as process:
        yield process, Session(folder, process, [], ("--cluster", place, "--secret-file", "secret"))


def run_to_end(folder: Path, names: tuple[str, ...]) -> str:
    """Serve a folder until these jobs have finished; gives what was said."""
    with served(folder) as (process, session):
        wait_for((folder / "secret").exists, process)
        wait_for(lambda: is_listening(session), process)
        wait_for(
            lambda: {j["name"] for j in session.jobs() if j["state"] == "finished"} >= {*names}, process, limit_s=90
        )
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    return said


def is_listening(session: Session) -> bool:
    return session.flowrun("jobs", code=None).returncode == 0


def values(folder: Path, name: str) -> list[object]:
    return sorted(row["v"] for row in json_rows(folder / f"out-{name}"))  # type: ignore[type-var]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_all_pipelines_run_in_one_place_and_go_on_where_they_were(tmp_path: Path, number: signal.Signals) -> None:
    for name in ("a", "b"):
        write(tmp_path / "pipelines", name)
    with served(tmp_path) as (process, session):
        for name in ("a", "b"):
            wait_for(lambda name=name: len(checkpoints(tmp_path / f"state-{name}")) >= 1, process)  # type: ignore[misc]
        assert {(job["name"], job["state"]) for job in session.jobs()} == {("a", "running"), ("b", "running")}
        page = session.flowrun("ui").stdout
        assert [job["name"] for job in Api.of_page(page).get("/v1/jobs")["jobs"]] == ["a", "b"]
        below = session.processes()
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        assert all_gone(below)
    assert re.search(r"^'a' \(pipelines/a.sql\) begins$", said, re.M)
    if number is not signal.SIGKILL:
        assert process.returncode == 0
        assert len(re.findall(r"^'[ab]' stopped at .*/chk-\d+$", said, re.M)) == 2
    again = run_to_end(tmp_path, ("a", "b"))
    assert len(re.findall(r"^'[ab]' \(pipelines/[ab].sql\) goes on from .*/chk-\d+$", again, re.M)) == 2
    assert values(tmp_path, "a") == values(tmp_path, "b") == list(range(ROWS))


@pytest.mark.exhaustive
def test_a_job_that_fails_leaves_the_others_alone_and_is_told_of(tmp_path: Path) -> None:
    write(tmp_path / "pipelines", "fails", expression="v / (v - 100)")
    write(tmp_path / "pipelines", "runs", rate=1_000)
    with served(tmp_path) as (process, session):
        wait_for((tmp_path / "secret").exists, process)
        wait_for(lambda: is_listening(session), process)
        wait_for(lambda: "failed" in [job["state"] for job in session.jobs()], process)
        wait_for(lambda: len(checkpoints(tmp_path / "state-runs")) >= 1, process)
        assert session.job("runs")["state"] == "running"
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert re.search(r"^'fails' failed: .*division by zero", said, re.M | re.I)


def test_nothing_runs_if_one_file_is_wrong(flowrun: Command, tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    write(folder, "right")
    (folder / "wrong.sql").write_text("CREATE TABL x;")
    (folder / "half.yaml").write_text("name: half\n")
    (folder / "of_others.test.yaml").write_text("nothing: of ours\n")
    (folder / ".hidden.yaml").write_text("nothing: of ours\n")
    ran = flowrun("serve", folder)
    assert ran.code == 2
    assert "wrong.sql:1:8" in ran.err
    assert "half.yaml" in ran.err
    assert "of_others" not in ran.err
    assert "hidden" not in ran.err


def test_what_cannot_be_served_is_said(flowrun: Command, tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "declares.sql").write_text("CREATE TABLE x (v BIGINT) WITH ('connector' = 'blackhole');")
    ran = flowrun("serve", folder)
    assert (ran.code, "there are no pipelines in" in ran.err) == (2, True)
    (folder / "job.py").write_text("raise RuntimeError('not looked at')")
    (folder / "flowrun.yaml").write_text("pipelines: [declares.sql, job.py]")
    ran = flowrun("serve", folder)
    assert (ran.code, "there are no pipelines in" in ran.err) == (2, True)
    assert "job.py is a program, which is not served" in ran.err
    (folder / "flowrun.yaml").unlink()
    text = write(folder, "one").read_text()
    (folder / "two.sql").write_text(text)
    ran = flowrun("serve", folder)
    assert (ran.code, "are both called 'one'" in ran.err) == (2, True)
    (folder / "two.sql").write_text("SELECT 1;")
    ran = flowrun("serve", folder)
    assert ran.code == 2
    assert "two.sql:1:1: error: 'Sink: select' works in the command's own process only" in ran.err
    (folder / "two.sql").write_text("SET 'execution.runtime-mode' = 'batch';" + text.replace("'one'", "'two'"))
    ran = flowrun("serve", folder)
    assert (ran.code, "two.sql: a pipeline in batch mode is not served" in ran.err) == (2, True)


def test_pipelines_never_become_jobs_of_a_cluster_that_is_there_already(flowrun: Command, tmp_path: Path) -> None:
    write(tmp_path / "pipelines", "one")
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        ran = flowrun("serve", tmp_path / "pipelines", "--listen", place)
    assert (ran.code, f"somebody listens at {place} already" in ran.err) == (1, True)
    assert flowrun("serve", tmp_path / "pipelines", "--listen", "127.0.0.1:0").code == 2
