"""Reads the files that users write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flowrun.errors import Diagnostic, PipelineError, near_matches
from flowrun.frontend.source_text import SourceText


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        PipelineError: it is not there, cannot be read or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise PipelineError.of(f"there is no file '{path}'", _similar_files(path)) from None
    except OSError as error:
        raise PipelineError.of(f"cannot read '{path}': {error.strerror}", None) from error
    try:
        return data.decode("utf-8").removeprefix("\ufeff")  # some editors mark UTF-8 files so
    except UnicodeDecodeError as error:
        raise PipelineError.of(
            f"'{path}' is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}", "save it as UTF-8"
        ) from None


def _similar_files(path: Path) -> str | None:
    folder = path.parent
    names = [f.name for f in folder.iterdir() if f.is_file()] if folder.is_dir() else []
    close = near_matches(path.name, names)
    return "did you mean " + " or ".join(f"'{folder / c}'" for c in close) + "?" if close else None


def with_source_line(problem: Diagnostic) -> Diagnostic:
    """The problem with the line of the file that it points into, if there is such a file."""
    at = problem.location
    if at is None or problem.source_line is not None or not Path(at.file).is_file():
        return problem
    return replace(problem, source_line=SourceText(at.file, read_text(Path(at.file))).line(at.line))
