"""docs/architecture.md: its tables name every system once, files and tests that are there, and what packages import."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SYSTEMS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
SYSTEMS_OF_THE_CLUSTER = {"21"}
"""What has neither code nor tests yet."""


def test_there_is_a_row_for_each_system() -> None:
    assert [int(row[0]) for row in SYSTEMS] == list(range(1, 29))


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: row[0])
def test_what_a_row_names_is_there(row: list[str]) -> None:
    number, _, places, *shown = row
    if number in SYSTEMS_OF_THE_CLUSTER:
        return
    homes = re.findall(r"`([\w/.]+)`", places)
    tests = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", shown[0])
    assert homes
    assert tests
    assert [home for home in homes if not (ROOT / "flowrun" / home).exists()] == []
    for path, name in tests:
        place = ROOT / path
        assert place.exists(), path
        if place.is_dir():
            assert list(place.rglob("test_*.py")), path
        if name:
            assert f"def {name}(" in place.read_text(encoding="utf-8"), name


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def imported_packages(package: Path) -> set[str]:
    """The other packages of flowrun that a package imports when it runs, in functions too."""
    found = set()
    for path in [package.with_suffix(".py")] if not package.is_dir() else package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types_only = {
            id(inner)
            for statement in ast.walk(tree)
            if isinstance(statement, ast.If)
            and isinstance(statement.test, ast.Name)
            and statement.test.id == "TYPE_CHECKING"
            for inner in ast.walk(statement)
        }
        for statement in ast.walk(tree):
            if isinstance(statement, ast.ImportFrom) and statement.module and id(statement) not in for_types_only:
                root, *rest = statement.module.split(".")
                if root == "flowrun":
                    found |= {rest[0]} if rest else {a.name for a in statement.names if not a.name.startswith("__")}
    return found - {package.name}


@pytest.mark.exhaustive
def test_packages_import_what_the_table_says() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section("The house"), re.MULTILINE)
    said = {package: set(re.findall(r"`(\w+)`", imports)) for package, imports in rows}
    there = {
        path.stem
        for path in (ROOT / "flowrun").iterdir()
        if not path.name.startswith("_") and (path.is_dir() or path.suffix == ".py")
    }
    assert said == {package: imported_packages(ROOT / "flowrun" / package) for package in there}


def test_the_modules_that_texts_pass_through_are_there() -> None:
    for row in re.findall(r"^\| [\w ,]+ \| (`\w+/.*) \|$", section("The house"), re.MULTILINE):
        folder = ROOT / "flowrun"
        for name in re.findall(r"`([\w/]+\.py)`", row):
            place = ROOT / "flowrun" / name if "/" in name else folder / name
            assert place.exists(), place
            folder = place.parent
