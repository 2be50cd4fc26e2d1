"""Python functions of a pipeline and of its project, as an editor tells of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.runners.editing.analysis import Analysis, analyse
from flowrun.runners.editing.meaning import about, declared_at
from flowrun.runners.editing.sql_words import sql_proposals
from flowrun.runners.editing.yaml_words import place_of, yaml_proposals

MODULE = """
from collections.abc import Iterator

def size_of(weight: float | None) -> str | None:
    '''How large a parcel
    is said to be.

    More of it.
    '''
    return None

def words(text: str) -> Iterator[str]:
    yield from text.split()
"""
YAML = """\
functions: {SIZE_OF: "{module}:size_of", BROKEN: "{module}:nothing"}
sources:
  parcels: {connector: datagen, schema: {weight: DOUBLE}}
steps:
  sized: {from: parcels, select: ["SIZE_OF(weight) AS size"]}
sinks:
  out: {from: sized, connector: blackhole}
"""
SQL = """\
CREATE FUNCTION size_of AS '{module}.size_of' LANGUAGE PYTHON;
CREATE TABLE parcels (weight DOUBLE) WITH ('connector' = 'datagen');
SELECT size_of(weight) FROM parcels;
"""
SAID = "(DOUBLE) → STRING\n```\nHow large a parcel is said to be."


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    name = f"own_{request.node.name.partition('[')[0]}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def said(path: Path, text: str, word: str, found: Analysis) -> str | None:
    line = next(n for n, part in enumerate(text.split("\n")) if f"{word}(" in part)
    return about(path, text, line, text.split("\n")[line].index(f"{word}(") + 1, found)


def test_of_a_function_it_is_told_how_it_is_called_and_what_it_does(tmp_path: Path, module: str) -> None:
    path, text = tmp_path / "p.yaml", YAML.replace("{module}", module)
    found = analyse(path, text)
    assert len(found.problems) == 1  # there is no function `nothing`
    assert said(path, text, "SIZE_OF", found) == f"```sql\nSIZE_OF{SAID}"
    place = declared_at(path, text, 4, text.split("\n")[4].index("SIZE_OF") + 1, found)
    assert place is not None
    assert (place.line, place.column, place.length) == (1, 13, 7)
    begun = text.replace("SIZE_OF(weight)", "siz")
    column = begun.split("\n")[4].index("siz ") + 3
    words = yaml_proposals(place_of(begun, 4, column), {}, found.functions)
    assert [(p.text, p.kind) for p in words] == [("SIZE_OF(", "function")]


def test_scripts_have_theirs(tmp_path: Path, module: str) -> None:
    path, text = tmp_path / "p.sql", SQL.replace("{module}", module)
    found = analyse(path, text)
    assert not found.problems
    assert said(path, text, "size_of", found) == f"```sql\nsize_of{SAID}"
    words = [p.text for p in sql_proposals("SELECT size", " FROM parcels", {}, functions=found.functions)]
    assert words == ["size_of("]


def test_functions_of_the_project_are_known(tmp_path: Path, module: str) -> None:
    (tmp_path / "flowrun.yaml").write_text(f"functions: {{WORDS: '{module}:words'}}\n")
    path, text = tmp_path / "jobs" / "p.yaml", "sources:\n  t: {connector: datagen, schema: {a: STRING}}\n"
    assert dict(analyse(path, text).functions) == {
        "WORDS(": f"WORDS(STRING) → ROW<f0 STRING>: A function in Python, {module}:words."
    }


def test_a_text_that_is_no_yaml_yet_has_places() -> None:
    text = "steps:\n  large: {from: t, filter: [\n"
    assert analyse(Path("p.yaml"), text).places["large"].line == 2
