"""What modules of flowrun import: one that needs many names of another imports it under its name, so that readers see whose they are."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_NAMES = 12


def names_taken(path: Path) -> dict[str, set[str]]:
    """By module of flowrun, the names that a file takes of it for its own use: none that it only passes on, and no modules."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed_on = {
        entry.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "__all__" for t in statement.targets)
        for entry in ast.walk(statement.value)
        if isinstance(entry, ast.Constant)
    }
    taken = defaultdict(set)
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.startswith("flowrun."):
            home = ROOT / statement.module.replace(".", "/")
            taken[statement.module] |= {
                alias.name
                for alias in statement.names
                if alias.name not in passed_on
                and not (home / f"{alias.name}.py").exists()
                and not (home / alias.name).is_dir()
            }
    return taken


@pytest.mark.exhaustive
def test_no_module_takes_many_names_of_another() -> None:
    files = sorted((ROOT / "flowrun").rglob("*.py"))
    taken = {(path, module): names for path in files for module, names in names_taken(path).items()}
    assert len(files) > 500
    assert max(map(len, taken.values())) > MOST_NAMES / 2  # else imports are not seen at all
    too_many = [
        f"{path.relative_to(ROOT)} takes {len(names)} names of {module}: import the module, and write its name before theirs"
        for (path, module), names in taken.items()
        if len(names) > MOST_NAMES
    ]
    assert too_many == []
