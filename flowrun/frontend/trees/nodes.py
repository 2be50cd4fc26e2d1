"""YAML documents as frozen trees whose every node knows its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from flowrun.core.record import record
from flowrun.errors import Location
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.alignment import align


class ScalarStyle(Enum):
    """How a scalar was written."""

    PLAIN = ""
    SINGLE_QUOTED = "'"
    DOUBLE_QUOTED = '"'
    LITERAL = "|"
    FOLDED = ">"


# eq=False: nodes are places; two equal texts at two places are different nodes.
@record(eq=False)
class YamlNode:
    """A node of the tree; it covers the code points `start` ≤ i < `end` of its source."""

    source: SourceText
    start: int
    end: int

    @property
    def location(self) -> Location:
        """Where the node begins; marks its first line."""
        return self.source.locate(self.start, self.end)


@record
class Piece:
    """A stretch of a scalar's text that interpolation put in place of the characters `start` ≤ i < `end` of the written value."""

    position: int
    length: int
    start: int
    end: int


@record(eq=False)
class YamlScalar(YamlNode):
    """A scalar. `text` is its value after interpolation; `pieces` says what interpolation replaced, in order.

    Attributes:
        written: the value before interpolation.
        secret: interpolation put a secret into `text`.
        unresolved: a reference in it could not be filled, which has been reported: `text` means nothing.
    """

    text: str
    style: ScalarStyle
    written: str
    pieces: tuple[Piece, ...] = ()
    secret: bool = False
    unresolved: bool = False

    @property
    def is_null(self) -> bool:
        """Whether nothing was written (`key:`, `~` or `null`)."""
        return self.style is ScalarStyle.PLAIN and not self.pieces and self.text in ("", "~", "null", "Null", "NULL")

    def locate(self, offset: int, length: int = 1) -> Location:
        """The place in the source of `length` code points of `text` from `offset` on, whatever the quoting."""
        first, _ = self._written_range(offset)
        _, last = self._written_range(offset + max(length, 1) - 1)
        origins = align(self.source.text[self.start : self.end], self.written, self.style.value)
        begin = origins[min(first, len(self.written))]
        return self.source.locate(
            self.start + begin, self.start + origins[min(max(last - 1, first), len(self.written))] + 1
        )

    def _written_range(self, offset: int) -> tuple[int, int]:
        """The range of the written value that the code point `offset` of `text` came from."""
        shift = 0
        for piece in self.pieces:
            if offset < piece.position:
                break
            if offset < piece.position + piece.length:
                return piece.start, piece.end
            shift = piece.end - piece.position - piece.length
        return offset + shift, offset + shift + 1


@record(eq=False)
class YamlSequence(YamlNode):
    """A list."""

    items: tuple[YamlNode, ...]


@record(eq=False)
class YamlEntry:
    """One `key: value` of a mapping."""

    key: YamlScalar
    value: YamlNode

    @property
    def name(self) -> str:
        """The key's text."""
        return self.key.text


@record(eq=False)
class YamlMapping(YamlNode):
    """A mapping with unique keys, in the order written."""

    entries: tuple[YamlEntry, ...]

    def entry(self, name: str) -> YamlEntry | None:
        """The entry of a key, or None."""
        return next((e for e in self.entries if e.name == name), None)

    def get(self, name: str) -> YamlNode | None:
        """The value of a key, or None."""
        entry = self.entry(name)
        return None if entry is None else entry.value


def describe(node: YamlNode) -> str:
    """What a node is, for `expected …, got …` messages. A secret is never shown."""
    match node:
        case YamlMapping():
            return "a mapping"
        case YamlSequence():
            return "a list"
        case YamlScalar() if node.is_null:
            return "nothing"
        case YamlScalar() if node.secret:
            return "a secret"
        case YamlScalar():
            shown = node.text if len(node.text) <= 60 else node.text[:57] + "…"
            return f"'{shown}'"
        case _:
            return "an unknown node"


def scalars(node: YamlNode) -> Iterator[YamlScalar]:
    """All scalar values below a node, in order; keys are left out."""
    match node:
        case YamlScalar():
            yield node
        case YamlSequence():
            for item in node.items:
                yield from scalars(item)
        case YamlMapping():
            for entry in node.entries:
                yield from scalars(entry.value)
