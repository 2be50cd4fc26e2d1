"""Text for terminals: characters that a terminal would obey instead of showing are written as escapes."""

from __future__ import annotations

_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)
"""They make what follows look like something else."""
_CONTROLS = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029, *_BIDIRECTIONAL)
    if chr(code) not in "\n\t"
}


def printable(text: str) -> str:
    r"""The text with control characters other than line feeds and tabs written as `\u…`, as JSON does.

    >>> print(printable("\x1b]0;title\x07 caf\xe9\r\x9b31m"))
    \u001b]0;title\u0007 café\u000d\u009b31m
    """
    return text if text.isprintable() else text.translate(_CONTROLS)
