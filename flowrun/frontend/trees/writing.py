"""Texts as YAML writes them."""

from __future__ import annotations


def yaml_quoted(text: str) -> str:
    r"""A text in double quotes, on one line: what cannot be seen is escaped.

    >>> print(yaml_quoted('a "b"'), yaml_quoted("a\nb"), yaml_quoted("größe \u2028"))
    "a \"b\"" "a\nb" "größe \u2028"
    """
    return '"' + "".join(map(_escaped, text)) + '"'


_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(mark: str) -> str:
    if mark in _SHORT:
        return _SHORT[mark]
    if mark.isprintable():
        return mark
    number = ord(mark)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
