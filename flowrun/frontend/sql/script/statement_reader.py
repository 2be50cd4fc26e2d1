"""Where the statements of a script are, and a reader of one. Queries and expressions inside it are only cut out here, not read.

Offsets count code points of the whole script.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.grammar.token_reader import TextReader
from flowrun.frontend.sql.grammar.tokens import Token, TokenType, is_mark, is_name, is_quoted, scan, token_span
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span

_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}
_TYPE_BRACKETS = {**_BRACKETS, "<": 1, ">": -1}


@record
class StatementTokens:
    """What stands between two semicolons; `error` if a quote or comment that begins in it is not closed."""

    span: Span
    tokens: tuple[Token, ...] = field(repr=False)
    error: FlinkSyntaxError | None = None


def split_script(text: str) -> Iterator[StatementTokens]:
    r"""The statements of a script, without their semicolons, and without blanks and comments around them.

    What is not closed is part of its statement, which then is wrong: it hides all that follows.

    >>> text = "SELECT ';' -- one; comment\n;; /* two; */ SELECT /*+ three; */ 2"
    >>> [text[slice(*s.span)] for s in split_script(text)]
    ["SELECT ';'", 'SELECT /*+ three; */ 2']
    """
    tokens: list[Token] = []
    try:
        for token in scan(text):
            if token.token_type is not TokenType.SEMICOLON:
                tokens.append(token)
            elif tokens:
                yield StatementTokens((tokens[0].start, tokens[-1].end + 1), tuple(tokens))
                tokens = []
    except FlinkSyntaxError as error:
        start = tokens[0].start if tokens else error.offset
        yield StatementTokens((start, len(text)), tuple(tokens), error)
        return
    if tokens:
        yield StatementTokens((tokens[0].start, tokens[-1].end + 1), tuple(tokens))


@record
class Slice:
    """A query, expression or type as text, and where it begins in the script."""

    text: str
    start: int

    @property
    def span(self) -> Span:
        """First and one-past-last code point."""
        return self.start, self.start + len(self.text)

    def moved(self, error: ExpressionError) -> ExpressionError:
        """An error in this part, as one of the whole script."""
        inside = min(error.offset, len(self.text))
        return ExpressionError(error.message, offset=self.start + inside, length=error.length, hint=error.hint)


class StatementReader(TextReader):
    """Goes through the tokens of one statement; parts of it are cut out as text."""

    end_shown = "the end of the statement"

    def take_until(self, what: str, *stop: str) -> Slice:
        """What stands before the first of these words, a comma or a closing bracket, all outside brackets."""
        return self._cut(what, lambda: self.at_word(*stop) or self.at_mark(",", ")"), _BRACKETS)

    def take_type(self, *stop: str) -> Slice:
        """A type, as `take_until`; angle brackets enclose its parts as well."""
        return self._cut("a type", lambda: self.at_word(*stop) or self.at_mark(",", ")"), _TYPE_BRACKETS)

    def take_rest(self, what: str, *before: str) -> Slice:
        """All that is left; with `before`, what stands before these keywords in a row, outside brackets."""
        return self._cut(what, lambda: bool(before) and self.at_phrase(*before), _BRACKETS)

    def _cut(self, what: str, at_end: Callable[[], bool], brackets: Mapping[str, int]) -> Slice:
        first, depth = self.place, 0
        while self.token and (depth or not at_end()):
            change = brackets.get(self.advance().text)
            if change is not None and not is_quoted(self.previous):
                depth += change
        if first == self.place:
            self.fail_expected(what)
        start, end = self.ahead(first - self.place).start, token_span(self.previous)[1]
        return Slice(self.text[start:end], start)


def names_mentioned(text: str) -> set[str]:
    """All identifiers in a text; words that are followed by `(` in upper case as well, as names of functions are known by.

    Raises:
        FlinkSyntaxError: a quote or comment in it is not closed.

    >>> sorted(names_mentioned("SELECT mask(`a b`) FROM t"))
    ['FROM', 'MASK', 'SELECT', 'a b', 'mask', 't']
    """
    return {t.text for t in scan(text) if is_name(t)} | {name.upper() for name in names_called(text)}


def names_called(text: str) -> set[str]:
    """The identifiers in a text that are followed by `(`, as names of functions are. Raises as `names_mentioned`."""
    return {a.text for a, b in itertools.pairwise(scan(text)) if is_mark(b, "(") and is_name(a) and not is_quoted(a)}
