"""Texts in diagrams of Mermaid."""

from __future__ import annotations


def mermaid_text(text: str) -> str:
    """A text between quotes of Mermaid, without marks that mean something there.

    >>> mermaid_text('a "b" <c>')
    'a #quot;b#quot; #lt;c>'
    """
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
