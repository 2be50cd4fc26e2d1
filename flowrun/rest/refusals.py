"""Requests that are answered with a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.errors import (
    ClusterError,
    Diagnostic,
    FlowrunError,
    PipelineError,
    SetupError,
    StateError,
    UnsupportedPlanError,
)


@record
class Problem:
    """One thing that is wrong with the text of a pipeline, or deserves a warning.

    Attributes:
        message: what is wrong.
        severity: `error` or `warning`.
        hint: what to do next.
        line: from 1; None: it has no place in the text.
        column: from 1, in code points.
        length: of the marked range, in code points.
    """

    message: str
    severity: str = "error"
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    length: int | None = None


@record
class Failure:
    """The answer to a request that cannot be carried out.

    Attributes:
        error: why.
        hint: what to do next.
        problems: of a pipeline's text.
    """

    error: str
    hint: str | None = None
    problems: tuple[Problem, ...] = field(default=())


class Refused(Exception):
    """A request is answered with a failure.

    Args:
        status: of HTTP.
        error: why.
        hint: what to do next.
        headers: of the answer.
        problems: of a pipeline's text.
    """

    def __init__(
        self,
        status: int,
        error: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(error)
        self.status = status
        self.headers = dict(headers or {})
        self.failure = Failure(error, hint, problems)


def refused(error: FlowrunError) -> Refused:
    """How an error is answered: 400 for the text of a pipeline, 409 for what the job refuses, 503 if it cannot be reached, else 500."""
    if isinstance(error, PipelineError):
        first = error.diagnostics[0]
        return Refused(400, first.message, first.hint, problems=tuple(map(problem_of, error.diagnostics)))
    if isinstance(error, UnsupportedPlanError | SetupError):
        return Refused(400, error.message, error.hint)
    status = 409 if isinstance(error, StateError) else 503 if isinstance(error, ClusterError) else 500
    return Refused(status, error.message, error.hint)


def problem_of(diagnostic: Diagnostic) -> Problem:
    """A diagnostic as it is answered."""
    place = diagnostic.location
    severity = diagnostic.severity.value
    if place is None:
        return Problem(diagnostic.message, severity, diagnostic.hint)
    return Problem(diagnostic.message, severity, diagnostic.hint, place.line, place.column, place.length)
