"""Worker processes of the command line: the rows of one process, exactly once whoever dies, and nobody left behind."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, is_alive, kill, workers_of, write_pipeline
from tests.end_to_end.processes import begun, checkpoints, newest, started, wait_for
from tests.end_to_end.running import json_rows
from tests.slices import everyday


@pytest.mark.exhaustive
def test_a_report_says_what_one_process_says(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, rows=3000, rate=1_000_000)
    reports = []
    for workers in (0, 2):
        for old in tmp_path.glob("out/*"):
            old.unlink()
        with started("run", file, "--workers", workers, "--report", "report.json", cwd=tmp_path) as run:
            _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said
        check_counts(tmp_path, 3000)
        report = json.loads((tmp_path / "report.json").read_text())
        reports.append([(v["name"], v["records_in"]) for v in report["vertices"] if "Source" in v["name"]])
    assert reports[0] == reports[1]


@pytest.mark.parametrize(("seed", "unaligned"), everyday([(n, n % 2 == 0) for n in range(12)], 12, ci=5))
def test_workers_that_are_killed_are_replaced_and_every_row_counts_once(
    tmp_path: Path, seed: int, unaligned: bool
) -> None:
    chance = random.Random(seed)
    file = write_pipeline(tmp_path, CHECKPOINTS % str(unaligned).lower(), rate=8_000)
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        workers_of(run)
        for _ in range(3):
            known = newest(tmp_path)
            wait_for(lambda known=known: newest(tmp_path) > known, run)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.2))
            kill(chance.choice(workers_of(run)))
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert re.search(r"restarts: [123]\b", said), "one that dies during a restart joins it"
    check_counts(tmp_path)


@pytest.mark.parametrize(("kills", "rows"), everyday([(3, 50_000), (8, 100_000)], 2))
@pytest.mark.exhaustive
def test_a_job_survives_workers_that_are_killed_while_they_are_young(tmp_path: Path, kills: int, rows: int) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=rows)
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        for _ in range(kills):
            known = newest(tmp_path)
            kill(max(workers_of(run)))
            wait_for(lambda known=known: newest(tmp_path) > known, run)  # type: ignore[misc]
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    check_counts(tmp_path, rows)


@pytest.mark.parametrize("lasting", everyday([2, 0], 2))
def test_a_job_without_workers_ends_and_says_so(tmp_path: Path, lasting: int) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false")
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "from flowrun.runtime.cluster import local_workers\n"
        "from flowrun.cli.main import entry\n"
        "work = local_workers.run_worker\n"
        f"local_workers.run_worker = lambda plan, name: work(plan, name) if int(name[1:]) <= {lasting} else os._exit(7)\n"
        "entry()\n"
    )
    with begun(["program.py", "run", str(file), "--workers", "2"], cwd=tmp_path) as run:
        if lasting:
            workers = workers_of(run)
            wait_for(lambda: newest(tmp_path), run)
            kill(workers[0])
        _, said = run.communicate(timeout=60)
    assert run.returncode == 1, said
    assert "5 workers in a row died before they had connected (the last one ended with exit code 7)" in said
    assert f"needs 2 slots, there are {lasting // 2}" in said


def test_a_job_whose_workers_can_be_started_no_more_ends_says_why_and_goes_on_with_resume(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false")
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        workers_of(run)
        wait_for(lambda: newest(tmp_path), run)
        (fork_server,) = filter(children, children(run.pid))
        kill(fork_server)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 1, said
    assert "the process that forks workers was ended from outside, so none can be started any more" in said
    assert "flowrun resume --from-savepoint" in said
    assert "lower the parallelism" not in said
    with started(
        "resume", "--from-savepoint", checkpoints(tmp_path / "state")[-1], "--workers", 2, cwd=tmp_path
    ) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    check_counts(tmp_path)


def test_without_checkpoints_the_job_ends_and_says_which_worker_died_and_how(tmp_path: Path) -> None:
    with started("run", write_pipeline(tmp_path), "--workers", 2, cwd=tmp_path) as run:
        first, *others = workers_of(run)
        wait_for(lambda: list(tmp_path.glob("out/.*")), run)
        kill(first)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 1
    assert f"(process {first} on " in said
    assert "was killed by SIGKILL" in said
    assert said.count("error:") == 1, said
    assert not any(map(is_alive, others))


@pytest.mark.parametrize("number", everyday([signal.SIGINT, signal.SIGTERM], 2))
def test_a_signal_to_everybody_is_answered_by_the_command(tmp_path: Path, number: signal.Signals) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=1_000_000)
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        processes = [*children(run.pid), *workers_of(run)]
        wait_for(lambda: checkpoints(tmp_path / "state"), run)
        for process in (run.pid, *processes):
            kill(process, number)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130, said
    assert "resume with:" in said
    assert "restarts" not in said
    assert not any(map(is_alive, processes))


@pytest.mark.parametrize("victim", ["command", "fork server"])
def test_nobody_is_left_behind(tmp_path: Path, victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tempfile.mkdtemp(prefix="w", dir="/tmp")  # with a short path, as sockets are in it
    monkeypatch.setenv("TMPDIR", temporary)
    with started("run", write_pipeline(tmp_path), "--workers", 2, cwd=tmp_path) as run:
        workers = workers_of(run)
        server = next(child for child in children(run.pid) if children(child))
        wait_for(lambda: list(tmp_path.glob("out/.*")), run)
        kill(run.pid if victim == "command" else server)
        _, said = run.communicate(timeout=60)
    if victim == "fork server":
        assert run.returncode == 1
        assert "was ended with the process that had forked it" in said
    deadline = time.monotonic() + 10
    while any(map(is_alive, [server, *workers])) or list(Path(temporary).glob("flowrun-workers-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    shutil.rmtree(temporary)


def test_an_error_of_a_function_reads_as_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "fns.py").write_text("def boom(row):\n    raise ValueError('boom')\n")
    (tmp_path / "bad.yaml").write_text(
        "name: bad\nsettings: {parallelism: 2, functions: [fns]}\n"
        "sources: {rows: {connector: datagen, schema: {id: BIGINT}, number-of-rows: 1, rows-per-second: 100,"
        " fields.id.kind: sequence, fields.id.start: 5, fields.id.end: 5}}\n"
        "steps: {f: {from: rows, map: 'fns:boom'}}\n"
        "sinks: {out: {from: f, connector: filesystem, path: out, format: json}}\n"
    )
    said = []
    for workers in (0, 2):
        with started("run", "bad.yaml", "--workers", workers, cwd=tmp_path) as run:
            said.append(run.communicate(timeout=60)[1].replace("subtask 2 of 2", "subtask 1 of 2"))
        assert run.returncode == 1
    assert said[0] == said[1]
    assert said[0].count("error:") == 1
    assert "raised ValueError: boom" in said[0]


@pytest.mark.parametrize("end", everyday(["", "\n"], 2))
def test_what_functions_print_comes_out_line_by_line_and_all_of_it(tmp_path: Path, end: str) -> None:
    line = "x" * 60
    (tmp_path / "fns.py").write_text(f"def tell(row):\n    print('{line}', end={end!r})\n    return row\n")
    (tmp_path / "told.yaml").write_text(
        "name: told\nsettings: {parallelism: 2, functions: [fns]}\n"
        "sources: {rows: {connector: datagen, schema: {id: BIGINT}, number-of-rows: 2000, rows-per-second: 1000000}}\n"
        "steps: {f: {from: rows, map: {function: 'fns:tell', row: true}}}\n"
        "sinks: {out: {from: f, connector: blackhole}}\n"
    )
    unlike_other_tests = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    run = subprocess.run(
        [sys.executable, "-m", "flowrun", "run", "told.yaml", "--workers", "2"],
        cwd=tmp_path, env={**unlike_other_tests, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert run.stdout == 2000 * (line + end)


@pytest.mark.parametrize("seed", everyday(range(8), 8, ci=3))
@pytest.mark.exhaustive
def test_stages_of_batch_mode_survive_a_worker(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    restart = "embedded_mode: batch\n  restart: {strategy: fixed_delay, attempts: 20, delay: 0s}"
    file = write_pipeline(tmp_path, restart, rows=20_000)
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        workers = workers_of(run)
        time.sleep(chance.uniform(0, 1.3))
        kill(chance.choice(workers))
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    check_counts(tmp_path, 20_000)


@pytest.mark.parametrize(
    ("seed", "how"), everyday([(n, how) for n in range(4) for how in ("", "--drain", "--savepoint=sp")], 12, ci=5)
)
@pytest.mark.exhaustive
def test_a_worker_that_dies_while_the_job_is_stopped_costs_nothing(
    tmp_path: Path, seed: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls = tempfile.mkdtemp(prefix="c", dir="/tmp")  # jobs of other tests have the same name
    monkeypatch.setenv("FLOWRUN_RUNTIME_DIR", controls)
    chance = random.Random(seed)
    file = write_pipeline(tmp_path, CHECKPOINTS % str(seed % 2 == 0).lower())
    with started("run", file, "--workers", 2, cwd=tmp_path) as run:
        workers = workers_of(run)
        wait_for(lambda: newest(tmp_path), run)
        with started("stop", "counted", *how.split(), cwd=tmp_path) as stop:
            time.sleep(chance.uniform(0.2, 0.9))
            kill(chance.choice(workers))
            _, said = run.communicate(timeout=60)
            stop.communicate(timeout=60)
    assert run.returncode == 0, said
    goes_on = re.search(r"resume with:\n  flowrun (.*)", said)
    if goes_on is not None:
        with started(*shlex.split(goes_on[1]), "--workers", 2, cwd=tmp_path) as resumed:
            _, said = resumed.communicate(timeout=60)
        assert resumed.returncode == 0, said
    check_counts(tmp_path)
    shutil.rmtree(controls)


def test_what_needs_the_command_s_own_process_cannot_have_workers(tmp_path: Path) -> None:
    script = "CREATE TABLE g (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');\nSELECT id FROM g;\n"
    (tmp_path / "q.sql").write_text(script)
    with started("run", "q.sql", "--workers", 2, "-p", 2, cwd=tmp_path) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "q.sql:2:1: error: 'Sink: select' works in the command's own process only" in said
    assert "and --workers 2 was asked for" in said
    with started("run", "q.sql", "-p", 2, "--workers", "many", cwd=tmp_path) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "'many' is neither 'auto' nor a number from 0 to 1024" in said


def test_a_program_with_threads_runs_in_one_process_unless_workers_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import threading\nfrom flowrun.datastream import StreamExecutionEnvironment\n"
        "threading.Thread(target=threading.Event().wait, args=(20,), daemon=True, name='mine').start()\n"
        "env = StreamExecutionEnvironment(parallelism=2)\n"
        "env.from_collection([{'k': n} for n in range(10)]).rebalance().filter(lambda row: True).add_sink(lambda row: None)\n"
        "env.execute()\n"
    )
    with started("run", "job.py", "--workers", 2, cwd=tmp_path) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode in (1, 2)
    assert "processes cannot be forked, as there are threads already: mine" in said
    with started("run", "job.py", cwd=tmp_path) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said


@pytest.mark.exhaustive
def test_a_long_path_of_temporary_files_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with started("run", write_pipeline(tmp_path, rows=1000, rate=1_000_000), "--workers", 2, cwd=tmp_path) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    check_counts(tmp_path, 1000)


def test_what_is_late_does_not_depend_on_how_soon_workers_hear_of_each_other(tmp_path: Path) -> None:
    """One file is read by one subtask; the end of the other one comes from the other worker, after the first rows if nobody waits."""
    seconds = (5, 35, 7, 8, 55, 6, 1, 2, 59, 57)
    rows = [{"k": "abc"[i % 3], "ts": f"2024-01-01 00:00:{second:02}"} for i, second in enumerate(seconds)]
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "windows.yaml").write_text(
        "name: windows\n"
        "settings: {batch_rows: 1}\n"
        "sources:\n"
        "  rows: {connector: filesystem, path: rows.json, format: json, schema: {k: STRING, ts: TIMESTAMP(3)}, watermark: {column: ts}}\n"
        "steps:\n"
        "  counted: {from: rows, key_by: [k], window: {type: tumbling, size: 10s}, aggregate: [COUNT(*) AS n]}\n"
        "sinks:\n"
        "  out: {from: counted, connector: filesystem, path: out, format: json}\n"
    )
    (tmp_path / "program.py").write_text(
        "import time\n"
        "from flowrun.runtime.network.remote.sender import PartitionSender\n"
        "from flowrun.cli.main import entry\n"
        "send = PartitionSender.send_next\n"
        "PartitionSender.send_next = lambda self: (time.sleep(0.3), send(self))[1]\n"
        "entry()\n"
    )
    found = []
    for parallelism, workers in ((1, 0), (2, 2)):
        arguments = ["program.py", "run", "windows.yaml", "--parallelism", str(parallelism), "--workers", str(workers)]
        with begun(arguments, cwd=tmp_path) as run:
            _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said
        found.append(sorted(json.dumps(row) for row in json_rows(tmp_path / "out")))
        shutil.rmtree(tmp_path / "out")
    assert found[0] == found[1]
    assert len(found[0]) == 5
