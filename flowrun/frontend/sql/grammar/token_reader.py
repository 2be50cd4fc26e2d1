"""Reading tokens, one after the other: the words that every grammar here is written in.

`TokenReader` has these words and leaves open who keeps the place. Statements and hints are read by a `TextReader`, which does so itself.
Expressions and queries are read by a `SqlglotReader`, whose place sqlglot's parser keeps, because rules of both read in turns. Statements
are not read on that parser: they only cut out what it reads, each with an error of its own, and need nothing of its precedences and nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NoReturn

from flowrun.errors import did_you_mean, near_matches
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import Token, TokenType, is_mark, is_name, is_quoted, is_word, token_span
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span


class TokenReader(ABC):
    """Goes through the tokens of one text. Behind the last one stands a token that is false and of no other token's kind.

    `at_…` asks for what comes next, `accept_…` steps over it if it is there, `expect_…` and `take_…` fail if it is not; `take_…` gives it.
    Keywords are given in upper case, and are none in quotes.
    """

    end_shown = "the end"
    """What messages call the end of the text."""

    # -- the place -----------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def text(self) -> str:
        """What the tokens' places count in."""

    @property
    @abstractmethod
    def token(self) -> Token:
        """The current token."""

    @property
    @abstractmethod
    def following(self) -> Token:
        """The token after the current one."""

    @property
    @abstractmethod
    def previous(self) -> Token:
        """The token that was read last."""

    @property
    @abstractmethod
    def place(self) -> int:
        """The number of the current token, to `go_back` to."""

    @abstractmethod
    def ahead(self, count: int) -> Token:
        """The token so many places on."""

    @abstractmethod
    def advance(self, count: int = 1) -> Token:
        """Step over tokens; the first of them."""

    @abstractmethod
    def go_back(self, place: int) -> None:
        """Read again from a place on."""

    @property
    @abstractmethod
    def end(self) -> Span:
        """Where an error is shown that is found at the end."""

    @property
    def here(self) -> int:
        """Where the current token begins: at the end, where the text does."""
        return self.token.start if self.token else len(self.text)

    def since(self, start: int) -> Span:
        """The span from `start` to the end of the last token."""
        return (start, max(start + 1, self.previous.end + 1 if self.previous else start + 1))

    # -- kinds and marks -----------------------------------------------------------------------------------------------------

    def at_kind(self, *kinds: TokenType) -> bool:
        """Whether the current token is of one of these kinds."""
        return self.token.token_type in kinds

    def accept_kind(self, *kinds: TokenType) -> bool:
        """Step over the current token if it is of one of these kinds."""
        return self.at_kind(*kinds) and bool(self.advance())

    def at_mark(self, *marks: str) -> bool:
        """Whether the current token is one of these marks."""
        return is_mark(self.token, *marks)

    def accept_mark(self, *marks: str) -> bool:
        """Step over the current token if it is one of these marks."""
        return is_mark(self.token, *marks) and bool(self.advance())

    def expect_mark(self, mark: str, before: str = "") -> None:
        """Step over the mark; `before` what it stands, for the message."""
        if not self.accept_mark(mark):
            self.fail_expected(f"'{mark}' and {before}" if before else f"'{mark}'")

    def expect_end(self) -> None:
        """Nothing follows."""
        if self.token:
            self.fail(f"unexpected {self.shown()}")

    # -- words ---------------------------------------------------------------------------------------------------------------

    def at_word(self, *words: str) -> bool:
        """Whether the current token is one of these keywords."""
        return is_word(self.token, *words)

    def accept_word(self, *words: str) -> bool:
        """Step over the current token if it is one of these keywords."""
        return is_word(self.token, *words) and bool(self.advance())

    def expect_word(self, word: str) -> None:
        """Step over the keyword."""
        if not self.accept_word(word):
            written = is_name(self.token) and not is_quoted(self.token)
            close = written and near_matches(self.token.text, [word])
            self.fail_expected(word, hint=f"did you mean {word}?" if close else None)

    def take_word(self, words: Iterable[str], what: str) -> str:
        """One of these keywords, in upper case."""
        known = tuple(words)
        if not self.accept_word(*known):
            self.fail_expected(what, hint=did_you_mean(self.token.text.upper(), known))
        return str(self.previous.text.upper())

    def at_phrase(self, *words: str) -> bool:
        """Whether these keywords come next, in this order; they may be one token."""
        written = self.token.text.upper()
        if written == words[0]:
            return all(is_word(self.ahead(i), word) for i, word in enumerate(words))
        return written == " ".join(words) and not is_quoted(self.token)

    def accept_phrase(self, *words: str) -> bool:
        """Step over these keywords if they come next."""
        if not self.at_phrase(*words):
            return False
        self.advance(len(words) if is_word(self.token, words[0]) else 1)
        return True

    def expect_phrase(self, *words: str) -> None:
        """Step over these keywords."""
        for word in words:
            self.expect_word(word)

    # -- names and texts -----------------------------------------------------------------------------------------------------

    def take_name(self, what: str = "a name") -> Name:
        """An identifier, which may be a keyword."""
        token = self.token
        if not is_name(token):
            self.fail_expected(what)
        self.advance()
        return Name(token.text, token_span(token), is_quoted(token))

    def take_path(self, what: str = "a name") -> tuple[Name, ...]:
        """Identifiers joined by dots."""
        parts = [self.take_name(what)]
        while self.accept_mark("."):
            parts.append(self.take_name(what))
        return tuple(parts)

    def take_names(self, what: str, before: str = "") -> tuple[Name, ...]:
        """Identifiers in parentheses; `before` what '(' stands, for the message."""
        self.expect_mark("(", before)
        names = [self.take_name(what)]
        while self.accept_mark(","):
            names.append(self.take_name(what))
        self.expect_mark(")")
        return tuple(names)

    def take_text(self, what: str) -> Token:
        """A text in single quotes."""
        if not self.at_kind(TokenType.STRING):
            unquoted = is_name(self.token) or self.at_kind(TokenType.NUMBER)
            self.fail_expected(what, hint=f"write it in single quotes: '{self.token.text}'" if unquoted else None)
        return self.advance()

    # -- errors --------------------------------------------------------------------------------------------------------------

    def fail(self, message: str, hint: str | None = None, *, at: Token | None = None) -> NoReturn:
        """Fail at a token (default: the current one)."""
        raise self.error(message, hint, at=at)

    def error(self, message: str, hint: str | None = None, *, at: Token | None = None) -> FlinkSyntaxError:
        """What `fail` raises."""
        token = at or self.token
        start, end = token_span(token) if token else self.end
        return FlinkSyntaxError(message, start, end - start, hint)

    def fail_expected(self, what: str, hint: str | None = None) -> NoReturn:
        """Fail at the current token, where something else should stand."""
        self.fail(f"expected {what}, got {self.shown()}", hint)

    def shown(self) -> str:
        """The current token for a message."""
        return f"'{self.token.text}'" if self.token else self.end_shown


class TextReader(TokenReader):
    """A reader that keeps its own place in a list of tokens."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        last = max(tokens[-1].end if tokens else len(text) - 1, 0)
        self._behind = Token(TokenType.SENTINEL, "", start=last, end=last)
        self._text = text
        self._list = tokens
        self.go_back(0)

    @property
    def text(self) -> str:
        return self._text

    @property
    def token(self) -> Token:
        return self._token

    @property
    def following(self) -> Token:
        return self.ahead(1)

    @property
    def previous(self) -> Token:
        return self._list[self._place - 1] if self._place else self._behind

    @property
    def place(self) -> int:
        return self._place

    @property
    def end(self) -> Span:
        return token_span(self._behind)

    def ahead(self, count: int) -> Token:
        index = self._place + count
        return self._list[index] if index < len(self._list) else self._behind

    def advance(self, count: int = 1) -> Token:
        token = self._token
        self.go_back(min(self._place + count, len(self._list)))
        return token

    def go_back(self, place: int) -> None:
        self._place = place
        self._token = self.ahead(0)
