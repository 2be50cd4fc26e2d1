"""Places in texts."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from flowrun.frontend.source_text import SourceText


def test_places_on_a_very_long_line_are_found_without_reading_it_again() -> None:
    text = SourceText("f", "x" * 5_000_000)
    started = time.process_time()
    for start in range(0, 5_000_000, 500):
        assert text.locate(start, start + 10).column == start + 1
    assert time.process_time() - started < 2, "reading the line each time takes half a minute"


@given(st.text("ab\n\r\x85\u2028", max_size=12), st.integers(-1, 14), st.integers(0, 5))
def test_a_place_marks_what_is_on_its_line(content: str, start: int, length: int) -> None:
    text = SourceText("f", content)
    place = text.locate(start, start + length)
    line = text.line(place.line)
    at = min(max(start, 0), len(content))
    assert place.column - 1 <= len(line) + 1, "between \\r and \\n it may stand behind the line's end"
    assert place.length >= 1
    marked = line[place.column - 1 : place.column - 1 + place.length]
    assert content[at : at + len(marked)] == marked


def test_lines_end_where_yaml_ends_them() -> None:
    text = SourceText("f", "one\r\ntwo\x85three\u2028")
    assert [text.line(n) for n in range(6)] == ["", "one", "two", "three", "", ""]
