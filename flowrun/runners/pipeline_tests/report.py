"""What users read of failures: what differs, row by row, where that is expected, and the step that made it."""

from __future__ import annotations

from pathlib import Path

from flowrun.errors import Location
from flowrun.frontend.source_text import SourceText
from flowrun.runners.pipeline_tests.check import Failure, Result


def render_failure(result: Result, failure: Failure) -> str:
    """The failure as text: place and message, rows that differ, and the line of the step that made them."""
    lines = [f"{failure.location}: {failure.message}"]
    if failure.difference is not None:
        lines.append(failure.difference.render("    "))
    made = failure.made_at
    if made is not None:
        lines += [f"  made by {shown_location(made, result)}", f"    {_line(made, result)}"]
    return "\n".join(lines)


def shown_location(at: Location, result: Result) -> str:
    """File and line, the pipeline's relative to the working directory."""
    subject = result.bound.subject
    file = str(_relative(subject.path)) if at.file == str(subject.path) else at.file
    return f"{file}:{at.line}"


def _line(at: Location, result: Result) -> str:
    subject = result.bound.subject
    return SourceText(str(subject.path), subject.plan.text).line(at.line).strip()


def _relative(path: Path) -> Path:
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
