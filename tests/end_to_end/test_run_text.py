"""`flowrun run -e SQL` and `flowrun run -`: scripts that are in no file."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command

COUNT = "SELECT k, COUNT(*) AS n FROM (VALUES ('a'), ('b'), ('a')) AS t(k) GROUP BY k"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """What comes on standard input."""
    data = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    return data


def test_statements_of_the_command_line(flowrun: Command) -> None:
    done = flowrun("run", "-e", COUNT, "--mode", "streaming", "--format", "json")
    assert done.code == 0, done.err
    last = {row["after"]["k"]: row["after"]["n"] for row in map(json.loads, done.out.splitlines()) if row["after"]}
    assert last == {"a": 2, "b": 1}


def test_standard_input(flowrun: Command, typed: io.BytesIO) -> None:
    typed.write(b"\xef\xbb\xbfSELECT '${NAME}' AS name;\n")
    typed.seek(0)
    done = flowrun("run", "-", "--var", "NAME=\N{SNOWMAN}", "--format", "csv")
    assert done.code == 0, done.err
    assert done.out == "name\n\N{SNOWMAN}\n"


def test_paths_start_in_the_working_directory(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.json").write_text('{"n": 1}\n{"n": 2}\n')
    table = "CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'path' = 'rows.json', 'format' = 'json');"
    done = flowrun("run", "-e", f"{table} SELECT n FROM t", "--format", "json")
    assert [json.loads(line)["n"] for line in done.out.splitlines()] == [1, 2]


@pytest.mark.exhaustive
def test_worker_processes_compile_the_same_statements(tmp_path: Path) -> None:
    made = (
        "CREATE TABLE t (n INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1000');"
        "CREATE TABLE o (n INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');"
    )
    words = ["run", "-e", f"{made} INSERT INTO o SELECT n FROM t", "-p", "2", "--workers", "2"]
    command = [sys.executable, "-m", "flowrun", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sum(len(f.read_text().splitlines()) for f in (tmp_path / "out").glob("part-*")) == 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give a FILE, or statements with --execute"),
        (("x.sql", "-e", "SELECT 1"), "not both"),
        (("-e", "SELEC 1"), "command-line.sql:1:1: error: expected a statement, got 'SELEC'"),
        (("-e", "SELECT 1", "--from-savepoint", "s"), "--from-savepoint needs a file"),
    ],
)
def test_what_cannot_be(flowrun: Command, words: tuple[str, ...], said: str) -> None:
    done = flowrun("run", *words)
    assert done.code == 2
    assert said in done.err


def test_bytes_that_are_no_text(flowrun: Command, typed: io.BytesIO) -> None:
    typed.write(b"SELECT '\xff'")
    typed.seek(0)
    done = flowrun("run", "-")
    assert done.code == 2
    assert "standard input is no UTF-8 text: byte 8" in done.err
