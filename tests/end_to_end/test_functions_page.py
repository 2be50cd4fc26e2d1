"""docs/functions.md: its functions run, give what they should, alike in all ways to run, and fail with the messages that it shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrun.cli.restoring import locate_state
from flowrun.masking import forget_secrets, learn_secret
from flowrun.runners.compile import compile_pipeline
from flowrun.runtime.checkpoint.compatibility import compare
from tests.cli.test_plan import take
from tests.end_to_end.conftest import Command
from tests.spark.session_fixture import QUICK_RUN

PAGE = (Path(__file__).parents[2] / "docs" / "functions.md").read_text(encoding="utf-8")
SALES: list[dict[str, object]] = [
    {"id": 1, "card": "4711000012345678", "note": " Red wine", "amount": "10.00"},
    {"id": 2, "card": "4711000012345678", "note": None, "amount": "20.00"},
    {"id": 3, "card": "9911000012340000", "note": "tea", "amount": "7.50"},
]
SOURCE = "'connector' = 'filesystem', 'path' = 'sales.json', 'format' = 'json'"
BY_COLUMNS = """
CREATE FUNCTION length AS 'my_functions.length' LANGUAGE PYTHON;
CREATE FUNCTION discounted AS 'my_functions.discounted' LANGUAGE PYTHON;
CREATE FUNCTION tidy AS 'my_functions.tidy' LANGUAGE PYTHON;
CREATE FUNCTION country AS 'my_functions.Country' LANGUAGE PYTHON;
CREATE VIEW columns AS
SELECT id, length(note) AS n, discounted(CAST(amount AS DOUBLE), IF(id < 3, 0.5, CAST(NULL AS DOUBLE))) AS less, tidy(note) AS tidied,
  country(IF(id = 1, 'NL', CAST(NULL AS STRING))) AS country
