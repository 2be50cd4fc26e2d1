"""Which texts are flowrun's, and what an editor is told of those that are no pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.runners.editing.analysis import analyse
from flowrun.runners.editing.meaning import about
from flowrun.runners.editing.yaml_words import place_in, yaml_proposals

TESTS = "pipeline: a.yaml\ntests:\n  - name: one\n    steps: []\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ci.yml", "on: push\njobs: {a: {runs-on: ubuntu-latest}}\n"),
        ("compose.yaml", "name: shop\nservices:\n  sources: {image: x}\n"),
        ("azure.yml", "trigger: [main]\nsteps:\n- script: echo\n"),
        ("playbook.yaml", "- hosts: all\n  tasks: []\n"),
        ("broken.yaml", "kind: [\n"),
    ],
)
def test_of_documents_of_others_nothing_is_told(name: str, text: str) -> None:
    assert analyse(Path(name), text).problems == ()
    assert place_in(Path(name), text, 0, 1) is None
    assert about(Path(name), text, 0, 1, analyse(Path(name), text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: a\n",
        "nme: a\nsources: {}\n",
        "sinks:\n  o: [\n",
        "# a comment\nsteps:\n  s: {}\n",
        "{name: a, steps: {}}\n",
        "'sources': {}\n",
    ],
)
def test_pipelines_are_told_what_is_wrong_from_their_first_key(text: str) -> None:
    assert analyse(Path("a.yaml"), text).problems


def test_a_file_of_tests_is_checked_as_one() -> None:
    path = Path("a.test.yaml")
    found = [(str(p.location), p.message) for p in analyse(path, TESTS.replace("steps", "stps")).problems]
    assert ("a.test.yaml:4:5", "a test has no key 'stps'") in found
    assert not any("pipeline" in message for _, message in found)
    place = place_in(path, TESTS + "va", 4, 2)
    assert place is not None
    assert [p.text for p in yaml_proposals(place, {})] == ["variables: ", "variants: "]


def test_keys_of_a_project_are_proposed() -> None:
    place = place_in(Path("flowrun.yaml"), "pipe", 0, 4)
    assert place is not None
    assert [p.text for p in yaml_proposals(place, {})] == ["pipelines: "]


def test_texts_and_comments_of_sql_are_no_names() -> None:
    script = "CREATE TABLE t (n INT) WITH ('connector' = 'datagen'); -- n of t\nSELECT 't n', n FROM t"
    found = analyse(Path("a.sql"), script)
    first, second = script.split("\n")
    said = [
        about(Path("a.sql"), script, line, column, found)
        for line, column in ((0, first.index("n of")), (1, second.index("n'")), (1, second.index("n FROM")))
    ]
    assert said == [None, None, "```sql\nn INT\n```"]
    assert "**connector**" not in str(about(Path("a.sql"), script, 0, first.index("datagen"), found))


def test_a_module_of_functions_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    script = "CREATE FUNCTION f AS 'changed_functions.f' LANGUAGE PYTHON;\nSELECT f(1);"
    (tmp_path / "changed_parts.py").write_text("Number = complex\n")
    (tmp_path / "changed_functions.py").write_text(
        "import changed_parts\n\ndef f(n: changed_parts.Number) -> int:\n    return n\n"
    )
    (problem,) = analyse(tmp_path / "a.sql", script).problems
    assert "complex, which has no SQL type" in problem.message
    (tmp_path / "changed_parts.py").write_text("Number = int\n")
    assert analyse(tmp_path / "a.sql", script).problems == ()


def test_a_script_with_errors_has_the_tables_that_it_declares_without() -> None:
    script = """
CREATE TABLE t (n INT,
  m STRING) WITH ('connector' = 'datagen');
CREATE TABLE bad (n NUMBR) WITH ('connector' = 'datagen');
CREATE VIEW v AS SELECT m FROM t;
CREATE VIEW of_bad AS SELECT * FROM bad;
CREATE VIEW twice AS SELECT nothing FROM v;
SELECT n FROM t; SELEC
"""
    found = analyse(Path("a.sql"), script)
    assert not found.is_right
    assert {name: schema.names for name, schema in found.tables.items()} == {"t": ("n", "m"), "v": ("m",)}
