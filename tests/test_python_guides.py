"""The Python of docs/python.md and docs/storage.md runs, and gives what the pages say."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from flowrun.connectors.filesystem.table_path import TablePath

DOCS = Path(__file__).parent.parent / "docs"


def python_of(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(blocks: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run blocks as one program, in a module that tasks can import from."""
    module = types.ModuleType("page_of_the_guide")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks:
        exec(compile(block, "page", "exec"), module.__dict__)
    return module.__dict__


def test_programs_and_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("pipelines", "samples"):
        (tmp_path / folder).symlink_to(DOCS.parent / folder)
    made = run(python_of("python.md"), monkeypatch)
    assert made["final"].to_pylist() == [{"user_id": "u1", "orders": 2, "total": 12.5}]
    assert made["running"] == [{"user_id": "u1", "spent": 5.0}, {"user_id": "u1", "spent": 12.5}]
    assert [(row["spread"], row["windows"]) for row in made["spread"]] == [(1.5, 1), (0.0, 2), (0.5, 1)]
    assert sorted(row["amount"] for row in made["with_names"]) == [5.0, 7.5]
    assert {(row["user_id"], row["country"]) for row in made["country"]} >= {("u1", "NL")}
    assert made["above"] == [{"user_id": "u1", "spent": 12.5}]
    assert made["turns"] == ["finished"] * 3
    assert made["ended"].state.value == "canceled"


def test_uris_of_stores(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(python_of("storage.md")[:1], monkeypatch)
    assert capsys.readouterr().out == "eu-central-1 shop/orders\n"
    for uri in re.findall(r'path: "(s3://[^"]+)"', (DOCS / "storage.md").read_text(encoding="utf-8")):
        filesystem, path = TablePath(uri).open()
        assert (filesystem.type_name, path) in (("s3", "shop/orders"), ("s3", "shop/out"))
        assert not TablePath(uri).is_glob
        folder, _, parameters = uri.rpartition("?")
        pattern = TablePath(f"{folder}2024-*/part-?.parquet?{parameters}")
        assert pattern.is_glob
        assert pattern.open()[1] == path
        assert pattern.glob_pattern().fullmatch(f"{path}/2024-05/part-7.parquet")
        assert not pattern.glob_pattern().fullmatch(f"{path}/2024-05/part-17.parquet")