FROM sales;
"""
EXPECTED = {
    "cards": ["+I[1, ************5678, 11.90]", "+I[2, ************5678, 23.80]", "+I[3, ************0000, 8.92]"],
    "noted": ["+I[1, Red, 3]", "+I[1, wine, 4]", "+I[3, tea, 3]"],
    "means": ["+I[4711000012345678, 15.0]", "+I[9911000012340000, 7.5]"],
    "alerts": ["+I[4711000012345678, 1, 10.0]", "+I[4711000012345678, 2, 20.0]", "+I[9911000012340000, 1, 7.5]"],
    "columns": ["+I[1, 9, 5.0, red wine, Netherlands]", "+I[2, NULL, 10.0, NULL, NULL]", "+I[3, 3, NULL, tea, NULL]"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def write(folder: Path, query: str, sales: list[dict[str, object]] = SALES, module: str = "") -> Path:
    (folder / "my_functions.py").write_text("\n".join(blocks("python")[:-1]) + module)
    (folder / "sales.json").write_text("\n".join(map(json.dumps, sales)))
    script = folder / "page.sql"
    script.write_text("\n".join(blocks("sql")) + BY_COLUMNS + query)
    return script


@pytest.mark.parametrize("view", EXPECTED)
def test_the_functions_of_the_page(
    view: str, flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = flowrun("run", write(tmp_path, f"SELECT * FROM {view};"), "--quiet")
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == EXPECTED[view]


ALL = "\n".join(
    f"CREATE TABLE s_{view} ({columns}) WITH ('connector' = 'filesystem', 'path' = 'out/{view}', 'format' = 'json');\n"
    f"INSERT INTO s_{view} SELECT * FROM {view};"
    for view, columns in {
        "cards": "id BIGINT, card STRING, gross DECIMAL(12, 2)",
        "noted": "id BIGINT, word STRING, size BIGINT",
        "alerts": "card STRING, sales BIGINT, largest DOUBLE",
        "columns": "id BIGINT, n INT, less DOUBLE, tidied STRING, country STRING",
    }.items()
)


@pytest.mark.exhaustive
def test_worker_processes_and_spark_give_the_same(tmp_path: Path) -> None:
    script = write(tmp_path, ALL)
    for command in (("verify", script, *QUICK_RUN), ("run", script, "--quiet", "--workers", "2", "--parallelism", "2")):
        ran = subprocess.run(
            [sys.executable, "-m", "flowrun", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
    written = (tmp_path / "out" / "columns").glob("[!._]*")
    rows = [json.loads(line) for f in written for line in f.read_text().splitlines()]
    assert sorted(row["tidied"] or "" for row in rows) == ["", "red wine", "tea"]


def test_a_row_that_fails_is_named_as_the_page_shows(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sales = [*SALES[:2], {**SALES[2], "card": None}]
    ran = flowrun("run", write(tmp_path, "SELECT * FROM cards;", sales), "--quiet")
    assert ran.code == 1
    shown = next(b for b in blocks("text") if "function mask failed" in b)
    assert shown.strip() in re.sub(r"/\S*/my_functions", "/shop/my_functions", ran.err)


def test_an_annotation_without_a_type_is_refused_as_the_page_shows(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = "\n".join(["CREATE FUNCTION angle AS 'odd_functions.angle' LANGUAGE PYTHON;", "SELECT * FROM cards;"])
    script = write(tmp_path, made)
    (tmp_path / "odd_functions.py").write_text("\n" * 8 + "def angle(at: complex) -> float: ...\n")
    ran = flowrun("validate", script)
    assert ran.code == 2
    message, hint = next(b for b in blocks("text") if "has no SQL type" in b).splitlines()
    said = re.sub(r"/\S*/odd_functions", "/shop/odd_functions", ran.err)
    assert message.removeprefix("error: ").replace("my_functions", "odd_functions") in said
    assert hint.strip() in said


def test_plan_says_what_the_page_says_of_a_changed_aggregate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    query = "CREATE TABLE out (card STRING, average DOUBLE) WITH ('connector' = 'blackhole');\nINSERT INTO out SELECT * FROM means;"
    script = write(tmp_path, query)
    generated = script.read_text().replace(SOURCE, "'connector' = 'datagen', 'number-of-rows' = '10'")
    script.write_text(generated)
    kept = take(tmp_path / "kept", compile_pipeline(script))
    changed = tmp_path / "later_functions.py"
    changed.write_text("\n".join([*blocks("python")[:-1], blocks("python")[-1]]))
    script.write_text(generated.replace("'my_functions.", "'later_functions."))
    found = compare(locate_state(str(kept), None).metadata, compile_pipeline(script).job_graph)
    (line,) = (
        line for line in next(b for b in blocks("text") if "migrate()" in b).splitlines() if "by migrate" in line
    )
    assert not found.all_problems
    assert line.strip() in "\n".join(found.lines(False))


def test_resources_are_released_after_a_failure(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = """

class Model:
    def open(self) -> None:
        with open("log.txt", "a") as log:
            log.write("open\\n")

    def __call__(self, id: int) -> int:
        return 6 // (3 - id)

    def close(self) -> None:
        with open("log.txt", "a") as log:
            log.write("close\\n")
"""
    made = "CREATE FUNCTION model AS 'my_functions.Model' LANGUAGE PYTHON;\nSELECT model(id), model(id + 0) FROM sales WHERE model(id) > 0;"
    ran = flowrun("run", write(tmp_path, made, module=module), "--quiet")
    assert ran.code == 1
    assert "function model failed: ZeroDivisionError" in ran.err
    assert "it was given {id: 3}" in ran.err
    assert (tmp_path / "log.txt").read_text().split() == ["open", "close"]


@pytest.fixture
def secret() -> Iterator[str]:
    value = str(SALES[2]["card"])
    learn_secret(value)
    yield value
    forget_secrets()


def test_secrets_in_rows_are_masked(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.chdir(tmp_path)
    module = "\n\ndef refuses(card: str) -> str:\n    raise ValueError(card) if card.startswith('99') else KeyError\n"
    made = "CREATE FUNCTION refuses AS 'my_functions.refuses' LANGUAGE PYTHON;\nSELECT refuses(card) FROM sales WHERE id = 3;"
    ran = flowrun("run", write(tmp_path, made, module=module), "--quiet")
    assert ran.code == 1
    assert "function refuses failed: ValueError: ***" in ran.err
    assert "{card: '***'}" in ran.err
    assert secret not in ran.err
