"""What the parsers of expressions and queries raise."""

from __future__ import annotations

from sqlglot.errors import ParseError


class FlinkSyntaxError(ParseError):
    """A text does not parse; `start` and `length` mark the place in code points, `hint` says what to write."""

    def __init__(self, message: str, start: int, length: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.length = length
        self.hint = hint
