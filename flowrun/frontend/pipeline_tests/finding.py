"""Finds files of tests by their names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flowrun.errors import PipelineError

SUFFIXES = (".test.yaml", ".test.yml")


def find_files(paths: Iterable[Path]) -> list[Path]:
    """The files of tests that paths name or hold, in order, each once.

    Raises:
        PipelineError: a path is not there, or is no file of tests, or there is none in any of them.
    """
    found: list[Path] = []
    asked = list(paths)
    for path in asked:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if is_test_file(p) and not _is_hidden(p.relative_to(path)))
        elif not path.exists():
            raise PipelineError.of(f"there is no file or folder '{path}'")
        elif not is_test_file(path):
            raise PipelineError.of(f"'{path}' is no file of tests", hint="they are called NAME.test.yaml")
        else:
            found.append(path)
    if not found:
        where = ", ".join(f"'{p}'" for p in asked)
        raise PipelineError.of(
            f"there are no tests in {where}", hint="tests are in files NAME.test.yaml; docs/testing.md shows one"
        )
    return list(dict.fromkeys(found))


def is_test_file(path: Path) -> bool:
    """Whether a file is one of tests, by its name."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
