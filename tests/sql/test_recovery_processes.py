"""Scripts that Apache Flink has run, in processes that are killed in the middle of their files and resumed at another parallelism:
they answer as Flink did."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.shared_suites import needs_shared
from tests.slices import everyday
from tests.sql.test_flink_cases import CASES, ROOT, SHARED, fold_text

IN_CI = (
    "regular_left_join", "topn", "nested_agg", "match_recognize", "session_agg", "temporal_join", "interval_left_join", "over_rows",
)  # fmt: skip
BATCH_ROWS = 5

pytestmark = needs_shared(CASES)


@pytest.mark.parametrize("name", everyday(IN_CI, 16))
def test_killed_half_way_and_resumed(name: str, tmp_path: Path) -> None:
    _check(SHARED / "sqlsuite" / "cases" / f"{name}.sql", tmp_path, 0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_all_killed_half_way_and_resumed(case: Path, seed: int, tmp_path: Path) -> None:
    _check(case, tmp_path, seed)


def _check(case: Path, folder: Path, seed: int) -> None:
    chance = random.Random(zlib.crc32(f"{case.stem}{seed}".encode()))
    wanted = json.loads(case.with_suffix(".json").read_text())
    first, second, third = chance.sample([1, 2, 3], 3)
    state, out = folder / "state", folder / "out"
    settings = {"batch_rows": BATCH_ROWS, "checkpoint.interval": "50ms", "checkpoint.dir": state}
    words = [str(case), "--quiet", "--var", f"DATA={SHARED / 'sqlsuite' / 'data'}", "--var", f"OUT={out}"]
    for name, value in settings.items():
        words += ["--set", f"settings.{name}={value}"]
    resume = ["resume", "--from-savepoint", str(state), *words, "--parallelism"]

    _killed(["run", *words, "--parallelism", str(first)], chance.randrange(10, 60), chance.randrange(1, 4))
    if chance.random() < 0.5:
        _killed([*resume, str(third)], chance.randrange(5, 40), chance.randrange(1, 3))
    report = folder / "report.json"
    done = _run([sys.executable, "-m", "flowrun", *resume, str(second), "--report", str(report)])
    assert done.returncode == 0, done.stderr[-2000:]

    vertices = json.loads(report.read_text())["vertices"]
    read = {v["name"].split()[1]: v["records_in"] for v in vertices if v["name"].startswith("Source: ")}
    assert any(0 < rows < _lines(table) for table, rows in read.items()), f"no table was half read: {read}"
    said = fold_text(out, wanted["columns"], case.with_suffix(".json"))
    assert said.startswith("same"), said


def _killed(words: list[str], polls: int, checkpoints: int) -> None:
    done = _run([sys.executable, "-m", "tests.sql.die_midway", str(polls), str(checkpoints), *words])
    assert done.returncode == -signal.SIGKILL, f"it was not killed: {done.returncode}\n{done.stderr[-2000:]}"


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def _lines(table: str) -> int:
    with (SHARED / "sqlsuite" / "data" / f"{table}.json").open() as file:
        return sum(1 for _ in file)
