"""Where each character of a YAML scalar's value was written: undoes quoting, escapes, folding and indentation."""

from __future__ import annotations

_WHITESPACE = " \t\r\n\x85\u2028\u2029"
_BREAKS = "\r\n\x85\u2028\u2029"
_ESCAPE_DIGITS = {"x": 2, "u": 4, "U": 8}


def align(raw: str, value: str, style: str) -> list[int]:
    r"""For each code point of `value`, and for its end, the offset in `raw` where it was written.

    Args:
        raw: the scalar as it stands in the text, with its quotes or block header.
        value: what YAML reads it as.
        style: PyYAML's style: empty (plain), `'`, `"`, `|` or `>`.

    Every character but white space is exact; white space that folding made stands at its line break.

    >>> align("'it''s'", "it's", "'")
    [1, 2, 3, 5, 6]
    >>> align("|\n  a\n  b", "a\nb", "|")
    [4, 5, 8, 9]
    """
    position = _content_start(raw, style)
    origins: list[int] = []
    for character in value:
        position = _advance(raw, position, character, style)
        origins.append(min(position, max(len(raw) - 1, 0)))
        position += _width(raw, position, style)
    origins.append(min(position, len(raw)))
    return origins


def _content_start(raw: str, style: str) -> int:
    """Offset of the first character that may belong to the value."""
    if style in ("'", '"'):
        return 1
    if style in ("|", ">"):
        return next((i + 1 for i, c in enumerate(raw) if c in _BREAKS), len(raw))
    return 0


def _advance(raw: str, position: int, character: str, style: str) -> int:
    """Offset of the writing of `character`, at or after `position`: skips indentation and escaped line breaks."""
    while position < len(raw):
        here = raw[position]
        if style == '"' and here == "\\":
            if raw[position + 1 : position + 2] not in _BREAKS:
                return position
            position += 2  # an escaped line break stands for nothing
            continue
        if here == character or here not in _WHITESPACE:
            return position
        if here in _BREAKS and character in (" ", "\n"):
            return position
        position += 1
    return position


def _width(raw: str, position: int, style: str) -> int:
    """How many characters the writing at `position` takes."""
    here = raw[position : position + 1]
    if style == "'" and here == "'":
        return 2
    if style == '"' and here == "\\":
        return 2 + _ESCAPE_DIGITS.get(raw[position + 1 : position + 2], 0)
    return 1
