"""Tokens of expressions and queries: Flink's lexical rules for sqlglot's tokenizer."""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from flowrun.frontend.sql.places import FlinkSyntaxError

WORD = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
"""A word that may name a function or a unit."""
_WORDS = frozenset((
    "ALL", "AND", "ANY", "AS", "ASC", "BETWEEN", "CASE", "CROSS", "CUBE", "DESC", "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT",
    "EXISTS", "FALSE", "FETCH", "FILTER", "FOR", "FROM", "FULL", "HAVING", "IN", "INNER", "INSERT", "INTERSECT", "INTERVAL",
    "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "MATCH_RECOGNIZE", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR",
    "ORDINALITY", "OUTER", "OVER", "OVERLAPS", "PARTITION", "RANGE", "RIGHT", "ROLLUP", "ROWS", "SELECT", "SEMI", "ANTI", "SET", "SOME",
    "TABLE", "THEN", "TRUE", "UNION", "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH",
))  # fmt: skip
_PHRASES = frozenset(("GROUP BY", "GROUPING SETS", "ORDER BY", "PARTITION BY", "SIMILAR TO"))
_MARKS = frozenset(("||", ">=", "<=", "<>", "!=", "=>", "/*+"))


class FlinkTokenizer(Tokenizer):
    """Flink's lexical rules: back-quoted identifiers, strings escaped by doubling, only Flink's own keywords."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
    UNICODE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("U&'", "'"), ("u&'", "'")]
    COMMANDS: ClassVar[set[TokenType]] = set()
    TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = {  # anywhere else `/*+ … */` is a comment
        TokenType.SELECT, TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.RANGE, TokenType.ROWS, TokenType.SET,
        TokenType.OFFSET,
    }  # fmt: skip
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        k: t for k, t in Tokenizer.KEYWORDS.items() if k in _WORDS or k in _PHRASES or k in _MARKS
    }


class Flink(Dialect):
    """The dialect, as sqlglot knows it."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE
    Tokenizer = FlinkTokenizer


def checked_tokens(text: str, what: str) -> list[Token]:
    """The tokens of a text that is one expression or one query; `what` it is, for messages.

    Raises:
        FlinkSyntaxError: an unclosed quote, a semicolon, a double quote, or nothing at all.
    """
    try:
        tokens = Flink().tokenize(text)
    except TokenError as error:
        start = max(len(text.rstrip()) - 1, 0)
        unclosed = next((c for c in ("'", "`") if text.replace(c * 2, "").count(c) % 2), None)
        message = f"missing closing {unclosed}" if unclosed else f"not SQL: {error}"
        raise FlinkSyntaxError(message, text.rfind(unclosed) if unclosed else start, 1) from error
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise FlinkSyntaxError(
                f"unexpected ';' in {'an expression' if what == 'the expression' else 'a query'}", token.start, 1
            )
        if token.text == '"':
            raise FlinkSyntaxError(
                "unexpected '\"': write names in `back ticks` and text in 'single quotes'", token.start, 1
            )
    if not tokens:
        raise FlinkSyntaxError(f"{what} is empty", 0, 1)
    return tokens
