"""SQL types from text: `DECIMAL(10, 2)`, `ARRAY<ROW<id INT, name STRING>>`, `TIMESTAMP(3) WITH LOCAL TIME ZONE`, …

A small recursive-descent parser of Apache Flink's type syntax with Flink's defaults: DECIMAL is (10, 0), TIMESTAMP and TIMESTAMP_LTZ
have 6 fractional digits, TIME has none, CHAR and BINARY have length 1. A MULTISET is a MAP from element to how often it occurs. NOT NULL
of a whole type is read and dropped, as schemas carry nullability; that of what is inside is kept (`DataType.required`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from flowrun.core import types
from flowrun.core.foreign_names import type_hint
from flowrun.core.record import record

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[^\W\d]\w*)|(?P<number>\d+)|`(?P<quoted>(?:[^`]|``)+)`|'(?P<text>[^']*)'|(?P<mark>[<>(),:]))"
)
_SIMPLE = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.TINYINT,
    "SMALLINT": types.SMALLINT,
    "INT": types.INT,
    "INTEGER": types.INT,
    "BIGINT": types.BIGINT,
    "FLOAT": types.FLOAT,
    "STRING": types.STRING,
    "BYTES": types.BYTES,
    "DATE": types.DATE,
    "NULL": types.NULL,
}
_DAY_TIME_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_YEAR_MONTH_UNITS = ("YEAR", "MONTH")
KNOWN_TYPES = (
    *_SIMPLE, "DOUBLE", "DECIMAL", "NUMERIC", "DEC", "CHAR", "VARCHAR", "BINARY", "VARBINARY", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ",
    "INTERVAL", "ARRAY", "MAP", "MULTISET", "ROW",
)  # fmt: skip
"""Every word that may start a type."""

MAX_NESTING = 60
"""Arrow's messages, in which state is kept and rows go to Spark, hold 64 levels; a MAP takes two."""
_TOO_DEEP = f"a type has at most {MAX_NESTING} levels; each ARRAY and ROW is one, a MAP is two"


class TypeTextError(ValueError):
    """The text is no type. `offset` and `length` (code points) mark the wrong part; `hint` lists near matches."""

    def __init__(self, message: str, offset: int, length: int = 1, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}; {hint}")
        self.reason = message
        self.offset = offset
        self.length = length
        self.hint = hint


class _Kind(Enum):
    WORD = "word"
    NUMBER = "number"
    QUOTED = "quoted"
    TEXT = "text"
    MARK = "mark"
    END = "end"


@record
class _Token:
    kind: _Kind
    text: str
    offset: int

    def is_word(self, *words: str) -> bool:
        return self.kind is _Kind.WORD and self.text.upper() in words

    def is_mark(self, mark: str) -> bool:
        return self.kind is _Kind.MARK and self.text == mark

    @property
    def shown(self) -> str:
        return "the end" if self.kind is _Kind.END else f"'{self.text}'"


def _tokenize(text: str) -> list[_Token]:
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise TypeTextError(f"unexpected character '{text[start]}' in type '{text.strip()}'", start)
        content = match[match.lastgroup]
        start = match.start(match.lastgroup) - (match.lastgroup in ("quoted", "text"))
        tokens.append(_Token(_Kind(match.lastgroup), content.replace("``", "`"), start))
        position = match.end()
    return [*tokens, _Token(_Kind.END, "", end)]


def parse_type(text: str) -> types.DataType:
    """The type that `text` spells, in Flink's syntax; keywords in any case.

    Raises:
        TypeTextError: (a ValueError) not a type; carries offset, length and near matches.

    >>> str(parse_type("decimal(10,2)")), str(parse_type("TIMESTAMP(3) WITH LOCAL TIME ZONE")), str(parse_type("timestamp"))
    ('DECIMAL(10, 2)', 'TIMESTAMP_LTZ(3)', 'TIMESTAMP(6)')
    >>> str(parse_type("MAP<STRING NOT NULL, ARRAY<ROW<a INT, `b c` VARCHAR(7)>>>"))
    'MAP<STRING, ARRAY<ROW<a INT, b c VARCHAR(7)>>>'
    """
    parser = _TypeParser(text)
    result = parser.type()
    parser.expect_end()
    if _levels(result) > MAX_NESTING:
        raise TypeTextError(_TOO_DEEP, 0, len(text))
    return result


