"""The example of the page on formats runs as it stands there, and the page names every format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.connectors.formats.registry import format_names
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded

PAGE = (Path(__file__).parents[2] / "docs" / "connectors" / "formats.md").read_text(encoding="utf-8")


def test_every_format_is_on_the_page() -> None:
    table = PAGE[: PAGE.index("```sql")]
    assert [name for name in format_names() if f"`{name}`" not in table] == []


@pytest.mark.exhaustive
def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    script = tmp_path / "script.sql"
    script.write_text(example, encoding="utf-8")
    run_embedded(compile_pipeline(script, {}, {}).job_graph)
    tables = "".join(f"{t};" for t in re.findall(r"CREATE TABLE (?:kept|copied).*?\)(?=;)", example, re.DOTALL))
    query = "SELECT COUNT(*), COUNT(DISTINCT kept.id) FROM kept JOIN copied ON kept.id = copied.id;"
    script.write_text(f"{tables} {query}", encoding="utf-8")
    run_embedded(compile_pipeline(script, {}, {}).job_graph)
    assert "[1000, 1000]" in capsys.readouterr().out.splitlines()[-1]
