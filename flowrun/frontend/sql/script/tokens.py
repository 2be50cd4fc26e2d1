"""Tokens of statements, and a cursor over them. Queries and expressions inside a statement are only cut out here, not read.

Offsets count code points of the whole script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NoReturn

from flowrun.core.record import record
from flowrun.errors import ExpressionError, did_you_mean, near_matches
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.places import Span
from flowrun.frontend.sql.script.text import BLOCK_COMMENT, LINE_COMMENT, is_open_comment

_TOKEN = re.compile(
    rf"\s+|{LINE_COMMENT}|{BLOCK_COMMENT}"
    r"|(?P<word>(?:[^\W\d]|\$)[\w$]*)|(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*(?P<closed>')?)|(?P<name>`(?:[^`]|``)*(?P<ended>`)?)"
    r"|(?P<hint>/\*\+.*?(?:\*/|\Z))|(?P<mark>.)",
    re.DOTALL,
)
_OPENING, _CLOSING = ("(", "<", "["), (")", ">", "]")


class TokenKind(Enum):
    """What a token is."""

    WORD = "word"
    NUMBER = "number"
    TEXT = "text"
    NAME = "name"
    HINT = "hint"
    MARK = "mark"
    END = "end"


@record
class Token:
    """A token; `text` is its value, without quotes."""

    kind: TokenKind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords (upper case), unquoted."""
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_mark(self, mark: str) -> bool:
        """Whether it is this mark."""
        return self.kind is TokenKind.MARK and self.text == mark

    @property
    def span(self) -> Span:
        """First and one-past-last code point."""
        return self.start, self.end

    @property
    def shown(self) -> str:
        """For `expected …, got …`."""
        return "the end of the statement" if self.kind is TokenKind.END else f"'{self.text}'"


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


def tokenize(text: str, start: int, end: int) -> tuple[Token, ...]:
    """The tokens of a stretch of a script.

    Raises:
        ExpressionError: a quote or comment is not closed.

    >>> [t.text for t in tokenize("SELECT 'it''s', `a b` -- no more", 0, 32)]
    ['SELECT', "it's", ',', 'a b']
    """
    found: list[Token] = []
    for match in _TOKEN.finditer(text, start, end):
        shown = match[0]
        if is_open_comment(shown):
            raise ExpressionError("missing closing */", offset=match.start(), length=2, hint="end the comment with */")
        if match.lastgroup is None:
            continue
        match match.lastgroup:
            case "closed" | "text":
                quote, kind, whole = "'", TokenKind.TEXT, match["closed"] is not None
            case "ended" | "name":
                quote, kind, whole = "`", TokenKind.NAME, match["ended"] is not None
            case group:
                quote, kind, whole = "", TokenKind(group), True
        if not whole:
            raise ExpressionError(f"missing closing {quote}", offset=match.start(), length=1)
        value = shown[1:-1].replace(quote * 2, quote) if quote else shown
        found.append(Token(kind, value, match.start(), match.end()))
    return tuple(found)


