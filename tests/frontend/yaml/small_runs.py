"""Small pipelines run from JSON rows in to folded rows out."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.lifecycle import JobState


def write_json(folder: Path, name: str, rows: Sequence[Mapping[str, object]]) -> None:
    """A JSON-lines file `name` below the folder."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / name / "rows.json").write_text(text, encoding="utf-8")


def folded(folder: Path) -> Counter[str]:
    """The rows that are left of a debezium-json sink's changes.

    Raises:
        AssertionError: a row is taken back that was not there.
    """
    rows: Counter[str] = Counter()
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))):
        for line in file.read_text(encoding="utf-8").splitlines():
            change = json.loads(line)
            before, after = change["before"], change["after"]
            if before is not None:
                rows[_shown(before)] -= 1
            if after is not None:
                rows[_shown(after)] += 1
    assert all(n >= 0 for n in rows.values()), f"rows are taken back that were not there: {rows}"
    return +rows


def _shown(row: dict[str, object]) -> str:
    return " ".join("-" if v is None else str(v) for v in row.values())


def results(folder: Path, document: str, parallelism: int = 1, **tables: Sequence[Mapping[str, object]]) -> list[str]:
    """Sorted rows of the sink of a document, which writes to `${DIR}/out` as debezium-json. `tables` are its input files below `${DIR}`."""
    for name, rows in tables.items():
        write_json(folder, name, rows)
    path = folder / "pipeline.yaml"
    path.write_text(textwrap.dedent(document), encoding="utf-8")
    compiled = compile_pipeline(path, {"DIR": str(folder)}, {"settings.parallelism": str(parallelism)})
    assert run_embedded(compiled.job_graph).state is JobState.FINISHED
    return sorted(folded(folder / "out").elements())
