"""Problems of a script: raised with offsets into its filled text, shown at their places in the file."""

from __future__ import annotations

from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.places import SeveralErrors
from flowrun.frontend.sql.script.text import ScriptText
from flowrun.frontend.sql.script.tokens import Slice


def moved(error: ExpressionError, text: Slice) -> ExpressionError:
    """An error in a part of the script, as one of the whole."""
    inside = min(error.offset, len(text.text))
    return ExpressionError(error.message, offset=text.start + inside, length=error.length, hint=error.hint)


def report(error: ExpressionError, script: ScriptText, diagnostics: Diagnostics) -> None:
    """Show an error, or the several that it holds, where they stand in the file."""
    for one in error.errors if isinstance(error, SeveralErrors) else (error,):
        at = script.locate(one.offset, one.offset + max(1, one.length))
        diagnostics.error(one.message, at, hint=one.hint)
