"""Which pipelines are known to run no Python code of users."""

from pathlib import Path

import pytest

from flowrun.cli.user_code import may_run_user_code, may_tests_run_user_code

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


YAML = """
sources:
  a: {connector: filesystem, path: "${IN:-in/}", format: json, schema: {n: BIGINT, at: TIMESTAMP(3)}}
steps:
  b: {from: a, filter: "at > TIMESTAMP '2024-01-01 10:00:00'", STEP}
"""


def test_yaml_without_references_runs_no_code_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _script(tmp_path, YAML.replace(", STEP", ""), "pipeline.yaml")
    assert not may_run_user_code(file, ["A=1"])
    assert may_run_user_code(file, ["steps.b.map.function=m:f"])
    monkeypatch.setenv("IN", "m:f")
    assert may_run_user_code(file, [])


@pytest.mark.parametrize(
    "step",
    [
        'map: {function: "m:f"}',
        'process: "a.b:C"',
        "function: m:f",
        'function: "${M}:f"',
        'function: "m:${F}"',
        r'function: "m\x3af"',
        '"function":"m:f"',
    ],
)
def test_yaml_with_references_may(tmp_path: Path, step: str) -> None:
    assert may_run_user_code(_script(tmp_path, YAML.replace("STEP", step), "pipeline.yaml"), [])


TEST = """
pipeline: pipeline.yaml  # beside it
tests:
  - {name: a, given: {a: [{n: 1, at: 2024-01-01T10:00:05}]}, expect: {b: []}REPLACE}
"""


def test_tests_may_if_they_or_their_pipeline_may(tmp_path: Path) -> None:
    _script(tmp_path, YAML.replace(", STEP", ""), "pipeline.yaml")
    plain = _script(tmp_path, TEST.replace("REPLACE", ""), "p.test.yaml")
    assert not may_tests_run_user_code([plain])
    replaced = _script(tmp_path, TEST.replace("REPLACE", ', replace: {functions: {"m:f": "m:g"}}'), "q.test.yaml")
    assert may_tests_run_user_code([plain, replaced])
    _script(tmp_path, YAML.replace("STEP", "process: m:C"), "pipeline.yaml")
    assert may_tests_run_user_code([plain])
    assert may_tests_run_user_code([tmp_path / "none.test.yaml"])
    assert may_tests_run_user_code([_script(tmp_path, TEST.replace("pipeline.yaml", "'p q.yaml'"), "r.test.yaml")])


def test_a_file_that_cannot_be_read_may(tmp_path: Path) -> None:
    assert may_run_user_code(tmp_path / "missing.sql", [])
