"""The words that all grammars are written in, on a reader that keeps its own place."""

from __future__ import annotations

import pytest

from flowrun.frontend.sql.grammar.token_reader import TextReader
from flowrun.frontend.sql.grammar.tokens import scan
from flowrun.frontend.sql.spans import FlinkSyntaxError


def reader_of(text: str) -> TextReader:
    """A reader before the first token of a text."""
    return TextReader(text, list(scan(text)))


def test_words_names_and_texts_are_taken_in_order() -> None:
    reader = reader_of("CREATE TABLE a.`b c` ('k' = 'v', d)")
    assert reader.accept_phrase("CREATE", "TABLE")
    assert [(n.text, n.quoted) for n in reader.take_path()] == [("a", False), ("b c", True)]
    reader.expect_mark("(")
    assert reader.take_text("a key").text == "k"
    assert not reader.accept_word("K")
    assert reader.accept_mark("=", "<>")
    place = reader.place
    assert reader.advance().text == "v"
    reader.go_back(place)
    reader.advance(2)
    assert (reader.take_name().text, reader.previous.text, reader.token.text) == ("d", "d", ")")
    reader.advance()
    reader.expect_end()
    assert not reader.accept_mark(")")


def read_from(reader: TextReader) -> None:
    """FROM, a path, and nothing else."""
    reader.expect_word("FROM")
    reader.take_path()
    reader.expect_end()


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        ("'FROM' t", "expected FROM, got 'FROM'", (0, 6), None),
        ("FRM t", "expected FROM, got 'FRM'", (0, 3), "did you mean FROM?"),
        ("", "expected FROM, got the end", (0, 1), None),
        ("FROM 'a b'", "expected a name, got 'a b'", (5, 5), None),
        ("FROM ``", "expected a name, got ''", (5, 2), None),
        ("FROM a.  ", "expected a name, got the end", (6, 1), None),
        ("FROM a b", "unexpected 'b'", (7, 1), None),
    ],
)
def test_what_is_missing_is_said_where_it_should_stand(
    text: str, message: str, place: tuple[int, int], hint: str | None
) -> None:
    with pytest.raises(FlinkSyntaxError) as caught:
        read_from(reader_of(text))
    error = caught.value
    assert (error.message, (error.offset, error.length), error.hint) == (message, place, hint)
