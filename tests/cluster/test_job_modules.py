"""Modules of the user travel with their job: task managers need nothing of the user's folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.processes import begun, started
from tests.end_to_end.running import json_rows

PIPELINE = """
name: shipped
settings: {{parallelism: 2, functions: [fns]}}
sources:
  numbers: {{connector: datagen, schema: {{n: BIGINT}}, number-of-rows: 200, rows-per-second: 1000000,
             fields.n.kind: sequence, fields.n.start: 0, fields.n.end: 199}}
steps:
  marked: {{from: numbers, map: {{function: 'fns:mark', row: true, schema: {{n: BIGINT, place: STRING}}}}}}
sinks:
  out: {{from: marked, connector: filesystem, path: '{out}', format: json}}
"""
FUNCTIONS = """
import kept.names

def mark(row):
    import late
    return {"n": late.double(row["n"]), "place": kept.names.NAME + " " + __file__}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_CACHE_DIR", str(tmp_path / "cache"))


def write_job(folder: Path, out: Path) -> None:
    (folder / "kept").mkdir(parents=True)
    (folder / "shipped.yaml").write_text(PIPELINE.format(out=out))
    (folder / "fns.py").write_text(FUNCTIONS)
    (folder / "late.py").write_text("def double(n):\n    return 2 * n\n")
    (folder / "kept" / "names.py").write_text("NAME = 'first'\n")
    (folder / "unrelated.py").write_text("raise SystemExit\n")
    (folder / "kept" / "data.csv").write_text("1\n")


