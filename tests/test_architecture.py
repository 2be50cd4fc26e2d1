"""docs/architecture.md: its table names every system once, and files, packages and tests that are there."""

from __future__ import annotations

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
