"""The examples of the pages on lake tables run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded

pytestmark = pytest.mark.exhaustive
PAGES = Path(__file__).parents[2] / "docs" / "connectors"


def run(folder: Path, text: str) -> None:
    script = folder / "script.sql"
    script.write_text(text, encoding="utf-8")
    run_embedded(compile_pipeline(script, {}, {}).job_graph)


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_the_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(
        r"^```sql\n(.*?)^```", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    run(tmp_path, example)
    tables = "".join(f"{t};" for t in re.findall(r"CREATE TABLE (?:ledger|balances).*?\)(?=;)", example, re.DOTALL))
    run(tmp_path, f"{tables} SELECT COUNT(*), COUNT(DISTINCT id) FROM ledger;")
    run(tmp_path, f"{tables} SELECT SUM(payments) FROM balances;")
    shown = capsys.readouterr().out.splitlines()
    assert "[1000, 1000]" in shown[-2]
    assert "[1000]" in shown[-1]
