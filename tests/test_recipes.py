"""Every recipe of docs/cookbook.md, and every query of docs/migration, runs and gives the rows that were recorded for it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from flowrun.cli.main import cli
from flowrun.errors import PipelineError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.guide_rows import check_recorded, file_rows, printed_rows

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"(<!-- (\w+)[^\n]*-->\n)?^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OF_THE_RUN = re.compile(r"\b[0-9a-f]{12,}\b|\d{4}-\d\d-\d\d[ T][\d:]+\.\d{3}Z?")
"""Ids and times that commands print."""
_OTHERS = {"java"}
"""Languages of other systems, which pages show beside flowrun's."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block, and the word of the comment in front of it."""

    said: str
    language: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """A section of a page."""

    page: str
    name: str
    fences: tuple[Fence, ...]

    def __str__(self) -> str:
        return f"{Path(self.page).stem}: {self.name}"


def recipes(page: str) -> tuple[str, list[Recipe]]:
    """The tables of a page, and its sections with blocks."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    tables, found = "", []
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        fences = tuple(Fence(said, *rest) for _, said, *rest in _FENCE.findall(section))
        tables += "".join(f.text for f in fences if f.said == "tables")
        fences = tuple(f for f in fences if f.said != "tables" and f.language not in _OTHERS)
        if fences:
            found.append(Recipe(page, section.splitlines()[0], fences))
    return tables, found


PAGES = {page: recipes(page) for page in ("cookbook.md", "migration/flink-sql.md", "migration/kafka-streams.md")}
ALL = [recipe for _, found in PAGES.values() for recipe in found]


@pytest.mark.parametrize("recipe", ALL, ids=str)
def test_recipe(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("samples", "pipelines"):
        (tmp_path / name).symlink_to(ROOT / name)
    tables = PAGES[recipe.page][0]
    rows: Counter[str] = Counter()
    for number, fence in enumerate(recipe.fences):
        if fence.language == "python":
            title = fence.title or re.findall(r"# (\w+\.py)", fence.text)[0]
            (tmp_path / title).write_text(fence.text, encoding="utf-8")
        elif fence.language == "json":
            (tmp_path / fence.title).parent.mkdir(parents=True)
            (tmp_path / fence.title).write_text(fence.text, encoding="utf-8")
        elif fence.language == "sh":
            capsys.readouterr()
            for line in fence.text.splitlines():
                rows.update(commanded(line, tmp_path))
        else:
            rows += ran(fence, tables, tmp_path / (fence.title or f"recipe-{number}.{fence.language}"))
            rows += printed_rows(capsys.readouterr().out.splitlines())
    check_recorded("recipes", str(recipe), rows + rows_of_files(tmp_path / "out"))


def ran(fence: Fence, tables: str, path: Path) -> Counter[str]:
    """Compile a text and run it, unless the page says that it is only validated; gives its answers."""
    variables = {"CUSTOMERS": customers(path.parent)} if "CUSTOMERS" in fence.text else {}
    text = re.sub(r"^  'username'.*\n", "", fence.text, flags=re.MULTILINE) if variables else fence.text
    path.write_text((tables if fence.language == "sql" else "") + text, encoding="utf-8")
    compiled = compile_pipeline(path, variables, {})
    if fence.said == "validated":
        return Counter(f"{sink.name}" for sink in compiled.job_graph.vertices)
    if compiled.runs:
        run_embedded(compiled.job_graph)
    return Counter(line for text in compiled.outputs for line in text.splitlines())


def commanded(line: str, folder: Path) -> list[str]:
    """What a command prints, without what differs in each run."""
    name, *arguments = shlex.split(line)
    assert name == "flowrun"
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return [" ".join(_OF_THE_RUN.sub("…", text.replace(str(folder), ".")).split()) for text in done.output.splitlines()]


def customers(folder: Path) -> str:
    """A database with some of the users of the samples."""
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE customers AS SELECT 'u' || i AS user_id, 'Name ' || i AS name, 'gold' AS tier FROM range(5) t (i)"
        )
    return f"jdbc:duckdb:{folder / 'shop.duckdb'};access_mode=READ_ONLY"


def rows_of_files(folder: Path) -> Counter[str]:
    """The rows below a folder: of text files, of Delta tables, and of other Parquet files how many there are."""
    rows: Counter[str] = Counter()
    for log in sorted(folder.rglob("_delta_log")):
        table = DeltaTable(log.parent).to_pyarrow_table().to_pylist()
        rows.update(f"{log.parent.relative_to(folder)}: {row}" for row in table)
        shutil.rmtree(log.parent)
    for file in sorted(folder.rglob("*.parquet")):
        rows[f"{file.parent.relative_to(folder)}: Parquet"] += duckdb.read_parquet(str(file)).shape[0]
        file.unlink()
    if (folder / "letters").exists():
        shutil.rmtree(folder / "letters")  # they tell of the run; `flowrun dead-letters list` shows them
    return rows + file_rows(folder)


def test_there_are_recipes() -> None:
    assert len(PAGES["cookbook.md"][1]) >= 12
    assert all(found for _, found in PAGES.values())


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("ALTER", "ALTER TABLE orders ADD note STRING;"),
        ("COMPILE PLAN", "COMPILE PLAN 'plan.json' FOR SELECT 1;"),
        ("LANGUAGE JAVA", "CREATE FUNCTION f AS 'a.B' LANGUAGE JAVA;"),
        ("EXECUTE PLAN", "EXECUTE PLAN 'plan.json';"),
        ("CURRENT_WATERMARK", "SELECT CURRENT_WATERMARK(ts) FROM orders;"),
    ],
)
def test_what_the_page_for_those_from_flink_calls_an_error_is_one(name: str, statement: str, tmp_path: Path) -> None:
    assert name in (ROOT / "docs" / "migration" / "flink-sql.md").read_text(encoding="utf-8")
    script = tmp_path / "script.sql"
    script.write_text(PAGES["migration/flink-sql.md"][0] + statement, encoding="utf-8")
    with pytest.raises(PipelineError):
        compile_pipeline(script, {"SAMPLES": str(ROOT / "samples")}, {})
