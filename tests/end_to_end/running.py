"""Runs pipelines as the command line does, in this process, and reads what they wrote."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from flowrun.core.row_errors import LETTER_COLUMNS_OF_A_RUN
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.job_status import JobResult

ROOT = Path(__file__).parent.parent.parent
PIPELINES = ROOT / "pipelines"
SAMPLES = ROOT / "samples"


def run_file(path: Path, variables: Mapping[str, object] | None = None, **settings: object) -> JobResult:
    """Run a pipeline file; `settings` override those of the file."""
    given = {name: str(value) for name, value in (variables or {}).items()}
    overrides = {f"settings.{name}": str(value) for name, value in settings.items()}
    return run_embedded(compile_pipeline(path, given, overrides).job_graph)


def run_text(folder: Path, text: str, variables: Mapping[str, object] | None = None, **settings: object) -> JobResult:
    """Run a pipeline given as text; the file is kept in `folder`."""
    path = folder / "pipeline.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return run_file(path, variables, **settings)


def written_files(folder: Path) -> list[Path]:
    """The visible files below a folder."""
    hidden = "._"
    return sorted(
        f
        for f in folder.rglob("*")
        if f.is_file() and not any(part[0] in hidden for part in f.relative_to(folder).parts)
    )


def json_rows(folder: Path) -> list[dict[str, object]]:
    """All rows of JSON-lines files below a folder."""
    return [json.loads(line) for f in written_files(folder) for line in f.read_text(encoding="utf-8").splitlines()]


def letters_in(folder: Path) -> list[dict[str, object]]:
    """The dead letters below a folder, without what differs from run to run."""
    found = json_rows(folder)
    assert all(letter["time"] for letter in found)
    return [{k: v for k, v in letter.items() if k not in LETTER_COLUMNS_OF_A_RUN} for letter in found]


def bag(rows: list[dict[str, object]]) -> Counter[str]:
    """Rows as a multiset that compares independently of order."""
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)