def _levels(type: types.DataType) -> int:
    own = 2 if type.root is types.TypeRoot.MAP else 1 if type.children else 0
    return own + max(map(_levels, type.children), default=0)


class _TypeParser:
    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._tokens = _tokenize(text)
        self._at = 0
        self._depth = 0
        self._required = False
        """Whether the last type was followed by NOT NULL."""

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _advance(self) -> _Token:
        token = self._token
        self._at += token.kind is not _Kind.END
        return token

    def _error(self, message: str, token: _Token, hint: str | None = None) -> TypeTextError:
        return TypeTextError(f"{message} in type '{self._text}'", token.offset, max(1, len(token.text)), hint)

    def _accept_words(self, *words: str) -> bool:
        ahead = self._tokens[self._at : self._at + len(words)]
        if len(ahead) < len(words) or not all(t.is_word(w) for t, w in zip(ahead, words, strict=True)):
            return False
        self._at += len(words)
        return True

    def _accept(self, mark: str) -> bool:
        if not self._token.is_mark(mark):
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._error(f"expected '{mark}', got {self._token.shown}", self._token)

    def expect_end(self) -> None:
        if self._token.kind is not _Kind.END:
            raise self._error(f"unexpected {self._token.shown}", self._token)

    def type(self) -> types.DataType:
        token = self._advance()
        if token.kind is not _Kind.WORD:
            raise self._error(f"expected a type, got {token.shown}", token)
        result = self._root(token)
        wrapped = 0
        while self._token.is_word("ARRAY", "MULTISET"):  # the standard's postfix form: INT ARRAY
            wrapped += 1
            if wrapped > MAX_NESTING:
                raise TypeTextError(_TOO_DEEP, self._token.offset)
            result = types.array(result) if self._advance().is_word("ARRAY") else types.map_of(result, types.INT)
        self._required = self._accept_words("NOT", "NULL")
        if not self._required:
            self._accept_words("NULL")
        return result

    def _root(self, token: _Token) -> types.DataType:
        word = token.text.upper()
        match word:
            case "DECIMAL" | "NUMERIC" | "DEC":
                return self._decimal(token)
            case "DOUBLE":
                self._accept_words("PRECISION")
                return types.DOUBLE
            case "CHAR" | "CHARACTER" if word == "CHARACTER" and self._accept_words("VARYING"):
                return types.DataType(
                    types.TypeRoot.VARCHAR, length=self._unbounded(types.TypeRoot.VARCHAR, self._length())
                )
            case "VARCHAR" | "VARBINARY":  # without a length they have no limit, as in Flink's SQL
                root = types.TypeRoot[word]
                return types.DataType(root, length=self._unbounded(root, self._length()))
            case "CHAR" | "CHARACTER" | "BINARY":
                root = types.TypeRoot.CHAR if word == "CHARACTER" else types.TypeRoot[word]
                return types.DataType(root, length=self._length() or 1)
            case "TIME":
                precision = self._precision(0)
                self._accept_words("WITHOUT", "TIME", "ZONE")
                return types.time(precision)
            case "TIMESTAMP":
                precision = self._precision(6)
                if self._accept_words("WITH", "LOCAL", "TIME", "ZONE"):
                    return types.timestamp_ltz(precision)
                if self._token.is_word("WITH"):
                    raise self._error("TIMESTAMP WITH TIME ZONE is not supported", token, "use TIMESTAMP_LTZ")
                self._accept_words("WITHOUT", "TIME", "ZONE")
                return types.timestamp(precision)
            case "TIMESTAMP_LTZ":
                return types.timestamp_ltz(self._precision(6))
            case "INTERVAL":
                return self._interval()
            case "ARRAY":
                element = self._one()
                return types.with_required(types.array(element), (self._required,))
            case "MAP":
                return self._map()
            case "MULTISET":
                return types.map_of(self._enclosed(self.type, "MULTISET<type>"), types.INT)
            case "ROW":
                return self._row()
        if word in _SIMPLE:
            return _SIMPLE[word]
        raise self._error(f"unknown type '{token.text}'", token, type_hint(token.text, KNOWN_TYPES))

    def _number(self) -> tuple[int, _Token]:
        token = self._advance()
        if token.kind is not _Kind.NUMBER:
            raise self._error(f"expected a number, got {token.shown}", token)
        return int(token.text), token

    def _decimal(self, start: _Token) -> types.DataType:
        if not self._accept("("):
            return types.decimal()
        precision, _ = self._number()
        scale = self._number()[0] if self._accept(",") else 0
        self._expect(")")
        try:
            return types.decimal(precision, scale)
        except ValueError as error:
            raise self._error(str(error), start) from None

    def _length(self) -> int | None:
        if not self._accept("("):
            return None
        length, token = self._number()
        if length < 1:
            raise self._error("a length must be at least 1", token)
        self._expect(")")
        return length

    @staticmethod
    def _unbounded(root: types.TypeRoot, length: int | None) -> int | None:
        # Flink writes STRING and BYTES as VARCHAR(2147483647) and VARBINARY(2147483647)
        return None if root in (types.TypeRoot.VARCHAR, types.TypeRoot.VARBINARY) and length == 2**31 - 1 else length

    def _precision(self, default: int) -> int:
        if not self._accept("("):
            return default
        precision, token = self._number()
        if precision > types.MAX_TIME_PRECISION:
            raise self._error(f"at most {types.MAX_TIME_PRECISION} fractional digits of a second exist", token)
        self._expect(")")
        return precision

    def _interval(self) -> types.DataType:
        units: list[str] = []
        while not units or self._accept_words("TO"):
            token = self._advance()
            unit = token.text.upper()
            if unit not in (*_DAY_TIME_UNITS, *_YEAR_MONTH_UNITS):
                raise self._error(f"expected a unit like DAY or MONTH, got {token.shown}", token)
            self._precision(0)
            units.append(unit)
        return types.INTERVAL_YEAR_MONTH if units[0] in _YEAR_MONTH_UNITS else types.INTERVAL_DAY_TIME

    def _enclosed(self, parse: Callable[[], types.DataType], forms: str) -> types.DataType:
        close = {"<": ">", "(": ")"}.get(self._token.text)
        if close is None:
            raise self._error(f"expected {forms}, got {self._token.shown}", self._token)
        opened = self._advance()
        levels = 2 if forms.startswith("M") else 1
        self._depth += levels
        if self._depth > MAX_NESTING:
            raise TypeTextError(_TOO_DEEP, opened.offset)
        result = parse()
        self._depth -= levels
        self._expect(close)
        return result

    def _one(self) -> types.DataType:
        return self._enclosed(self.type, "ARRAY<type>")

    def _map(self) -> types.DataType:
        def pair() -> types.DataType:
            key = self.type()
            key_required = self._required
            self._expect(",")
            value = self.type()
            return types.with_required(types.map_of(key, value), (key_required, self._required))

        return self._enclosed(pair, "MAP<key type, value type>")

    def _row(self) -> types.DataType:
        def fields() -> types.DataType:
            found: list[tuple[str, types.DataType]] = []
            required: list[bool] = []
            while not found or self._accept(","):
                name = self._advance()
                if name.kind not in (_Kind.WORD, _Kind.QUOTED):
                    raise self._error(f"expected a field name, got {name.shown}", name)
                if name.text in (n for n, _ in found):
                    raise self._error(f"field '{name.text}' occurs twice", name)
                self._accept(":")
                found.append((name.text, self.type()))
                required.append(self._required)
                if self._token.kind is _Kind.TEXT:  # a field comment
                    self._advance()
            return types.with_required(types.row(*found), tuple(required))

        return self._enclosed(fields, "ROW<name type, …>")
