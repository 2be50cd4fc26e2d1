"""What SQL is made of: Flink's lexical rules, the only ones that scripts, statements, hints, queries and expressions are read by.

A token is sqlglot's, because its parser reads expressions: `start` and `end` are its first and its last code point, `text` is what it says,
without quotes. sqlglot's own tokenizer is not used: it reads a whole text or nothing, nests comments, and takes one character at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from flowrun.frontend.sql.spans import FlinkSyntaxError, Span

__all__ = [
    "BLOCK_COMMENT",
    "LINE_COMMENT",
    "QUOTED_NAME",
    "TEXT",
    "WORD",
    "Token",
    "TokenType",
    "checked_tokens",
    "is_mark",
    "is_name",
    "is_quoted",
    "is_word",
    "scan",
    "token_span",
]

# No possessive quantifiers: `re` of Python 3.11.0 to 3.11.4, which Debian 12 has, matches groups with them wrongly.
LINE_COMMENT = r"--[^\r\n]*"
BLOCK_COMMENT = r"/\*(?!\+).*?\*/"
TEXT = r"'[^']*(?:''[^']*)*'(?!')"
QUOTED_NAME = r"`[^`]*(?:``[^`]*)*`(?!`)"
WORD = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
"""A name, keyword or unit without quotes."""
_TOKEN = re.compile(
    rf"\s+|{LINE_COMMENT}|{BLOCK_COMMENT}"
    rf"|(?P<text>{TEXT})|(?P<hex>[xX]'[0-9a-fA-F]*'|0[xX][0-9a-fA-F]+)|(?P<unicode>[uU]&{TEXT})"
    rf"|(?P<charset>(?:_[A-Za-z][\w.:-]*|[nN]){TEXT})"
    rf"|(?P<name>{QUOTED_NAME})|(?P<word>{WORD.pattern})"
    r"|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<hint>/\*\+(?:[^'`*]|\*(?!/)|'[^']*'|`[^`]*`)*\*/)"  # its quotes are quotes: they may hold */ and ;
    r"|(?P<open>['`]|/\*)|(?P<mark>\|\||[<>!]=|<>|=>|.)",
    re.DOTALL,
)
_KEYWORDS = {
    word: Tokenizer.KEYWORDS[word]
    for word in (
        "ALL", "AND", "ANY", "AS", "ASC", "BETWEEN", "CASE", "CROSS", "CUBE", "DESC", "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT",
        "EXISTS", "FALSE", "FETCH", "FILTER", "FOR", "FROM", "FULL", "HAVING", "IN", "INNER", "INSERT", "INTERSECT", "INTERVAL",
        "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR",
        "ORDINALITY", "OUTER", "OVER", "OVERLAPS", "PARTITION", "RANGE", "RIGHT", "ROLLUP", "ROWS", "SELECT", "SEMI", "ANTI", "SET",
        "SOME", "TABLE", "THEN", "TRUE", "UNION", "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH",
    )
}  # fmt: skip
"""The words that the grammar of expressions and queries knows; any other is a name until a rule asks for it."""
_PHRASES = {
    phrase: Tokenizer.KEYWORDS[phrase]
    for phrase in ("GROUP BY", "GROUPING SETS", "ORDER BY", "PARTITION BY", "SIMILAR TO")
}
_PHRASE_ENDS = ("BY", "SETS", "TO")
_MARKS = Tokenizer.SINGLE_TOKENS | {mark: Tokenizer.KEYWORDS[mark] for mark in ("||", ">=", "<=", "<>", "!=", "=>")}
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEX_STRING, TokenType.UNICODE_STRING)
_BEFORE_HINT = (
    TokenType.SELECT, TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.RANGE, TokenType.ROWS, TokenType.SET,
    TokenType.OFFSET,
)  # fmt: skip
"""What a hint may stand behind in a query; anywhere else it is a comment."""


def scan(text: str) -> Iterator[Token]:
    """The tokens of a text, without blanks and comments, one after the other. Marks of no meaning are of the kind VAR.

    Raises:
        FlinkSyntaxError: a quote, comment or hint is not closed; after the tokens before it.

    >>> [t.text for t in scan("SELECT 'it''s', `a b` -- no more")]
    ['SELECT', "it's", ',', 'a b']
    """
    for match in _TOKEN.finditer(text):
        if match.lastgroup is None:
            continue
        first, after = match.span()
        value = match[0]
        match match.lastgroup:
            case "word":
                kind = _KEYWORDS.get(value.upper(), TokenType.VAR)
            case "mark":
                kind = _MARKS.get(value, TokenType.VAR)
            case "number":
                kind = TokenType.NUMBER
            case "text":
                kind, value = TokenType.STRING, value[1:-1].replace("''", "'")
            case "charset":
                kind, value = TokenType.STRING, _of_charset(value, first)
            case "name":
                kind, value = TokenType.IDENTIFIER, value[1:-1].replace("``", "`")
            case "hint":
                kind = TokenType.HINT
            case "hex":
                kind, value = TokenType.HEX_STRING, value[2:].rstrip("'")
            case "unicode":
                kind, value = TokenType.UNICODE_STRING, value[3:-1].replace("''", "'")
            case _ if value == "/*":
                advice = "the hint, and the quotes in it" if text.startswith("/*+", first) else "the comment with */"
                raise FlinkSyntaxError("missing closing */", first, 2, f"end {advice}")
            case _:
                raise FlinkSyntaxError(f"missing closing {value}", first, 1)
        yield Token(kind, value, start=first, end=after - 1)


def _of_charset(literal: str, start: int) -> str:
    """The text of N'…' or _UTF8'…', which holds only characters of that set."""
    charset, _, rest = literal.partition("'")
    text = rest[:-1].replace("''", "'")
    try:
        text.encode(charset[1:] or "utf-8")
    except LookupError:
        raise FlinkSyntaxError(
            f"there is no character set '{charset[1:]}'", start, len(charset), "leave it out"
        ) from None
    except UnicodeEncodeError as error:
        message = f"the character set '{charset[1:]}' has no '{text[error.start]}'"
        raise FlinkSyntaxError(message, start, len(literal), "leave the character set out") from None
    return text


def is_quoted(token: Token) -> bool:
    """Whether the token is a name in back ticks, or a text."""
    return token.token_type in _QUOTED


def is_word(token: Token, *words: str) -> bool:
    """Whether the token is one of these keywords (upper case), not quoted."""
    return token.text.upper() in words and token.token_type not in _QUOTED


def is_mark(token: Token, *marks: str) -> bool:
    """Whether the token is one of these marks."""
    return token.text in marks and token.token_type not in _QUOTED


def is_name(token: Token) -> bool:
    """Whether the token is an identifier, quoted or not; keywords may be some."""
    if token.token_type is TokenType.IDENTIFIER:
        return bool(token.text)
    return bool(token) and token.token_type not in _QUOTED and WORD.fullmatch(token.text) is not None


def token_span(token: Token) -> Span:
    """First and one-past-last code point."""
    return token.start, token.end + 1


def checked_tokens(text: str, what: str) -> list[Token]:
    """The tokens of a text that is one expression or one query; `what` it is, for messages.

    Keywords that belong together are one token, such as ORDER BY, in upper case.

    Raises:
        FlinkSyntaxError: an unclosed quote, a semicolon, a double quote, or nothing at all.
    """
    found: list[Token] = []
    for token in list(scan(text)):  # what is not closed comes first
        if token.token_type in _QUOTED:
            found.append(token)
            continue
        word = token.text.upper()
        if token.token_type is TokenType.SEMICOLON:
            where = "an expression" if what == "the expression" else "a query"
            raise FlinkSyntaxError(f"unexpected ';' in {where}", token.start, 1)
        if word == '"':
            message = "unexpected '\"': write names in `back ticks` and text in 'single quotes'"
            raise FlinkSyntaxError(message, token.start, 1)
        if token.token_type is TokenType.HINT and (not found or found[-1].token_type not in _BEFORE_HINT):
            continue
        if word in _PHRASE_ENDS and found and not is_quoted(found[-1]):
            phrase = f"{found[-1].text.upper()} {word}"
            if phrase in _PHRASES:
                found[-1] = Token(_PHRASES[phrase], phrase, start=found[-1].start, end=token.end)
                continue
        found.append(token)
    if not found:
        raise FlinkSyntaxError(f"{what} is empty", 0, 1)
    return found
