"""CONTRIBUTING.md names every file that must know a new command, connector, format, function, operator or node, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_LIST = re.compile(r"^\*\*A[n]? (?P<what>[^*]+)\*\* \(`(?P<example>\w+)`.*?(?=^\*\*|^## )", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`((?:flowrun/|README)[\w/.]+)`")
_WORD = {
    "command": r"flowrun\.cli\.{0}\b|^def {0}\(",
    "connector": r"(?:connectors\.|\"){0}(?:\"| import)",
    "catalog": r"connectors\.{0}\.table_catalog",
    "format": r"formats\.{0}\b",
    "SQL function": r"\"{0}\"",
    "operator": r"^class {0}\b|\b{0}\(|import {0}\b",
    "kind of plan node": r"\b{0}\b",
}
"""How the files of each list name the example."""
_FOLDERS = {
    "connector": "flowrun/connectors",
    "catalog": "flowrun/connectors",
    "format": "flowrun/connectors",
    "command": "flowrun/cli",
}


def lists() -> dict[str, tuple[str, set[str]]]:
    """Kind of thing → (example, the files of its list)."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {m["what"]: (m["example"], set(_FILE.findall(m.group(0)))) for m in _LIST.finditer(text)}


def test_there_is_a_list_for_each_kind_of_thing() -> None:
    assert set(lists()) == set(_WORD)


def test_every_file_that_is_named_is_there() -> None:
    named = _FILE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert [n for n in named if not (ROOT / n).exists() and not (ROOT / n.rstrip("/")).exists()] == []


@pytest.mark.parametrize("what", _WORD)
def test_the_example_is_named_in_these_files_and_in_no_others(what: str) -> None:
    example, files = lists()[what]
    files.discard("flowrun/plan/description.py")  # what all nodes share
    word = re.compile(_WORD[what].format(example), re.MULTILINE)
    folder = ROOT / _FOLDERS.get(what, "flowrun")
    found = {str(p.relative_to(ROOT)) for p in folder.rglob("*.py") if word.search(p.read_text(encoding="utf-8"))}
    told = {f for f in files if f.endswith(".py")}
    assert found - told == set(), "these files know it, too"
    named = example.replace("_", "[-_]")
    silent = {f for f in told - found if not re.search(rf"(?i){named}", (ROOT / f).read_text(encoding="utf-8"))}
    assert silent == set(), "these files do not know it"


def test_the_readme_lists_every_command() -> None:
    from flowrun.cli.main import COMMANDS

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [c for c in COMMANDS if not re.search(rf"`(flowrun )?{c}\b", readme)] == []
