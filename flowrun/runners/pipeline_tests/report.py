"""What users read of failures: what differs, row by row, where that is expected, and the step that made it."""

from __future__ import annotations

from pathlib import Path

from flowrun.errors import Location
from flowrun.frontend.source_text import SourceText
from flowrun.graph.explain.drawing import counted
from flowrun.masking import masked
from flowrun.runners.pipeline_tests.check import Failure, Result
from flowrun.runners.pipeline_tests.coverage import PipelineCoverage, Point, Reached


def render_failure(result: Result, failure: Failure) -> str:
    """The failure as text: place and message, rows that differ, and the line of the step that made them."""
    lines = [f"{failure.location}: {failure.message}"]
    if failure.difference is not None:
        lines.append(failure.difference.render("    "))
    made = failure.made_at
    if made is not None:
        lines += [f"  made by {shown_location(made, result)}", f"    {_line(made, result)}"]
    return masked("\n".join(lines))


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


def render_coverage(coverage: PipelineCoverage) -> str:
    """What tests reach of a pipeline, a line a step and condition; `!` marks what they do not."""
    covered = len(coverage.points) - len(coverage.missing)
    lines = [f"{_relative(coverage.path)}: {covered} of {len(coverage.points)} covered"]
    missing = set(coverage.missing)
    for point, reached in coverage.points.items():
        what = f"  {'ELSE of ' if point.otherwise else ''}{point.text}" if point.text else point.step
        lines.append(
            f"  {'!' if point in missing else ' '} {point.line:>4}  {what:<46} {_seen(point, reached)}".rstrip()
        )
    return "\n".join(lines)


def _seen(point: Point, reached: Reached) -> str:
    first, second = reached.first, reached.second
    if point.end:
        return counted(first, "row") if first else "no rows"
    if not point.text:
        return f"{counted(first, 'row')} in, {second} out" if first else "no rows"
    if point.branch or point.otherwise:
        return f"taken {counted(first, 'time')}" if first else "never taken"
    if not first and not second:
        return "never evaluated"
    true = f"true {counted(first, 'time')}" if first else "never true"
    other = f"else {counted(second, 'time')}" if second else "never anything else"
    return f"{true}, {other}"
