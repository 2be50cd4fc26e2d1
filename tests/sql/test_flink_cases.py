"""Scripts that Apache Flink has run, with what it answered: the shared suite and Nexmark, by the command as users type it.

They live beside the repository; without them nothing here runs. Every case runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
CASES = sorted((SHARED / "sqlsuite" / "cases").glob("*.sql"))
EXPECTED = sorted((SHARED / "nexmark" / "expected").glob("*.json"), key=lambda p: int(p.stem[1:]))
sys.path.insert(0, str(SHARED / "sqlsuite"))

pytestmark = pytest.mark.skipif(not CASES, reason="the shared suites are not beside the repository")


@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, None), (3, None), (1, 1), (3, 7)])
@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_gives_what_flink_gave(case: Path, parallelism: int, batch_rows: int | None, tmp_path: Path) -> None:
    from fold import fold, norm  # type: ignore[import-not-found]

    wanted = json.loads(case.with_suffix(".json").read_text())
    _run(case, {"DATA": SHARED / "sqlsuite" / "data", "OUT": tmp_path}, parallelism, batch_rows)
    rows, changes, negative = fold(str(tmp_path), wanted["columns"])
    assert negative == []
    expected = Counter(json.dumps([norm(x) for x in json.loads(r)]) for r in wanted["rows"])
    assert Counter(rows) == expected
    if parallelism == 1 and not any(word in case.read_text() for word in (" JOIN ", "EXISTS")):  # joins depend on who comes first
        assert changes <= wanted["changes"], "more change records than Flink sent"


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda p: p.stem)
@pytest.mark.parametrize(("parallelism", "batch_rows"), [(2, None), (3, 97)])
def test_nexmark(expected: Path, parallelism: int, batch_rows: int | None, tmp_path: Path) -> None:
    from fold import fold, norm

    script = ROOT / "pipelines" / "nexmark" / f"{expected.stem}.sql"
    events = {"EVENTS": SHARED / "nexmark" / "events.json", "SIDE_INPUT": SHARED / "nexmark" / "side_input.csv"}
    _run(script, {**events, "FORMAT": "json", "OUT": tmp_path}, parallelism, batch_rows)
    wanted = json.loads(expected.read_text())
    rows, _, negative = fold(str(tmp_path), _columns(tmp_path))
    assert negative == []
    if "sha256" in wanted:
        text = "\n".join(sorted(rows))
        assert (len(rows), hashlib.sha256(text.encode()).hexdigest()) == (wanted["count"], wanted["sha256"])
    else:
        listed = [r if isinstance(r, list) else json.loads(r) for r in wanted["rows"]]
        assert Counter(rows) == Counter(json.dumps([norm(x) for x in r]) for r in listed)


def _columns(folder: Path) -> list[str]:
    """Columns of the written rows, in order; of changes those of the row in them."""
    for file in sorted(folder.rglob("[!._]*")):
        if file.is_file() and file.stat().st_size:
            with file.open() as lines:
                row: dict[str, Any] = json.loads(next(lines))
            return list(row["after"] or row["before"]) if "op" in row else list(row)
    raise AssertionError("nothing was written")


def _run(script: Path, variables: dict[str, Path | str], parallelism: int, batch_rows: int | None) -> None:
    command = [sys.executable, "-m", "flowrun", "run", str(script), "--quiet", "--parallelism", str(parallelism)]
    for name, value in variables.items():
        command += ["--var", f"{name}={value}"]
    if batch_rows is not None:
        command += ["--set", f"settings.batch_rows={batch_rows}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
