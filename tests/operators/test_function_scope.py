"""From where a pipeline's functions may come: by the place of the module, before it is imported and for what it passes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.operators.function_scope import FunctionScope

MINE = """
import os
from functools import partial
from os import system
from posixpath import join
from shutil import rmtree as clean_up
from subprocess import Popen
from scope_helper import helped
import scope_elsewhere
from scope_elsewhere import foreign

eval_ = eval

class Doubled:
    def __call__(self, rows):
        return rows

def own(rows):
    return rows

bound = partial(own)
ready = Doubled()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pipeline's folder; beside it on Python's path a package, and a module that says when it is imported."""
    before = set(sys.modules)
    installed, pipeline = tmp_path / "installed", tmp_path / "pipeline"
    (installed / "scope_company").mkdir(parents=True)
    (installed / "scope_company" / "__init__.py").write_text("def f(rows):\n    return rows\n")
    (installed / "scope_elsewhere.py").write_text("def foreign(rows):\n    return rows\n")
    (installed / "scope_traces.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'imported')!r})\ndef f(rows):\n    return rows\n"
    )
    pipeline.mkdir()
    (pipeline / "scope_mine.py").write_text(MINE)
    (pipeline / "scope_helper.py").write_text("def helped(rows):\n    return rows\n")
    monkeypatch.syspath_prepend(str(installed))
    yield pipeline
    for name in set(sys.modules) - before:
        if name.startswith("scope_"):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["own", "Doubled", "ready", "bound", "helped"])
def test_functions_of_modules_beside_the_pipeline_are_taken(folder: Path, name: str) -> None:
    assert callable(FunctionScope((str(folder),)).load(f"scope_mine:{name}"))


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("os:system", "'os' is a module of Python itself"),
        ("builtins:eval", "'builtins' is a module of Python itself"),
        ("os.path:join", "'os' is a module of Python itself"),
        ("__main__:f", "is a module of Python itself"),
        ("scope_mine:os.system", "leads through the module 'os', which 'scope_mine' only imports"),
        ("scope_mine:system", r"is posix.system, which 'scope_mine' only imports"),
        ("scope_mine:join", "is posixpath.join"),
        ("scope_mine:clean_up", "is shutil.rmtree"),
        ("scope_mine:Popen", "is subprocess.Popen"),
        ("scope_mine:eval_", "is builtins.eval"),
        ("scope_mine:foreign", "is scope_elsewhere.foreign"),
        ("scope_mine:scope_elsewhere.foreign", "leads through the module 'scope_elsewhere'"),
        ("scope_mine:own.__globals__", "names that begin with '__'"),
        ("scope_mine:__builtins__", "names that begin with '__'"),
        ("scope_company:f", "'scope_company' is not beside the pipeline .*, and no package that its settings name"),
        ("scope_nowhere:f", "there is no module 'scope_nowhere'"),
    ],
)
def test_everything_else_is_refused(folder: Path, reference: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        FunctionScope((str(folder),)).load(reference)


def test_what_is_refused_is_not_imported(folder: Path) -> None:
    with pytest.raises(PipelineError, match="no package that its settings name"):
        FunctionScope((str(folder),)).load("scope_traces:f")
    assert not (folder.parent / "imported").exists()
    FunctionScope((str(folder),), ("scope_traces",)).load("scope_traces:f")
    assert (folder.parent / "imported").exists()


def test_packages_that_the_settings_name_are_taken_and_may_be_passed_on(folder: Path) -> None:
    scope = FunctionScope((str(folder),), ("scope_company", "scope_elsewhere", "os"))
    assert scope.load("scope_company:f").__module__ == "scope_company"
    assert scope.load("scope_mine:foreign").__module__ == "scope_elsewhere"
    with pytest.raises(PipelineError, match="module of Python itself"):
        scope.load("os:system")


def test_a_module_beside_the_pipeline_cannot_hide_behind_the_name_of_one_that_is_loaded(folder: Path) -> None:
    (folder / "json.py").write_text("def dumps(rows):\n    return rows\n")
    with pytest.raises(PipelineError, match=r"'json' is the name of another one too") as raised:
        FunctionScope((str(folder),)).load("json:dumps")
    assert raised.value.diagnostics[0].hint == "give the file another name"
