"""Every example of docs/sql.md gives the rows that were recorded for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.running import SAMPLES
from tests.guide_rows import check_recorded, file_rows, printed_rows

PAGE = (Path(__file__).parent.parent / "docs" / "sql.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TABLES, *EXAMPLES = BLOCKS
# The samples have rows that are later than the page allows, and which of them a join still finds depends on who comes first.
PATIENT_TABLES = TABLES.replace("INTERVAL '5' SECOND", "INTERVAL '1' HOUR")
FUNCTIONS = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: " ".join(text.split())[:40])
def test_example(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    script = tmp_path / "script.sql"
    script.write_text(PATIENT_TABLES + example, encoding="utf-8")
    variables = {"SAMPLES": str(SAMPLES), "OUT": str(tmp_path / "out")}
    compiled = compile_pipeline(script, variables, {})
    if compiled.runs:
        run_embedded(compiled.job_graph)
    said = [line.replace(str(SAMPLES), "samples") for text in compiled.outputs for line in text.splitlines()]
    rows = printed_rows([*said, *capsys.readouterr().out.splitlines()]) + file_rows(tmp_path / "out")
    check_recorded("sql_guide", " ".join(example.split())[:100], rows)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 10
