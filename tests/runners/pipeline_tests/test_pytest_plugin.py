"""Files of tests in pytest: each test is an item, failures read as those of `flowrun test`, broken files are errors of collection."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

PLUGIN = "flowrun.runners.pipeline_tests.pytest_plugin"
ROOT = Path(__file__).parents[3]
PIPELINE = """
sources:
  clicks: {connector: datagen, schema: {user: STRING}}
steps:
  known: {from: clicks, filter: user IS NOT NULL}
sinks:
  out: {from: known, connector: blackhole}
"""
TESTS = """
pipeline: p.yaml
tests:
  - {name: a name stays, given: {clicks: [{user: ann}, {}]}, expect: {out: [{user: ann}]}}
  - {name: nothing stays, given: {clicks: [{user: bob}]}, expect: {out: []}}
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", PLUGIN, *arguments]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # it is loaded once, whether it is installed or not
    ended = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.exhaustive
def test_each_test_is_an_item_and_failures_read_as_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "p.test.yaml").write_text(TESTS)
    (tmp_path / "other.yaml").write_text("nothing")
    (tmp_path / "broken.test.yaml").write_text("pipeline: q.yaml\ntests: [{name: a, given: {x: []}, late: 0}]\n")
    shown = run_pytest(tmp_path, "-v", "--continue-on-collection-errors")
    assert "p.test.yaml::a name stays PASSED" in shown
    assert "p.test.yaml::nothing stays FAILED" in shown
    assert ": sink 'out' has other rows than expected" in shown
    assert "    + bob" in shown
    assert "broken.test.yaml:1:11: error: there is no pipeline 'q.yaml'" in shown
    assert "1 failed, 1 passed, 1 error" in shown
    assert "Traceback" not in shown
    assert "1 passed, 1 deselected" in run_pytest(tmp_path, "-k", "stays and name", "p.test.yaml")


def test_the_plug_in_is_installed_and_imports_nothing_before_there_is_such_a_file() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert named == {"flowrun": PLUGIN}
    assert callable(import_module(PLUGIN).pytest_collect_file)
    code = f"import sys, {PLUGIN}; print([m for m in ('pyarrow', 'yaml', 'numpy') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
