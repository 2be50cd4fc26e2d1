"""Scripts that Apache Flink has run, with what it answered: the shared suite and Nexmark, by the command as users type it.

They live beside the repository. Without them nothing here runs, which in CI is a failure. Every case runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shared_suites import needs_shared
from tests.slices import everyday

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
FOLD = SHARED / "sqlsuite" / "fold.py"
CASES = sorted((SHARED / "sqlsuite" / "cases").glob("*.sql"))
EXPECTED = sorted((SHARED / "nexmark" / "expected").glob("*.json"), key=lambda p: int(p.stem[1:]))

pytestmark = needs_shared(CASES and EXPECTED)


@pytest.mark.parametrize(("parallelism", "batch_rows"), everyday([(3, 7), (1, None), (3, None), (1, 1)], 4, ci=2))
@pytest.mark.parametrize("case", everyday(CASES, 10, ci=2), ids=lambda p: p.stem)
def test_gives_what_flink_gave(case: Path, parallelism: int, batch_rows: int | None, tmp_path: Path) -> None:
    wanted = json.loads(case.with_suffix(".json").read_text())
    run_script(case, {"DATA": SHARED / "sqlsuite" / "data", "OUT": tmp_path}, parallelism, batch_rows)
    said = fold_text(tmp_path, wanted["columns"], case.with_suffix(".json"))
    assert said.startswith("same"), said
    found = re.search(r"from (\d+) changes", said)
    joins = any(word in case.read_text() for word in (" JOIN ", "EXISTS"))  # what they send depends on who comes first
    if parallelism == 1 and not joins:
        assert found is not None
        assert int(found[1]) <= wanted["changes"], "more change records than Flink sent"


@pytest.mark.parametrize("expected", everyday(EXPECTED, 6, ci=2), ids=lambda p: p.stem)
@pytest.mark.parametrize(("parallelism", "batch_rows"), everyday([(2, None), (3, 97)], 2))
def test_nexmark(expected: Path, parallelism: int, batch_rows: int | None, tmp_path: Path) -> None:
    script = ROOT / "pipelines" / "nexmark" / f"{expected.stem}.sql"
    events = {"EVENTS": SHARED / "nexmark" / "events.json", "SIDE_INPUT": SHARED / "nexmark" / "side_input.csv"}
    run_script(script, {**events, "FORMAT": "json", "OUT": tmp_path}, parallelism, batch_rows)
    check_nexmark(expected, tmp_path)


def check_nexmark(expected: Path, written: Path) -> None:
    """The files of a folder hold the recorded result of a query."""
    wanted = json.loads(expected.read_text())
    rows = fold_text(written, _columns(written)).splitlines()
    if "sha256" in wanted:
        text = "\n".join(rows)
        assert (len(rows), hashlib.sha256(text.encode()).hexdigest()) == (wanted["count"], wanted["sha256"])
    else:
        said = fold_text(written, _columns(written), expected)
        assert said.startswith("same"), said


def fold_text(folder: Path, columns: list[str], expected: Path | None = None) -> str:
    """What the suite's own program says of a folder: its rows, or whether they are the expected ones."""
    command = [sys.executable, str(FOLD), str(folder), ",".join(columns), *([str(expected)] if expected else [])]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _columns(folder: Path) -> list[str]:
    """Columns of the written rows, in order; of changes those of the row in them."""
    for file in sorted(folder.rglob("[!._]*")):
        if file.is_file() and file.stat().st_size:
            with file.open() as lines:
                row: dict[str, Any] = json.loads(next(lines))
            return list(row["after"] or row["before"]) if "op" in row else list(row)
    raise AssertionError("nothing was written")


def run_script(
    script: Path, variables: dict[str, Path | str], parallelism: int, batch_rows: int | None, workers: int = 0
) -> None:
    """Run a script to its end by the command line."""
    command = [sys.executable, "-m", "flowrun", "run", str(script), "--quiet", "--parallelism", str(parallelism)]
    command += ["--workers", str(workers)]
    for name, value in variables.items():
        command += ["--var", f"{name}={value}"]
    if batch_rows is not None:
        command += ["--set", f"settings.batch_rows={batch_rows}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
