"""What queries ask for and streams cannot give, with the place in the user's text."""

from __future__ import annotations

from flowrun.errors import Diagnostic, Location
from flowrun.plan.nodes import PlanNode


class RecognitionError(Exception):
    """A node that no operator can do; becomes a `Diagnostic` of the `PipelineError` that names them all."""

    def __init__(self, node: PlanNode, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location: Location | None = node.hints.location

    def diagnostic(self, text: str) -> Diagnostic:
        """The problem, with the line of the pipeline's text that it points into."""
        line = None
        if self.location is not None:
            lines = text.splitlines()
            line = lines[self.location.line - 1] if 0 < self.location.line <= len(lines) else None
        return Diagnostic(self.message, location=self.location, source_line=line, hint=self.hint)
