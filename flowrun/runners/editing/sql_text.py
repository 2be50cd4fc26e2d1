"""Where a place is in SQL that is being written: in which statement, and whether in a comment or a text."""

from __future__ import annotations

import re

from flowrun.core.record import record

_PIECE = re.compile(
    r"(?P<line>--[^\r\n]*)|(?P<block>/\*(?!\+).*?(?:(?P<closed>\*/)|\Z))|'[^']*(?P<text>'|\Z)|`[^`]*(?:`|\Z)|(?P<end>;)",
    re.DOTALL,
)
_REST_OF_TEXT = re.compile(r"[^'\r\n]*'")


@record
class Cursor:
    """A place in SQL.

    Attributes:
        before: its statement up to the place, with blanks for comments.
        statement: all of it, with blanks for comments.
        in_comment: whether the place is in a comment.
        text: what stands before the place in the text that it is in; None: it is in none.
    """

    before: str
    statement: str
    in_comment: bool = False
    text: str | None = None


def cursor_between(before: str, after: str) -> Cursor:
    r"""The place between two parts of SQL: many statements, of which that at the place need not be finished.

    >>> cursor_between("SELECT 1; SELECT ';', a /* it's */, ", "b; SELECT 2").statement
    " SELECT ';', a           , b"
    >>> cursor_between("SELECT 'ab", "c' FROM t").text, cursor_between("SELECT 1 -- a", "b").in_comment
    ('ab', True)
    """
    parts: list[str] = []
    in_comment, text, read = False, None, 0
    for piece in _PIECE.finditer(before):
        parts.append(before[read : piece.start()])
        read = piece.end()
        if piece["end"]:
            parts.clear()
        elif piece["line"] or piece["block"]:
            parts.append(_blank(piece[0]))
            in_comment = read == len(before) and piece["closed"] is None
        else:
            parts.append(piece[0])
            text = piece[0][1:] if piece["text"] == "" else None
    head = "".join((*parts, before[read:]))
    return Cursor(head, head + _to_the_end(after, in_text=text is not None), in_comment, text)


def _to_the_end(after: str, *, in_text: bool) -> str:
    """The rest of a statement, without its semicolon. A text that is not closed on its line is taken to end at the place."""
    rest = _REST_OF_TEXT.match(after) if in_text else None
    read = 0 if rest is None else rest.end()
    parts = [after[:read]]
    for piece in _PIECE.finditer(after, read):
        parts.append(after[read : piece.start()])
        if piece["end"]:
            return "".join(parts)
        parts.append(_blank(piece[0]) if piece["line"] or piece["block"] else piece[0])
        read = piece.end()
    return "".join((*parts, after[read:]))


def _blank(comment: str) -> str:
    return re.sub(r"[^\r\n]", " ", comment)
