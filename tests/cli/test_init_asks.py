"""`flowrun init` without arguments asks, and asks again where an answer leads to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flowrun.cli.init import init


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    return tmp_path


def asked(*answers: str) -> Result:
    return CliRunner().invoke(init, [], input="".join(f"{a}\n" for a in answers))


def test_nothing_is_the_example() -> None:
    result = asked("project", "")
    assert result.exit_code == 0, result.output
    assert "cd project && flowrun run pipeline.yaml" in result.output
    assert Path("project/functions.py").exists()


def test_data_after_a_wrong_path() -> None:
    Path("rows.json").write_text(json.dumps({"id": 1}) + "\n")
    result = asked("", "row.json", "rows.json")
    assert result.exit_code == 0, result.output
    assert "did you mean 'rows.json'?" in result.output
    assert "path: rows.json" in Path("pipeline.yaml").read_text()
    assert Path(".github/workflows/pipelines.yml").exists()
    assert Path(".vscode/settings.json").exists()
    assert Path("tests/pipeline.test.yaml").exists()


def test_a_server_is_asked_with_options_and_a_password() -> None:
    answers = ("p", "postgresql://ann@127.0.0.1:1/shop/orders", "secret-word", "nonsense", "url=x", "", "")
    result = asked(*answers)
    assert result.exit_code == 0, result.output
    assert "'nonsense' is not of the form NAME=VALUE" in result.output
    assert "secret-word" not in result.output
    assert "error: " in result.output
    assert Path("p/functions.py").exists()


def test_nobody_answers(folder: Path) -> None:
    result = CliRunner().invoke(init, [], input="")
    assert result.exit_code == 2
    assert "flowrun init DIR --from PLACE" in result.output
    assert list(folder.iterdir()) == []


def test_a_directory_that_is_taken() -> None:
    Path("pipeline.yaml").write_text("mine")
    result = asked("", "")
    assert result.exit_code != 0
    assert "already exist" in str(result.exception)
    assert Path("pipeline.yaml").read_text() == "mine"
