"""Where things stand in a text, and the errors that say so. All offsets and lengths count code points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from sqlglot import exp
from sqlglot.errors import ParseError

from flowrun.errors import ExpressionError

Span: TypeAlias = tuple[int, int]
"""First and one-past-last code point."""


class FlinkSyntaxError(ExpressionError, ParseError):
    """A text does not follow the grammar. sqlglot's rules, which it may come out of, know it as their own kind of error."""

    def __init__(self, message: str, offset: int, length: int, hint: str | None = None) -> None:
        super().__init__(message, offset=offset, length=length, hint=hint)


class SeveralErrors(ExpressionError):
    """A query or statement is wrong in one place or several; it shows the first of `errors`. Offsets count in the whole script."""

    def __init__(self, errors: Iterable[ExpressionError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.message, offset=first.offset, length=first.length, hint=first.hint)


def error_at(message: str, span: Span, hint: str | None = None) -> ExpressionError:
    """The error that marks a span.

    >>> error_at("no such table", (7, 9)).length
    2
    """
    return ExpressionError(message, offset=span[0], length=max(1, span[1] - span[0]), hint=hint)


def span_of(node: exp.Expression) -> Span:
    """Where a node of sqlglot's trees stands; where its parts do if it has no mark of its own; (0, 0) if nothing is marked."""
    own: Span | None = node.meta.get("span")
    if own is not None:
        return own
    if "start" in node.meta:
        return node.meta["start"], node.meta["end"] + 1
    parts = [c for value in node.args.values() for c in (value if isinstance(value, list) else [value])]
    inner = [s for c in parts if isinstance(c, exp.Expression) and (s := span_of(c)) != (0, 0)]
    return (min(s for s, _ in inner), max(e for _, e in inner)) if inner else (0, 0)