class Cursor:
    """Goes through the tokens of one statement; `take_…` and `expect_…` raise ExpressionError where something else stands."""

    def __init__(self, text: str, tokens: tuple[Token, ...], end: int) -> None:
        self.text = text
        self._tokens = tokens
        last = tokens[-1].end if tokens else end
        self._end = Token(TokenKind.END, "", max(last - 1, 0), last)
        self._at = 0

    @property
    def token(self) -> Token:
        """The current token."""
        return self.ahead(0)

    def ahead(self, count: int) -> Token:
        """The token so many places on."""
        index = self._at + count
        return self._tokens[index] if index < len(self._tokens) else self._end

    @property
    def previous(self) -> Token:
        """The token before the current one."""
        return self._tokens[self._at - 1]

    @property
    def done(self) -> bool:
        """Whether all tokens are taken."""
        return self._at >= len(self._tokens)

    def advance(self) -> Token:
        """Take the current token."""
        token = self.token
        self._at += 1
        return token

    def fail(self, message: str, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise at a token (default: the current one)."""
        raise self.error(message, token, hint)

    def error(self, message: str, token: Token | None = None, hint: str | None = None) -> ExpressionError:
        """What `fail` raises."""
        at = token or self.token
        return ExpressionError(message, offset=at.start, length=max(1, at.end - at.start), hint=hint)

    def at_phrase(self, *words: str) -> bool:
        """Whether these keywords come next, in this order."""
        return all(self.ahead(i).is_word(w) for i, w in enumerate(words))

    def accept_phrase(self, *words: str) -> bool:
        """Take these keywords if they come next."""
        if not self.at_phrase(*words):
            return False
        self._at += len(words)
        return True

    def expect_phrase(self, *words: str) -> None:
        """Take these keywords."""
        for word in words:
            if not self.accept_phrase(word):
                close = near_matches(self.token.text, [word]) if self.token.kind is TokenKind.WORD else []
                self.fail(f"expected {word}, got {self.token.shown}", hint=f"did you mean {word}?" if close else None)

    def accept_mark(self, mark: str) -> bool:
        """Take this mark if it comes next."""
        if not self.token.is_mark(mark):
            return False
        self._at += 1
        return True

    def expect_mark(self, mark: str) -> None:
        """Take this mark."""
        if not self.accept_mark(mark):
            self.fail(f"expected '{mark}', got {self.token.shown}")

    def expect_end(self) -> None:
        """Nothing follows."""
        if not self.done:
            self.fail(f"unexpected {self.token.shown}")

    def one_of(self, words: Iterable[str], what: str) -> str:
        """Take one of these keywords; upper case."""
        known = tuple(words)
        if not self.token.is_word(*known):
            hint = did_you_mean(self.token.text.upper(), known)
            self.fail(f"expected {what}, got {self.token.shown}", hint=hint)
        return self.advance().text.upper()

    def take_name(self, what: str = "a name") -> Name:
        """Take an identifier."""
        if self.token.kind not in (TokenKind.WORD, TokenKind.NAME) or not self.token.text:
            self.fail(f"expected {what}, got {self.token.shown}")
        token = self.advance()
        return Name(token.text, token.span, token.kind is TokenKind.NAME)

    def take_path(self, what: str = "a name") -> tuple[Name, ...]:
        """Take identifiers joined by dots."""
        parts = [self.take_name(what)]
        while self.accept_mark("."):
            parts.append(self.take_name(what))
        return tuple(parts)

    def take_text(self, what: str) -> Token:
        """Take a text in single quotes."""
        if self.token.kind is not TokenKind.TEXT:
            quoted = self.token.kind in (TokenKind.WORD, TokenKind.NAME, TokenKind.NUMBER)
            hint = f"write it in single quotes: '{self.token.text}'" if quoted else None
            self.fail(f"expected {what}, got {self.token.shown}", hint=hint)
        return self.advance()

    def take_until(self, what: str, *stop: str) -> Slice:
        """Take what stands before the first of these words, a comma or a closing bracket, all outside brackets."""
        first = self._at
        depth = 0
        while not self.done:
            token = self.token
            if depth == 0 and (token.is_word(*stop) or (token.text in (",", ")") and token.kind is TokenKind.MARK)):
                break
            if token.kind is TokenKind.MARK:
                depth += (token.text in "([") - (token.text in ")]")
            self._at += 1
        return self._slice(first, what)

    def take_type(self, *stop: str) -> Slice:
        """Take a type; angle brackets enclose its parts as well."""
        first = self._at
        depth = 0
        while not self.done:
            token = self.token
            if depth == 0 and (token.is_word(*stop) or token.is_mark(",") or token.is_mark(")")):
                break
            if token.kind is TokenKind.MARK:
                depth += (token.text in _OPENING) - (token.text in _CLOSING)
            self._at += 1
        return self._slice(first, "a type")

    def take_rest(self, what: str, *before: str) -> Slice:
        """Take all that is left; with `before`, what stands before these keywords in a row, outside brackets."""
        first = self._at
        depth = 0
        while not self.done and not (before and depth == 0 and self.at_phrase(*before)):
            token = self.advance()
            if token.kind is TokenKind.MARK:
                depth += (token.text in "([") - (token.text in ")]")
        return self._slice(first, what)

    def _slice(self, first: int, what: str) -> Slice:
        if first >= min(self._at, len(self._tokens)):
            self.fail(f"expected {what}, got {self.token.shown}")
        start, end = self._tokens[first].start, self._tokens[self._at - 1].end
        return Slice(self.text[start:end], start)
