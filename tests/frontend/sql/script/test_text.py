"""Filling ${…} into scripts: anywhere but in comments, unable to end a quote, places kept, secrets never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.script.text import ScriptText, fill_script


def fill(text: str, **variables: str) -> ScriptText:
    diagnostics = Diagnostics()
    filled = fill_script(SourceText("s.sql", text), References(variables, {}, Path()), diagnostics)
    assert not diagnostics.has_errors
    return filled


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("SELECT '${A}'", "SELECT 'it''s'"),
        ("SELECT `${A}`", "SELECT `it's`"),
        ("LIMIT ${N}", "LIMIT 3"),
        ("'x${N}y${N}'", "'x3y3'"),
        ("-- ${A}\n/* ${A} */ ${N}", "-- ${A}\n/* ${A} */ 3"),
        ("'$${A}' $${N}", "'${A}' ${N}"),
        ("'${B:-it''s}'", "'it''s'"),
        ("${B:-1 + 2}", "1 + 2"),
        ("/*+ OPTIONS('path'='${N}') */", "/*+ OPTIONS('path'='3') */"),
    ],
)
def test_references_are_filled(text: str, filled: str) -> None:
    assert fill(text, A="it's", N="3").text == filled


def test_places_are_those_of_the_file() -> None:
    script = fill("SELECT '${A}', b\nFROM ${T} x", A="a long text", T="t")
    assert str(script.locate(script.text.index("long"))) == "s.sql:1:9"
    assert str(script.locate(script.text.index("b\n"))) == "s.sql:1:16"
    assert str(script.locate(script.text.index("t x"), script.text.index("t x") + 3)) == "s.sql:2:6"
    assert script.locate(script.text.index("t x"), script.text.index("t x") + 3).length == 6


@given(st.lists(st.sampled_from(["${A}", "${N}", "'${A}'", "x", " ", "\n", "'q'", "--c\n", "$${"]), max_size=12))
def test_every_character_that_was_written_is_found_where_it_stands(parts: list[str]) -> None:
    text = "".join(parts)
    script = fill(text, A="it's", N="3")
    for offset, character in enumerate(script.text):
        at = script.locate(offset)
        written = script.origin.line(at.line)[at.column - 1 :] or "\n"
        if not script.pieces_in(offset, offset + 1):
            assert written[0] == character


def test_what_cannot_be_filled_is_said_once_and_the_statement_is_left_alone() -> None:
    diagnostics = Diagnostics()
    script = fill_script(SourceText("s.sql", "a ${X} ${Y"), References({}, {}, Path()), diagnostics)
    assert [d.message for d in diagnostics.found] == ["the variable 'X' is not set", "'${' without '}'"]
    assert all(p.unresolved for p in script.pieces)
