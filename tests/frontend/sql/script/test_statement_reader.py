"""Where statements begin and end, and what is cut out of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.frontend.sql.grammar.tokens import scan
from flowrun.frontend.sql.script.statement_parser import FailedStatement, read_statements
from flowrun.frontend.sql.script.statement_reader import StatementReader, split_script
from flowrun.frontend.sql.script.statements import Insert, ReadStatement


@given(st.text(alphabet="a;'`-/*+\n ", max_size=30))
def test_statements_hold_all_that_is_neither_blank_nor_comment(text: str) -> None:
    spans = [statement.span for statement in split_script(text)]
    assert all(a < b for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in pairwise(spans))
    assert all(text[a:b].lstrip() == text[a:b] for a, b in spans)


@pytest.mark.parametrize("hint", ["OPTIONS('a'=';')", "OPTIONS('path'='/in/*/;')", "; not an option;", "A('it''s;')"])
def test_a_semicolon_in_a_hint_ends_no_statement(hint: str) -> None:
    first, second = read_statements(f"INSERT INTO o /*+ {hint} */ SELECT 1; SELECT 2")
    assert isinstance(first, ReadStatement)
    assert isinstance(first.statement, Insert)
    assert first.statement.hints == (f" {hint} ",)
    assert isinstance(second, ReadStatement)


def test_what_is_not_closed_takes_the_rest_of_the_script_with_it() -> None:
    text = "SELECT 1; CREATE TABLE t (a INT /*+ no end); SELECT 2"
    first, failed = read_statements(text)
    assert isinstance(first, ReadStatement)
    assert isinstance(failed, FailedStatement)
    assert (failed.error.message, failed.error.offset) == ("missing closing */", text.index("/*+"))
    assert (failed.span, failed.creates) == ((10, len(text)), "t")


def test_parts_are_cut_out_as_they_are_written() -> None:
    text = "MAP<INT, ROW<a INT>> NOT NULL, f('(', b[1, 2]) COMMENT 'c', x ON y"
    reader = StatementReader(text, list(scan(text)))
    assert reader.take_type("NOT").text == "MAP<INT, ROW<a INT>>"
    reader.advance(3)
    assert reader.take_until("an expression", "COMMENT").text == "f('(', b[1, 2])"
    reader.advance(3)
    rest = reader.take_rest("a query", "ON", "Y")
    assert (rest.text, rest.span) == ("x", (text.index("x"), text.index("x") + 1))
    assert reader.accept_phrase("ON", "Y")
    assert reader.shown() == "the end of the statement"


def test_a_long_script_is_read_in_one_go() -> None:
    values = ", ".join(f"'{n}'" for n in range(50_000))
    (read,) = read_statements(f"SELECT a FROM t WHERE b IN ({values});")
    assert isinstance(read, ReadStatement)
