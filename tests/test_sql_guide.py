"""Every example of docs/sql.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.running import SAMPLES

PAGE = (Path(__file__).parent.parent / "docs" / "sql.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TABLES, *EXAMPLES = BLOCKS
FUNCTIONS = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: " ".join(text.split())[:40])
def test_example(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    script = tmp_path / "script.sql"
    script.write_text(TABLES + example, encoding="utf-8")
    variables = {"SAMPLES": str(SAMPLES), "OUT": str(tmp_path / "out")}
    compiled = compile_pipeline(script, variables, {})
    if compiled.runs:
        run_embedded(compiled.job_graph)
    assert compiled.outputs or capsys.readouterr().out or any((tmp_path / "out").rglob("*.*")), "it gives something"


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 10
