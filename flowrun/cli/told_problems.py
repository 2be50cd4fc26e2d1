"""Problems that one command of `flowrun dev` has shown, so that the next one does not show them again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from flowrun.cli.reports import problem_json
from flowrun.errors import Diagnostic, FlowrunError, PipelineError
from flowrun.masking import masked_json


def problems_document(error: FlowrunError) -> dict[str, Any]:
    """What is wrong with a pipeline, as JSON without secrets.

    >>> problems_document(PipelineError.of("there is no file 'a.yaml'"))["problems"][0]["message"]
    "there is no file 'a.yaml'"
    """
    found = error.diagnostics if isinstance(error, PipelineError) else (Diagnostic(error.message, hint=error.hint),)
    problems = [problem_json(d.severity, d.message, d.hint, d.location) for d in found]
    return {"problems": masked_json(problems)}


def not_told(error: PipelineError, report: Path) -> PipelineError | None:
    """The problems of an error that a report has not; None: it has them all.

    Args:
        error: with problems of tests and their pipelines.
        report: a file with `problems_document`, or with something else, or none.
    """
    document = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    told = [_identity(problem) for problem in document.get("problems", ())]
    problems = map(_identity, problems_document(error)["problems"])
    left = [d for d, p in zip(error.diagnostics, problems, strict=True) if not any(_is_same(p, t) for t in told)]
    return PipelineError(left) if left else None


def _identity(problem: dict[str, Any]) -> tuple[str, tuple[object, ...] | None]:
    """The message and the place of a problem."""
    if problem["file"] is None:
        return problem["message"], None
    return problem["message"], (os.path.realpath(problem["file"]), problem["line"], problem["column"])


def _is_same(problem: tuple[str, object], told: tuple[str, object]) -> bool:
    """Whether two problems are one. Tests give those without a place that of the pipeline's name."""
    return problem == told or (told[1] is None and problem[0] == told[0])