@contextmanager
def submitted(*words: str, cwd: Path, secret: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A job manager that waits for slots, with the packages in OWN_PACKAGES, and how task managers of two slots join it."""
    program = "import os, sys; sys.path.append(os.environ.get('OWN_PACKAGES', '/')); from flowrun.cli.main import entry; entry()"
    options = ["--listen", "127.0.0.1:0", "--secret-file", str(secret), "--no-live"]
    with begun(["-c", program, "jobmanager", *words, *options], cwd=cwd) as run:
        assert run.stderr is not None
        place = next((line.split()[3] for line in run.stderr if "flowrun taskmanager" in line), None)
        assert place is not None, run.communicate()
        yield run, ["taskmanager", "--jobmanager", place, "--secret-file", str(secret), "--slots", "2"]


def test_task_managers_need_nothing_of_the_users_folder(tmp_path: Path) -> None:
    """It is gone before they come: nobody imports from there, and what is there now is not the job's any more."""
    user, out, secret = tmp_path / "user", tmp_path / "out", tmp_path / "secret"
    write_job(user, out)
    (tmp_path / "elsewhere").mkdir()
    with submitted("shipped.yaml", cwd=user, secret=secret) as (run, joining):
        user.rename(tmp_path / "gone")
        (tmp_path / "gone" / "fns.py").write_text("raise RuntimeError('this is not what was submitted')\n")
        with (
            started(*joining[:-1], 1, cwd=tmp_path / "elsewhere") as one,
            started(*joining[:-1], 1, cwd=tmp_path / "elsewhere") as two,
        ):
            _, said = run.communicate(timeout=60)
            for manager in (one, two):
                manager.terminate()
                manager.communicate(timeout=20)
    assert run.returncode == 0, said
    rows = json_rows(out)
    assert sorted(row["n"] for row in rows) == list(range(0, 400, 2))  # type: ignore[type-var]
    places = {str(row["place"]) for row in rows}
    assert all(p.startswith(f"first {tmp_path}/cache/jobs/") for p in places), places
    assert len(list((tmp_path / "cache" / "files").iterdir())) == 3, "each module once, and nothing else"
    assert not list((tmp_path / "cache" / "jobs").iterdir()), "nothing is left when task managers end"


@pytest.mark.exhaustive
def test_a_pipeline_travels_with_what_its_project_adds(tmp_path: Path) -> None:
    user, out, secret = tmp_path / "user", tmp_path / "out", tmp_path / "secret"
    (user / "pipelines").mkdir(parents=True)
    (user / "lib").mkdir()
    (user / "lib" / "words.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    (user / "pipelines" / "own.py").write_text("def more(n: int) -> int:\n    return n + 1\n")
    (user / "flowrun.yaml").write_text(
        f"environments: {{prod: {{variables: {{OUT: {out}, LAST: '99'}}, settings: {{parallelism: 2}}}}}}\n"
        "functions: {TWICE: 'lib.words:double'}\n"
        "tables: [tables.sql]\n"
    )
    (user / "tables.sql").write_text(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '100', 'fields.n.kind' = 'sequence',"
        " 'fields.n.start' = '0', 'fields.n.end' = '${LAST}');\n"
    )
    (user / "pipelines" / "shipped.sql").write_text(
        "CREATE FUNCTION more AS 'own.more' LANGUAGE PYTHON;\n"
        "CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '${OUT}');\n"
        "INSERT INTO o SELECT more(TWICE(n)) FROM numbers;\n"
    )
    with submitted("pipelines/shipped.sql", "--env", "prod", cwd=user, secret=secret) as (run, joining):
        user.rename(tmp_path / "gone")
        with started(*joining, cwd=tmp_path):
            _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert sorted(row["n"] for row in json_rows(out)) == list(range(1, 201, 2))  # type: ignore[type-var]


@pytest.mark.exhaustive
def test_a_program_travels_with_its_modules(tmp_path: Path) -> None:
    user, out, secret = tmp_path / "user", tmp_path / "out", tmp_path / "secret"
    user.mkdir()
    (user / "helpers.py").write_text(
        "class Doubling:\n    def __call__(self, row):\n        return {'n': 2 * row['n']}\n"
    )
    (user / "job.py").write_text(
        "from flowrun.core.schema import Schema\n"
        "from flowrun.core.types import BIGINT\n"
        "from flowrun.datastream import StreamExecutionEnvironment\n"
        "from helpers import Doubling\n"
        "env = StreamExecutionEnvironment('doubled', parallelism=2)\n"
        "numbers = Schema.of(n=BIGINT)\n"
        "stream = env.from_collection([{'n': n} for n in range(100)], numbers)\n"
        "class Adding:\n    def __call__(self, row):\n        return {'n': row['n'] + self.n}\n    n = 1\n"
        "def one_more(row):\n    return Adding()(row)\n"
        "doubled = stream.rebalance().map(Doubling(), numbers).map(one_more, numbers)\n"
        f"doubled.to_connector('filesystem', {{'path': {str(out)!r}}}, format='json', name='out')\n"
        "env.execute()\n"
    )
    with submitted("job.py", cwd=user, secret=secret) as (run, joining):
        user.rename(tmp_path / "gone")
        with started(*joining, cwd=tmp_path):
            _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert sorted(row["n"] for row in json_rows(out)) == list(range(1, 201, 2))  # type: ignore[type-var]


@pytest.mark.exhaustive
def test_relative_paths_need_the_working_directory(tmp_path: Path) -> None:
    user, secret = tmp_path / "user", tmp_path / "secret"
    write_job(user, Path("out"))
    with submitted("shipped.yaml", cwd=user, secret=secret) as (run, joining):
        user.rename(tmp_path / "gone")
        with started(*joining, cwd=tmp_path):
            _, said = run.communicate(timeout=60)
    assert run.returncode == 1, said
    assert "path 'out' is relative to the working directory of the job" in said
    assert "which is not on this machine" in said


@pytest.mark.exhaustive
def test_a_package_that_is_not_installed_on_a_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "rarely.py").write_text("N = 2\n")
    write_job(tmp_path / "user", tmp_path / "out")
    (tmp_path / "user" / "fns.py").write_text("import rarely\n" + FUNCTIONS)
    secret = tmp_path / "secret"
    monkeypatch.setenv("OWN_PACKAGES", str(installed))
    with (
        submitted("shipped.yaml", cwd=tmp_path / "user", secret=secret) as (run, joining),
        started(*joining, cwd=tmp_path),
    ):
        _, said = run.communicate(timeout=60)
    assert run.returncode == 1, said
    assert f"job 'shipped' cannot be compiled on {os.uname().nodename}" in said
    assert "packages do not travel with a job: install those that its modules import on every machine" in said
    assert "Traceback" not in said


@pytest.mark.exhaustive
def test_modules_that_are_too_large_are_an_error_before_anything_runs(tmp_path: Path) -> None:
    write_job(tmp_path, tmp_path / "out")
    (tmp_path / "late.py").write_text("N = '" + "x" * (9 << 20) + "'\n")
    with started("jobmanager", "shipped.yaml", "--secret-file", "secret", cwd=tmp_path) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 2, said
    assert "the module late.py has " in said
    assert not (tmp_path / "out").exists()
