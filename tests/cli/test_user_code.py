"""Which pipelines are known to run no Python code of users."""

from pathlib import Path

import pytest

from flowrun.cli.user_code import may_run_user_code

QUERY = "SELECT a FROM t"


def _script(folder: Path, text: str, name: str = "script.sql") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_script_without_functions_runs_no_code_of_users(tmp_path: Path) -> None:
    assert not may_run_user_code(_script(tmp_path, QUERY), ["A=1"])


def test_a_script_in_a_project_may(tmp_path: Path) -> None:
    (tmp_path / "flowrun.yaml").write_text("functions: {f: 'm:f'}")
    assert may_run_user_code(_script(tmp_path, QUERY), [])


@pytest.mark.parametrize("text", ["CREATE FUNCTION f AS 'm:f' LANGUAGE PYTHON", "create temporary function f as 'm:f'"])
def test_a_script_with_functions_may(tmp_path: Path, text: str) -> None:
    assert may_run_user_code(_script(tmp_path, text), [])


def test_a_variable_may_bring_a_function(tmp_path: Path) -> None:
    assert may_run_user_code(_script(tmp_path, "${STATEMENT}"), ["STATEMENT=CREATE FUNCTION f AS 'm:f'"])


def test_yaml_may(tmp_path: Path) -> None:
    assert may_run_user_code(_script(tmp_path, "pipeline: {}", "pipeline.yaml"), [])


def test_a_file_that_cannot_be_read_may(tmp_path: Path) -> None:
    assert may_run_user_code(tmp_path / "missing.sql", [])
