"""Bounded runs that are stopped or killed in the middle of their files and go on after more files came: every row once."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import flowrun
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runtime.job_status import JobResult, VertexStatus
from flowrun.runtime.lifecycle import ExecutionState, JobState
from tests.end_to_end.conftest import Command
from tests.end_to_end.running import json_rows
from tests.slices import everyday
from tests.sql.recovery_gates import FUNCTIONS, GATES

TIMEOUT_MS = 60_000
TABLES = """
CREATE TABLE rows_in (id BIGINT) WITH ('connector'='filesystem', 'path'='in', 'format'='json', 'source.split-size'='400b');
CREATE TABLE rows_out (id BIGINT) WITH ('connector'='filesystem', 'path'='out', 'format'='json');
"""
COPY = f"{FUNCTIONS}{TABLES}INSERT INTO rows_out SELECT id FROM rows_in WHERE gate_a(id);"
FAILURES: list[Path] = []
"""Folders: the next row fails when one is there, after a file was put into it."""


@flowrun.udf(result="BOOLEAN", arguments=["BIGINT"], vectorised=True, deterministic=False)
def fails_when_told(column: pa.Array) -> pa.Array:
    """True for every row, unless the outside world is said to be broken; a file comes just before that."""
    if FAILURES:
        write(FAILURES.pop() / "came-before-the-failure.json", [10_000])
        raise OSError("the outside world is broken")
    return pa.array([True] * len(column))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    FAILURES.clear()
    for gate in GATES.values():
        gate.open()
    return tmp_path


def write(file: Path, ids: list[int]) -> list[int]:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps({"id": i}) + "\n" for i in ids))
    return ids


class Files:
    """Files that come now and then, with ids of their own."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.rows = 0

    def come(self, least: int = 1) -> None:
        """So many that a run is not at its end when its snapshot is, also on a machine that is busy."""
        for number in range(self._chance.randrange(least, 6)):
            more = self._chance.randrange(1, 120) + (3_000 if number == 0 else 0)
            name = f"{self._chance.choice('abcxyz')}-{self.rows}.json"  # before and behind those that are there
            write(Path("in") / name, list(range(self.rows, self.rows + more)))
            self.rows += more


def start(script: str, parallelism: int, restored: str | None = None, **settings: object) -> LocalJob:
    file = Path("pipeline.sql")
    file.write_text(script)
    given = {
        "parallelism": parallelism,
        "batch_rows": 7,
        "checkpoint.interval": "1h",
        "checkpoint.dir": "state",
        **settings,
    }
    graph = compile_pipeline(file, {}, {f"settings.{k}": str(v) for k, v in given.items()}).job_graph
    return start_embedded(graph, state=JobStateOptions(directory="state", restore_from=restored))


def finished(job: LocalJob) -> JobResult:
    result = job.wait(TIMEOUT_MS)
    assert result is not None, "the job did not end"
    return result


def copied() -> Counter[int]:
    return Counter(int(str(row["id"])) for row in json_rows(Path("out")))


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", everyday(range(6), 3))
def test_what_came_meanwhile_is_read_by_the_next_run_and_nothing_twice(seed: int, parallelism: int) -> None:
    chance = random.Random(seed)
    files = Files(chance)
    files.come(least=2)
    restored: str | None = None
    gate = GATES["a"]
    for _ in range(chance.randrange(1, 4)):
        gate.close_after(chance.randrange(1, 60))
        stops = chance.random() < 0.5
        with start(COPY, parallelism, restored) as job:
            while job.wait(5) is None and not gate.reached.is_set():
                pass
            if gate.reached.is_set():
                ticket = job.take_snapshot("savepoints" if stops else None, savepoint=stops, stop=stops)
                files.come()  # this run has made its list: they are the next one's
                gate.drip()
                restored = ticket.wait(TIMEOUT_MS)
                if not stops:
                    job.cancel()
            gate.open()
            finished(job)
        files.come()
        parallelism = chance.choice([1, 3])
    with start(COPY, parallelism, restored) as job:
        assert finished(job).state is JobState.FINISHED
    assert copied() == Counter(range(files.rows))


@pytest.mark.parametrize("resumes", [False, True])
def test_a_restart_within_a_run_does_not_change_what_it_reads(resumes: bool, here: Path) -> None:
    write(here / "in/a.json", list(range(50)))
    restored = None
    if resumes:
        gate = GATES["a"]
        gate.close_after(10)
        with start(COPY, 1) as job:
            assert gate.reached.wait(30)
            ticket = job.take_snapshot("savepoints", savepoint=True, stop=True)
            gate.drip()
            restored = ticket.wait(TIMEOUT_MS)
            gate.open()
            finished(job)
    write(here / "in/b.json", list(range(50, 80)))
    FAILURES.append(here / "in")
    function = f"CREATE FUNCTION fails AS '{__name__}.fails_when_told' LANGUAGE PYTHON;\n"
    with start(
        COPY.replace("INSERT", function + "INSERT").replace("gate_a(id);", "gate_a(id) AND fails(id);"), 1, restored
    ) as job:
        result = finished(job)
    assert (result.state, result.restarts) == (JobState.FINISHED, 1)
    assert copied() == Counter(range(80)), "the file that came before the failure belongs to the next run"


