"""Where the statements of a script begin and end."""

from __future__ import annotations

import re

from flowrun.frontend.sql.places import Span
from flowrun.frontend.sql.script.text import BLOCK_COMMENT, LINE_COMMENT, is_open_comment

_STRETCH = re.compile(
    rf"(?P<blank>\s+|{LINE_COMMENT}|{BLOCK_COMMENT})|(?P<semicolon>;)|'(?:[^']|'')*'?|`(?:[^`]|``)*`?|[^;'`\s/-]+|.",
    re.DOTALL,
)


def split_script(text: str) -> tuple[Span, ...]:
    r"""First and one-past-last code point of every statement, without its semicolon, and without blanks and comments around it.

    A comment whose end is missing is part of a statement, which then is wrong: it would hide all that follows.

    >>> text = "SELECT ';' -- one; comment\n;; /* two; */ SELECT 2"
    >>> [text[a:b] for a, b in split_script(text)]
    ["SELECT ';'", 'SELECT 2']
    """
    found: list[Span] = []
    start: int | None = None
    end = 0
    for match in _STRETCH.finditer(text):
        if match["semicolon"] is not None:
            if start is not None:
                found.append((start, end))
            start = None
        elif match["blank"] is None or is_open_comment(match["blank"]):
            start = match.start() if start is None else start
            end = match.end()
    if start is not None:
        found.append((start, end))
    return tuple(found)
