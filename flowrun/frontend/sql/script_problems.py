"""Problems of a script: raised with offsets into its filled text, shown at their places in the file."""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.script_text import ScriptText
from flowrun.frontend.sql.statement_tokens import Slice
from flowrun.frontend.sql.syntax import Span


class StatementErrors(ExpressionError):
    """A statement is wrong in several places; offsets count in the whole script."""

    def __init__(self, errors: Iterable[ExpressionError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.message, offset=first.offset, length=first.length, hint=first.hint)


def problem(message: str, span: Span, hint: str | None = None) -> ExpressionError:
    """The error of a span."""
    return ExpressionError(message, offset=span[0], length=max(1, span[1] - span[0]), hint=hint)


def moved(error: ExpressionError, text: Slice) -> ExpressionError:
    """An error in a part of the script, as one of the whole."""
    inside = min(error.offset, len(text.text))
    return ExpressionError(error.message, offset=text.start + inside, length=error.length, hint=error.hint)


def report(error: ExpressionError, script: ScriptText, diagnostics: Diagnostics) -> None:
    """Show an error, or the several that it holds, where they stand in the file."""
    several: tuple[ExpressionError, ...] = getattr(error, "errors", ()) or (error,)
    for one in several:
        at = script.locate(one.offset, one.offset + max(1, one.length))
        diagnostics.error(one.message, at, hint=one.hint)
