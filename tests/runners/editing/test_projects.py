"""What an editor is told of pipelines in a project, and of the document of the project itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.runners.editing.analysis import analyse

PROJECT = """tables: [tables.sql]
sources:
  orders: {connector: datagen, schema: {id: BIGINT}, number-of-rows: "${ROWS}"}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "flowrun.yaml").write_text(PROJECT)
    (tmp_path / "tables.sql").write_text("CREATE TABLE paid (id BIGINT) WITH ('connector' = 'datagen');")
    return tmp_path


def test_what_the_project_declares_is_known(root: Path) -> None:
    script = analyse(root / "p.sql", "SELECT id FROM paid")
    assert script.problems == ()
    assert script.tables["paid"].names == ("id",)
    (root / "flowrun.yaml").write_text(PROJECT.replace("${ROWS}", "3"))
    pipeline = analyse(root / "p.yaml", "sinks: {out: {from: orders, connector: print}}")
    assert pipeline.problems == ()
    assert pipeline.tables["orders"].names == ("id",)


def test_what_is_wrong_elsewhere_in_the_project_is_not_told_here(root: Path) -> None:
    pipeline = analyse(root / "p.yaml", "sinks: {out: {from: orders, connector: print}}")
    assert (pipeline.problems, pipeline.is_right) == ((), False), "ROWS has no value"


def test_the_document_of_a_project_is_checked_as_one(root: Path) -> None:
    assert analyse(root / "flowrun.yaml", PROJECT).is_right
    (problem,) = analyse(root / "flowrun.yaml", PROJECT + "environmnts: {}\n").problems
    assert problem.hint == "did you mean 'environments' or 'default_environment'?"
    assert problem.location is not None
    assert problem.location.line == 4
