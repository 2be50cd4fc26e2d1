"""What sqlglot keeps to itself may change with any of its versions: one module may know of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sqlglot.parser import Parser
from sqlglot.tokens import TokenType

import flowrun
from flowrun.frontend.sql.grammar.sqlglot_reader import SqlglotReader
from flowrun.frontend.sql.grammar.tokens import checked_tokens
from flowrun.frontend.sql.spans import FlinkSyntaxError

PRIVATE = {name for name in dir(Parser()) if name.startswith("_") and not name.startswith("__")}
SQL = Path(flowrun.__file__).parent / "frontend" / "sql"


def reader_at_start(text: str) -> SqlglotReader:
    """A reader before the first token of a text, as a rule finds it."""
    reader = SqlglotReader()
    with pytest.raises(FlinkSyntaxError):  # the rule reads nothing
        reader.read(lambda: None, checked_tokens(text, "the text"), text, "the text")
    reader.go_back(0)
    return reader


def names_in(path: Path) -> set[str]:
    """The attributes that a module reads, and the names that it defines."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {
        n.name for n in nodes if isinstance(n, ast.FunctionDef)
    }


def test_only_the_sqlglot_reader_uses_or_overrides_private_names_of_sqlglots_parser() -> None:
    users = {path.name: sorted(names_in(path) & PRIVATE) for path in sorted((SQL / "grammar").glob("*.py"))}
    assert "_parse_bitwise" in users.pop("sqlglot_reader.py")
    assert {name: found for name, found in users.items() if found} == {}


def test_only_the_grammar_knows_sqlglots_parser_and_tokens() -> None:
    users = {
        path.relative_to(SQL).parts[0]
        for path in SQL.rglob("*.py")
        if re.search(r"sqlglot\.(parser|tokens|tokenizer_core|dialects)", path.read_text(encoding="utf-8"))
    }
    assert users == {"grammar"}


def test_a_keyword_in_quotes_is_none() -> None:
    reader = reader_at_start("`SELECT` 'SELECT' SELECT")
    assert [reader.ahead(i).text for i in range(3)] == ["SELECT"] * 3
    assert not reader.at_word("SELECT")
    reader.advance(2)
    assert reader.accept_word("WITH", "SELECT")
    assert not reader.token


def test_a_phrase_is_one_token_or_two() -> None:
    for text in ("ORDER BY a", "ORDER /* of rows */ BY a"):
        reader = reader_at_start(text)
        assert reader.accept_phrase("ORDER", "BY")
        assert reader.at_word("A")


def test_a_reader_goes_back_and_looks_ahead() -> None:
    reader = reader_at_start("a . b (")
    start = reader.place
    reader.advance(2)
    assert (reader.token.text, reader.previous.text, reader.following.text, reader.here) == ("b", ".", "(", 4)
    assert reader.ahead(2).token_type is TokenType.SENTINEL
    reader.go_back(start)
    assert reader.at_kind(TokenType.VAR)
    assert not reader.accept_kind(TokenType.DOT, TokenType.COMMA)


def test_places_are_code_points_of_the_text() -> None:
    reader = reader_at_start("'ä\U0001f600' x")
    reader.advance()
    assert reader.since(0) == (0, 4)
    with pytest.raises(FlinkSyntaxError, match="expected AS, got 'x'") as caught:
        reader.expect_word("AS")
    assert (caught.value.offset, caught.value.length) == (5, 1)
