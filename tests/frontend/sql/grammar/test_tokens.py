"""Flink's lexical rules: what is a token, what is none, and what is never closed."""

from __future__ import annotations

import pytest

from flowrun.frontend.sql.grammar.tokens import TokenType, checked_tokens, scan, token_span
from flowrun.frontend.sql.spans import FlinkSyntaxError


def texts(text: str) -> list[str]:
    """What the tokens of a text say."""
    return [token.text for token in scan(text)]


def test_tokens_know_their_places() -> None:
    text = "a  'it''s' -- c\n`b``c` /*+ H(1) */ 1.5"
    assert [(t.text, text[slice(*token_span(t))]) for t in scan(text)] == [
        ("a", "a"),
        ("it's", "'it''s'"),
        ("b`c", "`b``c`"),
        ("/*+ H(1) */", "/*+ H(1) */"),
        ("1.5", "1.5"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a$b", ["a$b"]),
        ("1.5e-3-1", ["1.5e-3", "-", "1"]),
        ("1e5-3", ["1e5", "-", "3"]),
        ("5abc", ["5", "abc"]),
        ("a||b<>c>=d", ["a", "||", "b", "<>", "c", ">=", "d"]),
        ("x'1F' X'' U&'\\0041'", ["1F", "", "\\0041"]),
        ("_UTF8'a''b' n'' N 'c' _utf8 'd'", ["a'b", "", "N", "c", "_utf8", "d"]),
        ("x'zz'", ["x", "zz"]),
        ("/* a /* b */ c", ["c"]),  # comments do not nest
        ("{# c #}", ["{", "#", "c", "#", "}"]),  # nor are there others
    ],
)
def test_what_is_a_token(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_quotes_in_a_hint_are_quotes() -> None:
    text = "t /*+ OPTIONS('path'='/in/*/a;b', 'k'='it''s', `a*/` = '') */ x"
    assert texts(text) == ["t", text[2:-2], "x"]


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("a 'b ''", "missing closing '", "'"),
        ("`a' b", "missing closing `", "`"),
        ("a /* b", "missing closing */", "/*"),
        ("a /*/", "missing closing */", "/*"),
        ("t /*+ OPTIONS('a'='b) */", "missing closing */", "/*"),
    ],
)
def test_what_is_not_closed_is_an_error_where_it_begins(text: str, message: str, marked: str) -> None:
    with pytest.raises(FlinkSyntaxError) as caught:
        list(scan(text))
    error = caught.value
    assert (error.message, text[error.offset : error.offset + error.length]) == (message, marked)
    assert error.offset == text.index(marked)


def test_a_double_quote_in_a_text_is_a_text() -> None:
    assert [token.text for token in checked_tokens("""'"' = a""", "the expression")] == ['"', "=", "a"]
    with pytest.raises(FlinkSyntaxError, match="write names in `back ticks`"):
        checked_tokens('"a"', "the expression")


def test_hints_stand_behind_tables_and_select_and_are_comments_elsewhere() -> None:
    tokens = checked_tokens("SELECT /*+ A(b) */ 1 /*+ C */ FROM t /*+ D */", "the query")
    assert [t.text for t in tokens if t.token_type is TokenType.HINT] == ["/*+ A(b) */", "/*+ D */"]


def test_keywords_that_belong_together_are_one_token() -> None:
    tokens = checked_tokens("order /* of rows */ by `group` by", "the query")
    assert [(t.text, t.token_type is TokenType.ORDER_BY) for t in tokens] == [
        ("ORDER BY", True),
        ("group", False),
        ("by", False),
    ]