def test_a_source_that_was_read_to_its_end_stays_so_and_says_what_it_leaves_out(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(here / "in/a.json", list(range(50)))
    with start(COPY, 2) as job:
        finished(job)
    write(here / "in/b.json", [50])
    (here / "in/a.json").touch()
    for _ in range(2):  # what goes on from it knows as much
        caplog.clear()
        with caplog.at_level(logging.WARNING), start(COPY, 2, "state") as job:
            finished(job)
        assert [r.getMessage() for r in caplog.records if "b.json" in r.getMessage()], caplog.text
        assert "1 that came since are not read" in caplog.text
        assert "a.json" not in caplog.text
    assert copied() == Counter(range(50))


def test_a_finished_source_beside_one_that_goes_on_stays_finished(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(here / "in/a.json", list(range(50)))
    write(here / "others/a.json", list(range(100, 200)))
    others = TABLES.splitlines()[1].replace("rows_in", "others").replace("'in'", "'others'")
    script = f"{FUNCTIONS}{TABLES}{others}\nINSERT INTO rows_out SELECT id FROM rows_in UNION ALL SELECT id FROM others WHERE gate_b(id);"
    restored, gate = None, GATES["b"]
    for number in range(2):
        gate.close_after(20)
        with caplog.at_level(logging.WARNING), start(script, 1, restored) as job:
            assert gate.reached.wait(30)
            while not any(v.name.startswith("Source: rows_in") and _ended(v) for v in job.status().vertices):
                assert job.wait(5) is None
            ticket = job.take_snapshot("savepoints", savepoint=True, stop=True)
            gate.drip()
            restored = ticket.wait(TIMEOUT_MS)
            gate.open()
            finished(job)
        write(here / f"in/b{number}.json", [1000 + number])
        write(here / f"others/b{number}.json", [200 + number])
    with caplog.at_level(logging.WARNING), start(script, 3, restored) as job:
        finished(job)
    assert "2 that came since are not read" in caplog.text
    assert copied() == Counter([*range(50), *range(100, 202)])


def _ended(vertex: VertexStatus) -> bool:
    return set(vertex.states) == {ExecutionState.FINISHED}


WINDOWS = f"""{FUNCTIONS}
CREATE TABLE events (id BIGINT, ts AS TO_TIMESTAMP_LTZ(id * 1000, 3), WATERMARK FOR ts AS ts - INTERVAL '0' SECOND)
  WITH ('connector'='filesystem', 'path'='in', 'format'='json');
CREATE TABLE counts (window_end TIMESTAMP_LTZ(3), n BIGINT) WITH ('connector'='filesystem', 'path'='out', 'format'='json');
INSERT INTO counts SELECT window_end, COUNT(*)
  FROM TABLE(TUMBLE((SELECT * FROM events WHERE gate_a(id)), DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
"""


def test_rows_of_new_files_are_late_where_event_time_has_passed_them(here: Path) -> None:
    write(here / "in/m.json", list(range(100)))
    gate = GATES["a"]
    gate.close_after(50)
    with start(WINDOWS, 1) as job:
        assert gate.reached.wait(30)
        ticket = job.take_snapshot("savepoints", savepoint=True, stop=True)
        gate.drip()
        restored = ticket.wait(TIMEOUT_MS)
        gate.open()
        finished(job)
    write(here / "in/z.json", list(range(100, 140)))
    write(here / "in/a.json", [0, 1, 2])
    with start(WINDOWS, 1, restored) as job:
        result = finished(job)
    assert Counter(row["n"] for row in json_rows(here / "out")) == {10: 14}, "every window once, from both runs"
    assert sum(v for a in result.accumulators.values() for n, v in a.items() if n == "numLateRecordsDropped") == 3


def test_killed_in_a_process_of_its_own_and_resumed_after_files_came(here: Path, flowrun: Command) -> None:
    rows = 0
    for name in "mno":
        write(here / f"in/{name}.json", list(range(rows, rows + 200)))
        rows += 200
    script = f"{TABLES}INSERT INTO rows_out SELECT id FROM rows_in;"
    Path("pipeline.sql").write_text(script)
    settings = [
        f"settings.{n}={v}"
        for n, v in {"batch_rows": 5, "checkpoint.interval": "50ms", "checkpoint.dir": "state"}.items()
    ]
    words = ["pipeline.sql", "--quiet", *(w for s in settings for w in ("--set", s))]
    command = [sys.executable, "-m", "tests.sql.die_midway", "10", "2", "run", *words, "--parallelism", "2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (here / "out").exists() or len(copied()) < rows
    for name in "az":
        write(here / f"in/{name}.json", list(range(rows, rows + 30)))
        rows += 30
    done = flowrun("resume", "--from-savepoint", "state", *words, "--parallelism", "3")
    assert done.code == 0, done.err
    assert copied() == Counter(range(rows))
